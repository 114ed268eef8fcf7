"""Bounds of functions of elements and the maximum of their row."""

import math
from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import TRUE
from taskfuse.schedule.term_bounds import ANY, Bounds, bounds_of

Term = Callable[[tf.TensorView, tf.TensorView], tf.TensorView]
CASES: list[tuple[Term, Bounds]] = [
    (lambda x, top: tf.exp(x - top), (0.0, 1.0)),
    (lambda x, top: 3.0 * tf.exp2(x - (top - 2.0)), (0.0, 12.0)),
    (lambda x, top: tf.exp2(x - (top - 2.0)) * 3.0, (0.0, 12.0)),
    (lambda x, top: tf.maximum(tf.minimum(x, 4.0), -2.0), (-2.0, 4.0)),
    (lambda x, top: tf.exp(top - x), (0.0, math.inf)),
    (lambda x, top: x - 2.0 * top, ANY),
    (lambda x, top: tf.sin(x - top), ANY),
]


@pytest.mark.parametrize(
    ("term", "found"), CASES, ids=["exp", "a factor, exp2 above", "exp2 above, a factor", "clamp", "of others", "a multiple", "another function"]
)
def test_bounds(term: Term, found: Bounds) -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor([3, 5])
        top = tf.max(x, axis=1)
        made = term(x, tf.expand_dims(top, 1))
    assert bounds_of(fusion, Read(made, iteration_point(2), TRUE), top) == found
