"""Integers as functions of their index: equal to the tensor's elements; None where these depend on data, wrap, or are divided by what may be 0."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.index_values import index_value
from taskfuse.ir.scalar import Expr, evaluate

N = 12


def value_of(math: Callable[[], tf.TensorView]) -> tuple[tf.Fusion, Expr | None]:
    with tf.Fusion("places") as fusion:
        tv = math()
        fusion.add_output(tv)
    i = iteration_symbol(0)
    return fusion, index_value(fusion, Read(tv, (i,)), fusion.facts().with_range(str(i), 0, tv.shape[0] - 1))


@pytest.mark.parametrize(
    "math",
    [
        lambda: tf.arange(N),
        lambda: tf.arange(N) * 3 - 5,
        lambda: -tf.arange(N),
        lambda: tf.remainder(tf.arange(N) - 5, N),
        lambda: tf.fmod(tf.arange(N) + 7, N),
        lambda: tf.floor_divide(tf.arange(N) - 5, 4),
        lambda: tf.minimum(tf.maximum(tf.arange(N) - 2, 0), 7),
        lambda: tf.cast(tf.arange(N), tf.int32) + 1,
        lambda: tf.flip(tf.arange(N), 0),
        lambda: tf.reshape(tf.reshape(tf.arange(N), [3, 4]).T, [N]),
    ],
)
def test_its_value_is_that_of_the_element(math: Callable[[], tf.TensorView]) -> None:
    fusion, found = value_of(math)
    assert found is not None
    (wanted,) = fusion.evaluate()
    assert np.array_equal([int(evaluate(found, {"i0": k})) for k in range(N)], wanted)


@pytest.mark.parametrize(
    "math",
    [
        lambda: tf.define_tensor([N], dtype=tf.int64, name="x") + 1,
        lambda: tf.cast(tf.arange(N) * 20, tf.int8),  # wraps
        lambda: tf.cast(tf.arange(N), tf.int32) * (1 << 30),
        lambda: tf.fmod(tf.arange(N) - 5, 4),  # of the sign of its first operand
        lambda: tf.floor_divide(tf.arange(N), tf.arange(N)),
        lambda: tf.cast(tf.cast(tf.arange(N), tf.float32) * 0.5, tf.int64),
        lambda: tf.cast(tf.arange("L"), tf.int32),
        lambda: tf.square(tf.arange(N)),
    ],
)
def test_what_is_no_function_of_the_index_alone(math: Callable[[], tf.TensorView]) -> None:
    assert value_of(math)[1] is None


def test_extents_fit_in_64_bits() -> None:
    assert str(value_of(lambda: tf.arange("L") + 1)[1]) == "i0 + 1"
