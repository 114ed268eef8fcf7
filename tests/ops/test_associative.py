"""Scans by any associative function, against NumPy loops."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import DTypeError, ShapeError
from tests.calls import Of

Pair = tuple[tf.TensorView, ...]


def given(shape: tuple[int, ...] = (3, 13)) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.standard_normal(shape).astype(np.float32), rng.uniform(0.2, 1.1, shape).astype(np.float32)


def made(build: Of[tf.TensorView, tf.TensorView | tuple[tf.TensorView, ...]], *args: np.ndarray) -> tuple[np.ndarray, ...]:
    with tf.Fusion() as fusion:
        found: Any = build(*(tf.define_tensor(a.shape) for a in args))
        fusion.add_output(*(cast("tuple[tf.TensorView, ...]", found) if isinstance(found, tuple) else (found,)))
    return fusion.evaluate(*args)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_all_states_of_a_recurrence(axis: int) -> None:
    x, decay = given()
    (found,) = made(lambda x, d: tf.linear_recurrence(x, d, axis=axis), x, decay)
    state = np.zeros(x.shape[1 - (axis % 2)])
    for t in range(x.shape[axis]):
        state = state * decay.take(t, axis) + x.take(t, axis)
        np.testing.assert_allclose(found.take(t, axis), state, rtol=1e-5, atol=1e-6)


def test_sums_of_segments() -> None:
    x, chance = given()
    (found,) = made(lambda x, c: tf.segmented_cumsum(x, c > 0.9, axis=1), x, chance)
    total = np.zeros(3)
    for t in range(13):
        total = np.where(chance[:, t] > 0.9, x[:, t], total + x[:, t])
        np.testing.assert_allclose(found[:, t], total, rtol=1e-5, atol=1e-6)


def test_the_order_of_ranges_is_kept() -> None:
    """The first maximum and what lies beside it; products of 2 x 2 matrices, which do not commute."""
    x, other = given()

    def later(a: Pair, b: Pair) -> Pair:
        return tf.maximum(a[0], b[0]), tf.where(b[0] > a[0], b[1], a[1])

    most, beside = made(lambda x, y: tf.associative_scan(later, x, y), x, other)
    for t in range(1, 14):
        at = x[:, :t].argmax(1)
        np.testing.assert_array_equal(most[:, t - 1], x[np.arange(3), at])
        np.testing.assert_array_equal(beside[:, t - 1], other[np.arange(3), at])

    def product(a: Pair, b: Pair) -> Pair:
        return tuple(a[2 * i] * b[j] + a[2 * i + 1] * b[2 + j] for i in range(2) for j in range(2))

    matrices = np.random.default_rng(2).standard_normal((4, 11)).astype(np.float32)
    found = made(partial(tf.associative_scan, product), *matrices)
    whole = np.eye(2)
    for t in range(11):
        whole = whole @ matrices[:, t].reshape(2, 2)
        np.testing.assert_allclose([f[t] for f in found], whole.flatten(), rtol=1e-4, atol=1e-5)


def test_an_axis_of_one_and_operands_that_broadcast() -> None:
    x = given((3, 1))[0]
    np.testing.assert_array_equal(made(lambda x: tf.associative_scan(lambda a, b: a + b, x), x)[0], x)
    a, b = made(
        lambda x, y: tf.associative_scan(lambda a, b: (a[0] + b[0], a[1] * b[1]), x, y, axis=0),
        *given((4, 3)),
    )
    assert a.shape == b.shape == (4, 3)


def test_a_short_recurrence_is_one_proved_kernel() -> None:
    x, decay = given((2, 4))
    with tf.Fusion() as fusion:
        fusion.add_output(tf.linear_recurrence(tf.define_tensor((2, 4)), tf.define_tensor((2, 4))))
    (wanted,) = fusion.evaluate(x, decay)
    fusion.inline_most()
    kernel = tf.lower(fusion)
    kernel.verify().require()
    np.testing.assert_allclose(kernel.simulate(x, decay)[0], wanted, rtol=1e-6)


def test_errors() -> None:
    with tf.Fusion():
        x = tf.define_tensor((3, 4))
        with pytest.raises(ShapeError, match="no tensors"):
            tf.associative_scan(lambda a, b: a)
        with pytest.raises(ShapeError, match="returns 2 tensors for two sets of 1"):
            tf.associative_scan(lambda a, b: (a, b), x)
        with pytest.raises(DTypeError, match="returns bool for float32"):
            tf.associative_scan(lambda a, b: a > b, x)
        with pytest.raises(ShapeError, match=r"the number of steps for .* is not constant"):
            tf.linear_recurrence(tf.define_tensor(("N",)), tf.define_tensor(("N",)))
        with pytest.raises(DTypeError, match="give a bool tensor"):
            tf.segmented_cumsum(x, x)
