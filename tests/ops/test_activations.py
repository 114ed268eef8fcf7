"""Activations, masks and triangles against NumPy; logsumexp, var_mean, products by other names."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.dtypes import DTYPES
from tests.ops.reference import Array, evaluated, message, numbers

FLOATS = [name for name, d in DTYPES.items() if d.is_float]
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2, "float8_e4m3": 0.13, "float8_e5m2": 0.26}


def close(found: Array, expected: Any, dtype: str) -> None:
    assert found.dtype == DTYPES[dtype].numpy
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] / 10)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 7), (0, 3), (1, 1)])
def test_activations(dtype: str, shape: tuple[int, int]) -> None:
    x = numbers(shape, dtype)
    wide = x.astype(np.float64)
    close(evaluated(tf.softplus, x), np.log1p(np.exp(wide)), dtype)
    close(evaluated(lambda t: tf.softplus(t, beta=2.0), x), np.log1p(np.exp(2 * wide)) / 2, dtype)
    close(evaluated(tf.leaky_relu, x), np.where(wide > 0, wide, 0.01 * wide), dtype)
    close(evaluated(lambda t: tf.leaky_relu(t, 0.5), x), np.where(wide > 0, wide, 0.5 * wide), dtype)
    close(evaluated(lambda t: tf.elu(t, 0.5), x), np.where(wide > 0, wide, 0.5 * np.expm1(wide)), dtype)
    close(evaluated(lambda t: tf.logsumexp(t, -1), x), np.logaddexp.reduce(wide, -1), dtype)
    if wide.size or dtype != "float8_e4m3":  # which has no infinity
        close(evaluated(lambda t: tf.logsumexp(t, dim=(0, 1), keepdim=True), x), np.logaddexp.reduce(wide, (0, 1), keepdims=True), dtype)


def test_activations_of_great_numbers() -> None:
    x = np.array([-1e4, -100, 0, 100, 1e4, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        np.testing.assert_allclose(evaluated(tf.softplus, x), np.logaddexp(x, 0), rtol=1e-6)
        np.testing.assert_allclose(evaluated(tf.elu, x), np.where(x > 0, x, np.expm1(np.minimum(x, 0))), rtol=1e-6)


def test_logsumexp_of_infinities() -> None:
    low, high = -np.inf, np.inf
    x = np.array([[low, low], [low, 1], [high, 1], [1e4, 1e4]], np.float32)
    np.testing.assert_allclose(evaluated(lambda t: tf.logsumexp(t, 1), x), [low, 1, high, 1e4 + np.log(2)], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 6), (3, 3), (1, 5), (0, 2), (2, 3, 4)])
def test_triangles(dtype: str, shape: tuple[int, ...]) -> None:
    x = numbers(shape, dtype)
    for k in (0, 1, -2, 9):
        for name in ("tril", "triu"):
            found = evaluated(lambda t, name=name, k=k: getattr(tf, name)(t, k), x)
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, getattr(np, name)(x, k))


def test_masks() -> None:
    x, mask = numbers((4, 6), "float32"), numbers((4, 1), "bool", 1)
    np.testing.assert_array_equal(evaluated(lambda t, m: tf.masked_fill(t, m, -np.inf), x, mask), np.where(mask, np.float32(-np.inf), x))
    i = numbers((4, 6), "int8")
    found = evaluated(lambda t, m: tf.masked_fill(t, m, 100), i, mask)
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, np.where(mask, 100, i))
    np.testing.assert_array_equal(evaluated(lambda t: tf.where(t == 0, 1, t), i), np.where(i == 0, 1, i))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32"])
def test_nan_to_num(dtype: str) -> None:
    x = numbers((8,), dtype)
    if dtype != "int32":
        x[:3] = np.array([np.nan, np.inf, -np.inf]).astype(x.dtype)
    most = DTYPES[dtype].max_value
    expected = np.nan_to_num(x.astype(np.float64), nan=2.0, posinf=float(most), neginf=-float(most)) if dtype != "int32" else x
    np.testing.assert_array_equal(evaluated(lambda t: tf.nan_to_num(t, 2.0), x).astype(np.float64), expected)
    if dtype != "int32":
        np.testing.assert_array_equal(evaluated(lambda t: tf.nan_to_num(t, 1, 3, 4), x)[:3].astype(np.float64), [1, 3, 4])


def test_var_mean() -> None:
    x = numbers((3, 5, 4), "float32")
    for axis, keepdims, correction in ((None, False, 0), (1, True, 1), ((0, -1), False, 2)):
        with tf.Fusion("f") as fusion:
            fusion.add_output(*tf.var_mean(tf.define_tensor(x.shape), axis, keepdims, correction))
        spread, middle = fusion.evaluate(x)
        np.testing.assert_allclose(spread, np.var(x, axis, ddof=correction, keepdims=keepdims), rtol=1e-5)
        np.testing.assert_allclose(middle, np.mean(x, axis, keepdims=keepdims), rtol=1e-5, atol=1e-6)


def test_products_by_other_names() -> None:
    v, w, m, n = numbers((4,), "float32"), numbers((4,), "float32", 1), numbers((3, 4), "float32"), numbers((4, 2), "float32")
    np.testing.assert_allclose(evaluated(tf.dot, v, w), np.dot(v, w), rtol=1e-5)
    np.testing.assert_allclose(evaluated(tf.dot, m, n), np.dot(m, n), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(evaluated(tf.dot, m, v), np.dot(m, v), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(evaluated(tf.outer, v, m), np.outer(v, m))
    a, b = numbers((2, 3, 4), "float32"), numbers((2, 4, 5), "float32")
    np.testing.assert_allclose(evaluated(tf.bmm, a, b), a @ b, rtol=1e-5)
    with tf.Fusion("f"):
        x = tf.define_tensor([2, 3, 4], name="x")
        assert message(lambda: tf.dot(x, x)).startswith("dot: x [2, 3, 4] and x [2, 3, 4] are not both matrices or vectors")
        assert message(lambda: tf.bmm(x[0], x)).startswith("bmm: tv1 [3, 4] and x [2, 3, 4] are not batches of matrices of one length")


def test_what_is_refused_says_why() -> None:
    with tf.Fusion("f"):
        x, i = tf.define_tensor([3], name="x"), tf.define_tensor([3], dtype=tf.int8, name="i")
        assert message(lambda: tf.tril(x)).startswith("tril: x [3] has fewer than two dimensions")
        real: Any = 1.5
        assert message(lambda: tf.triu(tf.expand_dims(x, 0), real)).startswith("triu: 1.5 is not a diagonal")
        assert message(lambda: tf.masked_fill(i, x, 1000)).startswith("masked_fill: 1000 is not a value of int8")
        assert message(lambda: tf.softplus(x, 0)).startswith("softplus: beta is 0")
        assert message(lambda: tf.sum(x, axis=0, dim=0)).startswith("sum: axis= and dim= are both given")
        assert message(lambda: x.sum(0, dim=0)).startswith("sum: axis= and dim= are both given")
