"""Parts: a part as a fusion, and its form, which says what the fusion is up to names."""

from itertools import combinations

import pytest

import taskfuse as tf
from taskfuse.ir.storage import needed
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.alpha_equivalence import form


def layers(extent: int | str) -> tf.Fusion:
    """Twice the same of other tensors, with views, a scalar, a constant, a gather, and an output in the middle; what differs is a constant and a dtype."""
    with tf.Fusion("layers") as fusion:
        x, factor = tf.define_tensor([extent, 8], name="x"), tf.define_scalar(tf.float32, name="factor")
        index = tf.define_tensor([extent], dtype=tf.int64, name="index")
        for constant, dtype in ((1.0, tf.float32), (1.0, tf.bfloat16), (2.0, tf.float32)):
            w = tf.define_tensor([8, 8], dtype=dtype)
            y = tf.exp(tf.flip(x, (1,))) * factor + constant
            x = tf.take(y, index, 0) + tf.sum(y @ tf.cast(w, tf.float32).T, 1, keepdims=True)
        fusion.add_output(y, tf.cat([x, y], dim=1))
    return fusion


@pytest.mark.parametrize("extent", [4, "N"])
def test_parts_have_one_form_where_their_fusions_are_equal_up_to_names(extent: int | str) -> None:
    fusion = layers(extent)
    parts, code = Parts(fusion), [e.output for e in needed(fusion)]
    known: dict[object, str] = {}
    texts: dict[str, object] = {}
    for size in (1, 2):
        for tensors in combinations(code, size):
            key, names = parts.form(tensors)
            made = form(parts.extract(tensors, "part"))
            assert names == made.names
            assert known.setdefault(key, made.text) == made.text
            assert texts.setdefault(made.text, key) == key
    assert len(texts) < len(code) + len(code) * (len(code) - 1) // 2, "equal layers have equal parts"


def test_a_view_that_a_part_takes_as_input_is_in_its_form() -> None:
    with tf.Fusion("viewed") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        columns = x[:, 2:6]
        fusion.add_output(tf.exp(columns))
    parts = Parts(fusion)
    plain, viewed = parts.form(fusion.outputs), parts.form(fusion.outputs, [columns])
    assert plain.key != viewed.key
    assert viewed.names[0] == columns.name
    assert [tv.shape for tv in parts.extract(fusion.outputs, "part", [columns]).inputs] == [columns.shape]
    assert parts.form(fusion.outputs, [x.T]).key == plain.key, "what it does not read changes nothing"
