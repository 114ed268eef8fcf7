"""Casts and clamps."""

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import DTYPES, as_dtype
from taskfuse.ir.fusion import Fusion
from tests.ops.reference import evaluated, message, numbers


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_cast(source: str, target: str) -> None:
    x = numbers((6,), source)
    found = evaluated(lambda a: tf.cast(a, target), x)
    expected = x != 0 if target == "bool" else x.astype(np.float64).astype(np.int64).astype(as_dtype(target).numpy)
    if as_dtype(target).is_float:
        expected = x.astype(as_dtype(target).numpy)
    elif as_dtype(target).min_value == 0 and target != "bool":
        expected = np.maximum(x.astype(np.float64), 0).astype(as_dtype(target).numpy) if as_dtype(source).is_float else expected
    assert found.dtype == as_dtype(target).numpy
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (None, 2), (-1, None), (None, None)])
def test_clamp(low: int | None, high: int | None) -> None:
    x = np.array([-3, -1, 0, 2, 5], np.int32)
    found = evaluated(lambda a: tf.clamp(a, low, high), x)
    np.testing.assert_array_equal(found, np.clip(x, -99 if low is None else low, high))


def test_a_cast_to_the_same_dtype_is_a_tensor_of_its_own() -> None:
    with Fusion("f"):
        x = tf.define_tensor([4])
        assert tf.cast(x, "float32") is not x


@pytest.mark.parametrize("decimals", [-2, -1, 1, 3])
def test_round_to_decimals(decimals: int) -> None:
    x = numbers((200,), "float64", low=-400, high=400)
    np.testing.assert_array_equal(evaluated(lambda a: tf.round(a, decimals), x), np.round(x, decimals))
    assert evaluated(lambda a: tf.round(a, 1), np.array([0.25, 2.349], np.float16)).astype(np.float32).tolist() == pytest.approx([0.2, 2.3], rel=1e-3)
    with Fusion("f"):
        n = tf.define_tensor([4], "int32", name="n")
        assert message(lambda: tf.round(n, 1)) == "round: 1 decimals of n (int32)\nhelp: cast to a float first"
