"""Composed functions against NumPy."""

from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.ir.fusion import Fusion
from tests.ops.reference import Array, evaluated, message, numbers


def softmax(x: Array, axis: Any = -1) -> Array:
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def test_softmin() -> None:
    x = numbers((3, 4), "float32")
    np.testing.assert_allclose(evaluated(tf.softmin, x), softmax(-x), rtol=1e-6)


def normalized(x: Array, axis: Any = -1) -> Array:
    wide = x.astype(np.float64)
    return (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
def test_softmax(dtype: str) -> None:
    x = numbers((3, 4, 5), dtype)
    for axis in (-1, 0, (0, 2)):
        found = evaluated(lambda a, axis=axis: tf.softmax(a, axis), x, shapes=[["A", "B", "C"]])
        assert found.dtype == (np.float64 if dtype == "int32" else x.dtype)
        np.testing.assert_allclose(found.astype(np.float64), softmax(x, axis), rtol=8e-3 if dtype == "bfloat16" else 1e-5)
        found = evaluated(lambda a, axis=axis: tf.log_softmax(a, axis), x)
        np.testing.assert_allclose(found.astype(np.float64), np.log(softmax(x, axis)), rtol=8e-3 if dtype == "bfloat16" else 1e-5, atol=1e-6)


def test_softmax_of_large_values() -> None:
    x = np.array([[1e4, 1e4 - 1, -1e4]], np.float32)
    np.testing.assert_allclose(evaluated(tf.softmax, x), softmax(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_norms(dtype: str) -> None:
    x, w, b = numbers((3, 4, 8), dtype), numbers((8,), "float32", 1), numbers((4, 1), dtype, 2)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    found = evaluated(tf.layer_norm, x, w, b)
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype(np.float64), normalized(x) * w + b, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(evaluated(lambda a: tf.layer_norm(a, axis=(1, 2)), x), normalized(x, (1, 2)), rtol=tolerance, atol=tolerance)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(evaluated(tf.rms_norm, x, w).astype(np.float64), expected * w, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(evaluated(tf.rms_norm, x), expected, rtol=tolerance, atol=tolerance)


def test_parts_belong_to_the_call() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["B", "S"], "bfloat16")
        y = tf.softmax(x)
        assert all(root_owner(fusion, tv) is y for tv in fusion.tensors()[1:-1])


def root_owner(fusion: Fusion, tv: Any) -> Any:
    while (owner := fusion.owner(tv)) is not None:
        tv = owner
    return tv


def test_errors() -> None:
    with Fusion("f") as fusion:
        x, w = tf.define_tensor(["B", 4]), tf.define_tensor([3])
        count = len(fusion.tensors())
        assert message(lambda: tf.softmax(x, 2)) == "softmax: axis 2 is out of range for tv0 [B, 4]\nhelp: use an axis in [-2, 1]"
        assert message(lambda: tf.log_softmax(x, 5)).startswith("log_softmax: axis 5 is out of range")
        assert message(lambda: tf.layer_norm(x, w)) == "layer_norm: tv1 [3] does not broadcast to tv0 [B, 4]"
        assert message(lambda: tf.layer_norm(w, None, x)) == "layer_norm: tv0 [B, 4] does not broadcast to tv1 [3]"
        assert message(lambda: tf.rms_norm(x, w)) == "rms_norm: tv1 [3] does not broadcast to tv0 [B, 4]"
        assert len(fusion.tensors()) == count
