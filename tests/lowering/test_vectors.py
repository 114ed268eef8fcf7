"""Vectors: what divides, what is contiguous."""

from collections.abc import Callable

import taskfuse as tf
from taskfuse import ParallelType as P
from tests.lowering.refusing import lowering
from tests.lowering.running import agrees, numbers


def vector(columns: int | str, shape: Callable[[tf.TensorView], tf.TensorView] = tf.copy, multiple: int | None = None) -> tf.Fusion:
    """A copy by vectors of 4 of what ``shape`` makes of x [8, columns]."""
    with tf.Fusion("vector") as fusion:
        if multiple is not None:
            x = tf.define_tensor([8, tf.dim("N", multiple_of=multiple)], name="x")
        else:
            x = tf.define_tensor([8, columns], name="x")
        y = shape(x)
        fusion.add_output(y)
    y.split(1, 4)
    y.axis(2).parallelize(P.Vectorize)
    return fusion


def test_a_vector_axis_divides() -> None:
    agrees(vector(8), numbers(8, 8))
    agrees(vector("N", multiple=4), numbers(8, 12))
    text = "cannot lower tv1: its vector axis of 4 does not divide what it splits\nhelp: declare tf.dim(..., multiple_of=...) or use another width"
    assert lowering(vector(10)) == text
    assert lowering(vector("N")) == text


def test_a_vector_axis_is_contiguous_in_both_tensors() -> None:
    assert lowering(vector(8, lambda x: tf.copy(x.T))) == (
        "cannot lower tv2: its vector axis is not the last axis of x\nhelp: make the vector axis the innermost axis of both tensors"
    )
    assert lowering(vector(8, lambda x: tf.copy(tf.flip(x, 1)))) == (
        "cannot lower tv2: its vector axis is not contiguous in x\nhelp: make the vector axis the innermost axis of both tensors"
    )
