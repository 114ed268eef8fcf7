"""A sum of which one term is chosen stands for what is found at an integer."""

import pytest

import taskfuse as tf
from taskfuse.check.rewrites.verify import rewritings
from taskfuse.kir import Kernel
from tests.check.rewrites.rewritten import changed, is_proved


def summed(index: tf.DType = tf.int64, columns: int | str = 7) -> Kernel:
    """A gather as a sum."""
    with tf.Fusion("picked") as fusion:
        x = tf.define_tensor([8, columns], name="x")
        at = tf.define_tensor([8], dtype=index, name="at")
        found = tf.take_along_axis(x, tf.expand_dims(at, 1), 1)
        fusion.add_output(tf.neg(tf.squeeze(found, 1)))
    found.gather_as_sum()
    fusion.inline_most()
    return tf.lower(fusion)


@pytest.mark.parametrize(("index", "columns"), [(tf.int64, 7), (tf.int64, "V"), (tf.int32, 7), (tf.uint8, 7), (tf.int8, 300)])
def test_the_chosen_term_is_what_was_found(index: tf.DType, columns: int | str) -> None:
    assert is_proved(rewritings(summed(index, columns)))


EDITS = {
    "another end": ("lt.int64(tv8[i0], 7)", "lt.int64(tv8[i0], 6)"),
    "another start": ("ge.int64(tv8[i0], 0)", "ge.int64(tv8[i0], 1)"),
    "counted from elsewhere": ("add(at[i0], 7", "add(at[i0], 6"),
    "from the other end": ("lt.int64(at[i0], 0)", "ge.int64(at[i0], 0)"),
    "an element for none": ("tv8[i0], -1", "tv8[i0], 1"),
    "another element": ("x[i0, i1]", "x[i0, 6 - i1]"),
    "another term": ("index(i1)", "index(6 - i1)"),
    "not 0": ("x[i0, i1], 0.0", "x[i0, i1], 1.0"),
    "a term more": ("from 0.0", "from 1.0"),
    "in a type that wraps": ("tv13: int32[8]", "tv13: int8[8]"),
    "others than the chosen": ("eq.int64(index", "ne.int64(index"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_other_terms_are_not(edit: str) -> None:
    assert not is_proved(rewritings(changed(summed(columns=300 if "wraps" in edit else 7), *EDITS[edit])))
