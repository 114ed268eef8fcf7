"""The tensors of walks: products with reductions, or functions, between them, whatever else a fusion computes."""

import pytest

import taskfuse as tf
from taskfuse.ir.expr import Reduction
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.attention_math import find
from taskfuse.schedulers.back_to_back import find as find_chain
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.walks import walks, walks_apart
from taskfuse.target import DEFAULT
from tests.schedulers.attentions import attention


def projected() -> tf.Fusion:
    """Queries are a product, and so is what follows."""
    with tf.Fusion("projected") as fusion:
        x, w, o = (tf.define_tensor([e, 64], dtype=tf.bfloat16) for e in (512, 64, 64))
        k, v = (tf.define_tensor([4096, 64], dtype=tf.bfloat16) for _ in range(2))
        found = tf.scaled_dot_product_attention(x @ w, k, v)
        fusion.add_output(found @ o)
    return fusion


def test_a_walk_ends_at_its_products() -> None:
    fusion = projected()
    (found,) = walks(fusion)
    part = Parts(fusion).extract(found, "walk")
    assert [len(part.inputs), len(part.outputs)] == [3, 2]  # sums, and sums of products
    assert len(find(part).reductions) == 3


def test_positions_that_masks_compare_belong_to_it() -> None:
    with tf.Fusion() as fusion:
        q, k, v = (tf.define_tensor([e, 64], dtype=tf.bfloat16) for e in ("M", "N", "N"))
        near = tf.expand_dims(tf.arange(k.shape[0]), 0) - 40 <= tf.expand_dims(tf.arange(q.shape[0]), 1)
        fusion.add_output(tf.scaled_dot_product_attention(q, k, v, attn_mask=near))
    (found,) = walks(fusion)
    assert len(Parts(fusion).extract(found, "walk").inputs) == 3


def test_products_of_products_are_one() -> None:
    with tf.Fusion() as fusion:
        a, b, c = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(3))
        fusion.add_output(tf.matmul(tf.matmul(a, b), c))
    assert [len(found) for found in walks(fusion)] == [3]
    assert not list(walks(attention_of_one_product()))


def gradients(depth: int = 128) -> tf.Fusion:
    """Of attention: sums over keys and sums over queries need the same scores."""
    with tf.Fusion("gradients") as fusion:
        g, q, k, v, o = (tf.define_tensor([16, 1024, depth], dtype=tf.bfloat16, name=x) for x in "gqkvo")
        for tv in tf.scaled_dot_product_attention_backward(g, q, k, v, o, tf.define_tensor([16, 1024], name="sums"), is_causal=True):
            fusion.add_output(tv)
    return fusion


def test_walks_that_have_products_in_common_are_taken_apart() -> None:
    fusion = gradients()
    (queries, keys) = walks(fusion)
    assert {tv.name for tv in queries} & {tv.name for tv in keys}
    form = walks_apart(fusion, DEFAULT)
    assert form is not None
    (one, other) = walks(form.fusion)
    assert not {tv.name for tv in one} & {tv.name for tv in other}
    assert sorted(map(len, (one, other))) == sorted(map(len, (queries, keys)))
    assert sorted(len(find_chain(Parts(form.fusion).extract(found, "walk")).last) for found in (one, other)) == [1, 2]
    assert walks_apart(projected(), DEFAULT) is None


def test_sums_that_have_no_room_together_are_walks_of_their_own() -> None:
    form = walks_apart(gradients(256), DEFAULT)
    assert form is not None
    assert sorted(len([tv for tv in found if isinstance(tv.definition, Reduction)]) for found in walks(form.fusion)) == [2, 3, 3]


def test_gradients_of_attention_have_no_scores_in_memory() -> None:
    found = choose_segments(gradients())
    schedulers = [step.schedule.scheduler for step in found.steps]
    assert schedulers.count("back_to_back") == 2
    assert max(size for _, size in found.crossing) < 1e6


def attention_of_one_product() -> tf.Fusion:
    with tf.Fusion() as fusion:
        q, k = (tf.define_tensor([e, 64], dtype=tf.bfloat16) for e in ("M", "N"))
        fusion.add_output(tf.softmax(tf.matmul(q, k.T, dtype=tf.float32), 1))
    return fusion


def test_a_search_finds_a_walk_between_other_products() -> None:
    """No two parts of it are worth a kernel of their own."""
    found = choose_segments(projected())
    assert [step.schedule.scheduler for step in found.steps][1] == "attention"


def test_padded_keys_belong_to_it() -> None:
    fusion = attention(heads=(2,))
    tf.chunk_cascade(find(fusion).reductions, 4, 32)
    (found,) = walks(fusion)
    part = Parts(fusion).extract(found, "walk")
    assert [tv.name for tv in part.inputs] == [tv.name for tv in fusion.inputs]
    assert find(part).is_padded


def test_walks_of_many_layers_are_found_in_little_more_than_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No walk looks at all that is computed before it."""
    looked, definition = [0], tf.Fusion.definition

    def counted(fusion: tf.Fusion, tv: tf.TensorView) -> object:
        looked[0] += 1
        return definition(fusion, tv)

    monkeypatch.setattr(tf.Fusion, "definition", counted)
    counts: list[int] = []
    for layers in (3, 12):
        with tf.Fusion("layers") as fusion:
            x, k, v = (tf.define_tensor([256, 64], dtype=tf.bfloat16) for _ in range(3))
            for _ in range(layers):
                x = tf.scaled_dot_product_attention(x, k, v)
            fusion.add_output(x)
        looked[0] = 0
        walks_apart(fusion, DEFAULT)
        counts.append(looked[0])
    assert counts[1] < 20 * counts[0]
