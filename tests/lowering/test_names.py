"""Names that a kernel cannot have are spelled in others."""

import numpy as np
import pytest

import taskfuse as tf
from tests.lowering.running import agrees, numbers


@pytest.mark.parametrize(
    ("name", "spelled"),
    [("x", "x"), ("a b", "a_b"), ("1x", "_1x"), ("FOR", "FOR_"), ("min", "min_"), ("i0", "i0_"), ("v0", "v0_"), ("N", "N_"), ("table", "table_")],
)
def test_names_that_a_kernel_cannot_have_are_spelled_in_others(name: str, spelled: str) -> None:
    with tf.Fusion("two words") as fusion:
        tf.define_tensor(["N"], name="a_b_")
        fusion.add_output(tf.neg(tf.define_tensor(["N"], name=name)))
    agrees(fusion, numbers(5), numbers(5))
    kernel = tf.lower(fusion)
    assert (kernel.name, kernel.params[1].name) == ("two_words", spelled)


def test_dimensions_of_any_name() -> None:
    with tf.Fusion("named") as fusion:
        fusion.add_output(tf.neg(tf.define_tensor(["i0n", tf.dim("min", multiple_of=2), "x"], name="x")))
    agrees(fusion, numbers(3, 4, 2))
    assert [e.name for e in tf.lower(fusion).extents] == ["i0n_", "min_", "x"]


def test_an_index_may_be_named_like_a_value() -> None:
    """Definitions of gathers call what they find ``v0``."""
    with tf.Fusion("found") as fusion:
        x, where = tf.define_tensor([5], name="x"), tf.define_tensor([7], tf.int64, name="v0")
        fusion.add_output(tf.take(x, where, 0))
    agrees(fusion, numbers(5), np.array([4, 0, 3, 3, 1, 2, -1]))
