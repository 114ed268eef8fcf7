"""Elementwise functions against NumPy."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.dims import Dim
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.fusion import Fusion
from tests.ops.reference import Array, evaluated, message, numbers

SHAPES = [(), (1,), (0, 3), (2, 5)]
ERF = np.vectorize(math.erf, otypes=[np.float64])
ERFC = np.vectorize(math.erfc, otypes=[np.float64])


def of_torch(name: str) -> Callable[..., Any]:
    """A function of torch, computed in float64."""

    def function(*a: Any) -> Any:
        return getattr(torch.special, name)(*(torch.from_numpy(np.asarray(x, np.float64)) for x in a)).numpy()

    return function


def in_double(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The reference of a function that NumPy lacks, computed in float64."""
    return lambda a: function(a.astype(np.float64))


UNARY: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    "neg": (np.negative, -4, 4),
    "abs": (np.abs, -4, 4),
    "sign": (np.sign, -4, 4),
    "floor": (np.floor, -4, 4),
    "ceil": (np.ceil, -4, 4),
    "round": (np.round, -4, 4),
    "trunc": (np.trunc, -4, 4),
    "square": (np.square, -4, 4),
    "sqrt": (np.sqrt, 0, 4),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1, 4),
    "reciprocal": (lambda x: 1 / x, 1, 4),
    "exp": (np.exp, -4, 4),
    "exp2": (np.exp2, -4, 4),
    "expm1": (np.expm1, -4, 4),
    "log": (np.log, 1, 4),
    "log2": (np.log2, 1, 4),
    "log10": (np.log10, 1, 4),
    "log1p": (np.log1p, 0, 4),
    "sin": (np.sin, -4, 4),
    "cos": (np.cos, -4, 4),
    "tan": (np.tan, -1, 1),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -4, 4),
    "sinh": (np.sinh, -4, 4),
    "cosh": (np.cosh, -4, 4),
    "tanh": (np.tanh, -4, 4),
    "asinh": (np.arcsinh, -4, 4),
    "acosh": (np.arccosh, 1, 4),
    "atanh": (np.arctanh, -0.9, 0.9),
    "erf": (in_double(ERF), -4, 4),
    "erfc": (in_double(ERFC), -4, 4),
    "sigmoid": (in_double(lambda x: 1 / (1 + np.exp(-x))), -4, 4),
    "relu": (lambda x: np.maximum(x, 0), -4, 4),
    "gelu": (in_double(lambda x: x * 0.5 * (1 + ERF(x / math.sqrt(2)))), -4, 4),
    "gelu_tanh": (in_double(lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))), -4, 4),
    "silu": (in_double(lambda x: x / (1 + np.exp(-x))), -4, 4),
    "isnan": (np.isnan, -4, 4),
    "isinf": (np.isinf, -4, 4),
    "isfinite": (np.isfinite, -4, 4),
    "logical_not": (np.logical_not, 0, 1),
    "erfinv": (of_torch("erfinv"), -1, 1),
    "erfcinv": (in_double(lambda p: torch.erfinv(1 - torch.from_numpy(p)).numpy()), 0, 2),
    "lgamma": (of_torch("gammaln"), -4, 4),
    "digamma": (of_torch("digamma"), 0, 4),
    "copy": (lambda x: x, -4, 4),
}
BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "fmod": np.fmod,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmax": np.fmax,
    "fmin": np.fmin,
    "atan2": np.arctan2,
    "hypot": np.hypot,
    "copysign": np.copysign,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "logaddexp": np.logaddexp,
}
BITS: dict[str, Callable[..., Any]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
TOLERANCE = {"float64": 1e-13, "float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3, "float8_e4m3": 0.13, "float8_e5m2": 0.26}


def assert_close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    tolerance = TOLERANCE.get(as_dtype(found.dtype).name, 0)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance)


def test_every_row_is_tested_and_public() -> None:
    others = {
        "cast",
        "bitwise_not",
        "pow",
        "left_shift",
        "right_shift",
        "where",
        "clamp",
        "lerp",
        "fma",
        "float_bits",
        "float_of_bits",
        "philox",
        "gcd",
        "zeta",
    }
    assert {*UNARY, *BINARY, *BITS, *others} == set(ELEMENTWISE)
    for name in ELEMENTWISE:
        assert getattr(tf, name).__name__ == name
        assert getattr(tf, name).__doc__


@pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    reference, low, high = UNARY[name]
    for shape in SHAPES:
        x = numbers(shape, dtype, low=low, high=high)
        found = evaluated(getattr(tf, name), x)
        with np.errstate(all="ignore"):
            expected = np.asarray(reference(x))
        if dtype == "int32" and name in ("round", "floor", "ceil", "trunc", "relu", "abs"):
            assert found.dtype == np.int32
        assert_close(found, expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("name", UNARY)
def test_unary_in_small_floats_rounds_the_float32_result(name: str, dtype: str) -> None:
    reference, low, high = UNARY[name]
    x = numbers((7,), dtype, low=low, high=high)
    expected = np.asarray(reference(x.astype(np.float64)))
    found = evaluated(getattr(tf, name), x)
    if found.dtype != np.bool_:
        assert found.dtype == x.dtype
        expected = expected.astype(x.dtype)
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float64", "float32"), ("int32", "int32"), ("uint8", "int16"), ("bool", "int64")])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtypes: tuple[str, str]) -> None:
    for left, right in [((), ()), ((2, 3), (3,)), ((2, 1), (1, 3)), ((0, 3), (3,)), ((4, 1), ())]:
        a, b = numbers(left, dtypes[0]), numbers(right, dtypes[1], seed=1)
        with np.errstate(all="ignore"):
            expected = np.asarray(BINARY[name](a, b))
        found = evaluated(getattr(tf, name), a, b, shapes=[symbolic_of(left), symbolic_of(right)])
        assert found.dtype == expected.dtype
        assert_close(found, expected)


def symbolic_of(shape: tuple[int, ...]) -> tuple[int | Dim, ...]:
    """Dimensions aligned at the last, so that those that match share a symbol."""
    return tuple(1 if n == 1 else tf.dim(f"N{len(shape) - d}", min=0) for d, n in enumerate(shape))


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64"])
@pytest.mark.parametrize("name", BITS)
def test_bits(name: str, dtype: str) -> None:
    a, b = numbers((9,), dtype), numbers((9,), dtype, seed=1)
    found = evaluated(getattr(tf, name), a, b)
    assert found.dtype == a.dtype
    assert (found == BITS[name](a, b)).all()
    assert (evaluated(tf.bitwise_not, a) == np.bitwise_not(a)).all()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_shifts(dtype: str) -> None:
    a, b = numbers((9,), dtype), numbers((9,), dtype, low=0)
    assert (evaluated(tf.left_shift, a, b) == np.left_shift(a, b)).all()
    assert (evaluated(tf.right_shift, a, b) == np.right_shift(a, b)).all()
    assert (evaluated(lambda x: x >> 1, a) == a >> 1).all()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_gcd(dtype: str) -> None:
    a, b = numbers((60,), dtype, low=-90, high=90), numbers((60,), dtype, seed=1, low=-30, high=30)
    np.testing.assert_array_equal(evaluated(tf.gcd, a, b), np.gcd(a, b))
    assert evaluated(lambda x: tf.gcd(x, 0), np.array([0, 6], dtype)).tolist() == [0, 6]


def test_zeta() -> None:
    s, q = numbers((60,), "float64", low=1.5, high=9), numbers((60,), "float64", 1, 0.1, 20)
    np.testing.assert_allclose(evaluated(tf.zeta, s, q), of_torch("zeta")(s, q), rtol=1e-13)
    whole, below = np.array([2, 3, 2, 3, 1, 0.5, 2, 2.5]), np.array([-0.5, -0.5, -7.25, -7.25, 2, 2, -3, -0.5])
    np.testing.assert_allclose(evaluated(tf.zeta, whole, below), of_torch("zeta")(whole, below), rtol=1e-13)


def test_pow() -> None:
    a, b = numbers((9,), "float32", low=0.5), numbers((9,), "float32", seed=1)
    np.testing.assert_allclose(evaluated(tf.pow, a, b), np.power(a, b), rtol=1e-6)
    whole = numbers((9,), "int32")
    assert (evaluated(lambda x: x**3, whole) == whole**3).all()


def test_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    y = np.array([1, np.nan, 2, 3], np.float32)
    np.testing.assert_array_equal(evaluated(tf.maximum, x, y), np.maximum(x, y))
    np.testing.assert_array_equal(evaluated(tf.fmax, x, y), np.fmax(x, y))
    np.testing.assert_array_equal(evaluated(tf.fmin, x, y), np.fmin(x, y))
    np.testing.assert_array_equal(evaluated(tf.relu, x), [np.nan, np.inf, 0, 0])
    np.testing.assert_array_equal(evaluated(tf.sigmoid, x), [np.nan, 1, 0, 0.5])
    np.testing.assert_array_equal(evaluated(tf.isnan, x), [True, False, False, False])
    assert evaluated(tf.floor_divide, np.array([5], np.int32), np.array([0], np.int32)).tolist() == [0]


def test_three_operands() -> None:
    x, low, high = numbers((3, 4), "float32"), numbers((4,), "float32", 1, -2, -1), numbers((3, 1), "float32", 2, 1, 2)
    np.testing.assert_array_equal(evaluated(tf.clamp, x, low, high), np.clip(x, low, high))
    np.testing.assert_array_equal(evaluated(lambda a: tf.clamp(a, min=0.5), x), np.maximum(x, np.float32(0.5)))
    np.testing.assert_array_equal(evaluated(lambda a: tf.clamp(a, max=0.5), x), np.minimum(x, np.float32(0.5)))
    np.testing.assert_array_equal(evaluated(lambda a: tf.clamp(a), x), x)
    np.testing.assert_allclose(evaluated(tf.lerp, x, low, high), x + high * (low - x), rtol=1e-6)
    np.testing.assert_allclose(evaluated(tf.fma, x, low, high), x * low + high, rtol=1e-5, atol=1e-6)
    condition = x > 0
    np.testing.assert_array_equal(evaluated(tf.where, condition, x, low), np.where(condition, x, low))
    np.testing.assert_array_equal(evaluated(lambda c, a: tf.where(c, a, 0), x.astype(np.int32), x), np.where(x.astype(np.int32), x, 0))


@pytest.mark.parametrize("dtypes", [("bfloat16", "float16", "float32"), ("float8_e4m3", "bfloat16", "bfloat16"), ("int8", "float16", "float16")])
def test_promotion_of_small_floats(dtypes: tuple[str, str, str]) -> None:
    a, b = numbers((5,), dtypes[0]), numbers((5,), dtypes[1], 1)
    found = evaluated(tf.add, a, b)
    assert found.dtype == as_dtype(dtypes[2]).numpy
    expected = (a.astype(np.float32) + b.astype(np.float32)).astype(found.dtype)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


def test_bits_of_floats() -> None:
    for name, bits in (("float32", "uint32"), ("float64", "uint64")):
        x = np.array([0.0, -0.0, 1.0, -2.5, np.inf, 1e-45, -np.nan], name)
        found = evaluated(tf.float_bits, x)
        assert found.dtype == bits
        np.testing.assert_array_equal(found, np.where(np.isnan(x), np.array(np.nan, name), x).view(bits))
        np.testing.assert_array_equal(evaluated(tf.float_of_bits, found), x)
    assert evaluated(tf.float_bits, np.array([1.5], np.float16)).tolist() == [0x3FC00000]
    with Fusion("f"):
        x = tf.define_tensor([4], "int32", name="x")
        assert message(lambda: tf.float_bits(x)) == "float_bits: needs a float operand: x (int32)\nhelp: the bits of an integer are the integer"
        assert message(lambda: tf.float_of_bits(x)) == (
            "float_of_bits: needs the bits of a float, uint32 or uint64: x (int32)\nhelp: cast to one of them first"
        )


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_integers_of_64_bits_are_compared_exactly(name: str) -> None:
    signed, unsigned = np.array([2**53, 2**53 + 1, -1, -(2**63), 0, 2**63 - 1], np.int64), np.array([0, 2**53, 2**53 + 1, 2**63, 2**64 - 1], np.uint64)
    compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}[name]
    a, b = signed[:, None], unsigned
    np.testing.assert_array_equal(evaluated(getattr(tf, name), a, b), compare(a, b))
    np.testing.assert_array_equal(evaluated(getattr(tf, name), b, a), compare(b, a))
