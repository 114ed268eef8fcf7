"""Signs, fractions, infinities; divisions and shifts of other kinds."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.dtypes import DTYPES, as_dtype
from tests.ops.reference import evaluated, message, numbers

SPECIAL = [0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, 2.0, 0.25, -7.75]


@pytest.mark.parametrize("name", DTYPES)
def test_of_one_number(name: str) -> None:
    dtype = as_dtype(name)
    with np.errstate(all="ignore"):
        x = np.array(SPECIAL if dtype.has_infinity else [0.0, -0.0, 1.5, -3.0]).astype(dtype.numpy) if dtype.is_float else numbers((9,), name)
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(evaluated(tf.signbit, x), np.signbit(wide))
    np.testing.assert_array_equal(evaluated(tf.isposinf, x), wide == np.inf)
    np.testing.assert_array_equal(evaluated(tf.isneginf, x), wide == -np.inf)
    assert evaluated(tf.isreal, x).all()
    if dtype.is_float:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(evaluated(tf.frac, x).astype(np.float64), wide - np.trunc(wide))


@pytest.mark.parametrize("name", ["int8", "int64", "uint16", "float32", "bfloat16"])
def test_trunc_divide(name: str) -> None:
    a, b = numbers((50,), name, low=-90, high=90), numbers((50,), name, 1, low=1, high=9)
    b = b if as_dtype(name).min_value == 0 else np.where(np.arange(50) % 2 == 0, b, -b).astype(b.dtype)
    expected = np.trunc(a.astype(np.float64) / b.astype(np.float64))
    np.testing.assert_array_equal(evaluated(tf.trunc_divide, a, b).astype(np.float64), expected)
    if not as_dtype(name).is_float:
        assert evaluated(lambda x: tf.trunc_divide(x, 0), a).tolist() == [0] * 50


@pytest.mark.parametrize(("name", "bits"), [("int8", 8), ("int32", 32), ("int64", 64), ("uint16", 16)])
def test_logical_right_shift(name: str, bits: int) -> None:
    a = numbers((9,), name)
    for by in (0, 1, bits - 1, bits):
        expected = [int(v) % 2**bits >> by for v in a]
        assert [int(v) % 2**bits for v in evaluated(lambda x, by=by: tf.logical_right_shift(x, by), a)] == expected
    assert evaluated(lambda x: tf.logical_right_shift(x, x), np.array([3], name)).tolist() == [0]


@pytest.mark.parametrize("name", ["int8", "uint16", "int64"])
def test_lcm(name: str) -> None:
    a, b = numbers((60,), name, low=-50, high=50), numbers((60,), name, 1, low=-9, high=9)
    np.testing.assert_array_equal(evaluated(tf.lcm, a, b), np.lcm(a, b))


def test_isclose() -> None:
    a = np.array([1, 1, 1, np.inf, np.inf, np.nan, 0, 1e-9], np.float32)
    b = np.array([1, 1 + 5e-6, 1.1, np.inf, -np.inf, np.nan, 1e-9, 0], np.float32)
    for equal_nan in (False, True):
        found = evaluated(lambda x, y, equal_nan=equal_nan: tf.isclose(x, y, equal_nan=equal_nan), a, b)
        np.testing.assert_array_equal(found, np.isclose(a, b, equal_nan=equal_nan))


def test_errors() -> None:
    with tf.Fusion("f"):
        n = tf.define_tensor([4], "int32", name="n")
        assert message(lambda: tf.frac(n)) == "frac: n (int32) has no fractional part\nhelp: cast to a float first"
        assert message(lambda: tf.logical_right_shift(tf.define_tensor([4], name="x"), 1)).startswith("right_shift: needs integer operands")
