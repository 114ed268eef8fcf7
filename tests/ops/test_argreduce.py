"""Positions of extremes against NumPy."""

from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.ir.fusion import Fusion
from tests.ops.reference import Array, evaluated, message, numbers

DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e5m2", "int8", "int64", "uint8", "uint64", "bool"]


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_like_numpy(op: str, dtype: str) -> None:
    x = numbers((3, 4, 5), dtype, low=0, high=2)
    for axis in (0, 1, -1, None):
        for keepdims in (False, True):
            expected = getattr(np, op)(x, axis, keepdims=keepdims)
            found = evaluated(lambda a, axis=axis, keepdims=keepdims: getattr(tf, op)(a, axis, keepdims=keepdims), x)
            assert found.dtype == np.int64
            assert found.shape == expected.shape
            assert (found == expected).all()


SPECIAL: list[Array] = [
    np.array([1.0, np.nan, 3.0, np.nan]),
    np.array([-np.inf, -np.inf]),
    np.array([np.inf, np.inf, np.nan]),
    np.array([0.0, -0.0]),
    np.array([-0.0, 0.0]),
    np.array([5.0]),
    np.array([-(2**63), 2**63 - 1, 2**63 - 1], np.int64),
]


@pytest.mark.parametrize("x", SPECIAL, ids=str)
def test_special_values(x: Array) -> None:
    assert evaluated(lambda a: tf.argmax(a, 0), x) == np.argmax(x)
    assert evaluated(lambda a: tf.argmin(a), x, shapes=[["N"]]) == np.argmin(x)


def test_of_no_dimensions() -> None:
    assert evaluated(lambda a: tf.argmax(a), np.array(3, np.float32)) == 0


@pytest.mark.parametrize("shape", [[0, 3], [tf.dim("Z", min=0), 3]])
def test_nothing_to_choose_from(shape: list[Any]) -> None:
    with Fusion("f"):
        x = tf.define_tensor(shape)
        assert message(lambda: tf.argmax(x, 0)) == (f"argmax: tv0 [{x.shape[0]}, 3] may have no elements\nhelp: declare the extent with tf.dim(..., min=1)")
        assert tf.argmin(x, 1).shape == (x.shape[0],)
        assert message(lambda: tf.argmin(x, 5)) == f"argmin: axis 5 is out of range for tv0 [{x.shape[0]}, 3]\nhelp: use an axis in [-2, 1]"
