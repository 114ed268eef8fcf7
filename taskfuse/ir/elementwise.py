"""The table of elementwise functions and the table of reductions' combining functions.

A function of taskfuse is a row here: its arity, how dtypes go in and out, what it computes in NumPy, and what it computes on the words of
the integer ring (``taskfuse.ir.ring``). Readers of the IR look rows up and never ask which function it is.

Floats below 32 bits are computed in float32 and rounded once to the result's dtype (:attr:`DType.compute`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, bool_, result_type
from taskfuse.ir.ring import mix

Array = npt.NDArray[Any]
Function = Callable[..., Array]


class DTypeRule(Enum):
    """How an elementwise function treats dtypes. Operands are cast to the promoted dtype D first, except where stated.

    - SAME: any D; the result is D.
    - NUMERIC: D is not bool; the result is D.
    - FLOAT: bool and integers become the float that NumPy gives them (8 bits: float16, 16 bits: float32, else float64); the result is D.
    - DIVIDE: as FLOAT, but bool and all integers become float64.
    - BOOL: any D; the result is bool.
    - LOGICAL: operands are cast to bool; the result is bool.
    - BITWISE: D is bool or an integer; the result is D.
    - SHIFT: D is an integer; the result is D.
    - CAST: one operand of any dtype; the result is the dtype asked for.
    - SELECT: the first operand is cast to bool, D is promoted from the others; the result is D.
    """

    SAME = "same"
    NUMERIC = "numeric"
    FLOAT = "float"
    DIVIDE = "divide"
    BOOL = "bool"
    LOGICAL = "logical"
    BITWISE = "bitwise"
    SHIFT = "shift"
    CAST = "cast"
    SELECT = "select"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Elementwise:
    """One row: an elementwise function.

    Attributes:
        name: public name, NumPy's where NumPy has it.
        arity: number of operands.
        rule: how it treats dtypes.
        function: the NumPy implementation, on arrays of the compute dtype.
        ring: the implementation on words of the integer ring; ``None``: a hash of the words, keyed by the name.
        commutative: true if the first two operands may change places.
    """

    name: str
    arity: int
    rule: DTypeRule
    function: Function
    ring: Function | None = None
    commutative: bool = False

    def compute_dtype(self, operands: Sequence[DType], out: DType) -> DType:
        """The dtype that operands are cast to before ``function`` computes (a SELECT's first operand is cast to bool instead).

        Args:
            operands: dtypes of the operands.
            out: dtype of the result.
        """
        match self.rule:
            case DTypeRule.CAST:
                return operands[0]
            case DTypeRule.BOOL:
                return result_type(*operands).compute
            case DTypeRule.LOGICAL:
                return bool_
            case _:
                return out.compute

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Combine:
    """One row: an associative and commutative function that reductions combine with.

    Attributes:
        name: name of the row, that of ``op``.
        op: the function.
        neutral: the neutral element for a dtype.
    """

    name: str
    op: Elementwise
    neutral: Callable[[DType], int | float | bool]

    def __repr__(self) -> str:
        return self.name


# -- NumPy implementations that NumPy does not have in this form ------------------------------------------------------------------------------


def _per_element(function: Callable[[float], float]) -> Function:
    ufunc = np.frompyfunc(function, 1, 1)

    def apply(x: Array) -> Array:
        return np.asarray(ufunc(x)).astype(x.dtype)

    return apply


_erf = _per_element(math.erf)
_erfc = _per_element(math.erfc)


def _copy(x: Array) -> Array:
    return x


def _constant(x: Array, value: float) -> Array:
    return np.asarray(value, x.dtype)


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _gelu(x: Array) -> Array:
    # 0.5 * x * (1 + erf(x / sqrt 2)), without the cancellation for negative x
    return _constant(x, 0.5) * x * _erfc(x * _constant(x, -math.sqrt(0.5)))


def _gelu_tanh(x: Array) -> Array:
    # Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2
    inner = _constant(x, math.sqrt(2 / math.pi)) * (x + _constant(x, 0.044715) * x * x * x)
    return _constant(x, 0.5) * x * (1 + np.tanh(inner))


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _relu(x: Array) -> Array:
    return np.maximum(x, _constant(x, 0))


def _round(x: Array) -> Array:
    return np.rint(x) if x.dtype.kind == "f" else x


def _floor(x: Array) -> Array:
    return np.floor(x) if x.dtype.kind == "f" else x


def _ceil(x: Array) -> Array:
    return np.ceil(x) if x.dtype.kind == "f" else x


def _trunc(x: Array) -> Array:
    return np.trunc(x) if x.dtype.kind == "f" else x


def _pow(a: Array, b: Array) -> Array:
    if a.dtype.kind != "i":
        return np.power(a, b)
    # NumPy refuses negative powers of integers: here they are the reciprocal, truncated
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _clamp(x: Array, low: Array, high: Array) -> Array:
    return np.minimum(np.maximum(x, low), high)


def _lerp(a: Array, b: Array, t: Array) -> Array:
    return a + t * (b - a)


def _fma(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float32:
        # the product of two float32 is exact in float64: one rounding of the product less, as the instruction does
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


def _ring_fma(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


def _ring_lerp(a: Array, b: Array, t: Array) -> Array:
    return a + t * (b - a)


def _ring_div(a: Array, b: Array) -> Array:
    # linear in the dividend, so that division distributes over sums as it does over the reals
    return a * mix(b)


def _ring_false(x: Array) -> Array:
    return np.zeros(x.shape, np.bool_)


def _ring_true(x: Array) -> Array:
    return np.ones(x.shape, np.bool_)


# -- the tables -----------------------------------------------------------------------------------------------------------------------

_SAME, _NUMERIC, _FLOAT, _BOOL = DTypeRule.SAME, DTypeRule.NUMERIC, DTypeRule.FLOAT, DTypeRule.BOOL
_LOGICAL, _BITWISE, _SHIFT = DTypeRule.LOGICAL, DTypeRule.BITWISE, DTypeRule.SHIFT

_ROWS = (
    # moving values
    Elementwise("copy", 1, _SAME, _copy, _copy),
    Elementwise("cast", 1, DTypeRule.CAST, _copy, _copy),
    # sign and rounding
    Elementwise("neg", 1, _NUMERIC, np.negative, np.negative),
    Elementwise("abs", 1, _SAME, np.absolute),
    Elementwise("sign", 1, _NUMERIC, np.sign),
    Elementwise("floor", 1, _NUMERIC, _floor),
    Elementwise("ceil", 1, _NUMERIC, _ceil),
    Elementwise("round", 1, _NUMERIC, _round),
    Elementwise("trunc", 1, _NUMERIC, _trunc),
    # powers, exponentials, logarithms
    Elementwise("square", 1, _NUMERIC, np.square, np.square),
    Elementwise("sqrt", 1, _FLOAT, np.sqrt),
    Elementwise("rsqrt", 1, _FLOAT, _rsqrt),
    Elementwise("reciprocal", 1, _FLOAT, np.reciprocal),
    Elementwise("exp", 1, _FLOAT, np.exp),
    Elementwise("exp2", 1, _FLOAT, np.exp2),
    Elementwise("expm1", 1, _FLOAT, np.expm1),
    Elementwise("log", 1, _FLOAT, np.log),
    Elementwise("log2", 1, _FLOAT, np.log2),
    Elementwise("log10", 1, _FLOAT, np.log10),
    Elementwise("log1p", 1, _FLOAT, np.log1p),
    # trigonometric and hyperbolic functions (radians)
    Elementwise("sin", 1, _FLOAT, np.sin),
    Elementwise("cos", 1, _FLOAT, np.cos),
    Elementwise("tan", 1, _FLOAT, np.tan),
    Elementwise("asin", 1, _FLOAT, np.arcsin),
    Elementwise("acos", 1, _FLOAT, np.arccos),
    Elementwise("atan", 1, _FLOAT, np.arctan),
    Elementwise("sinh", 1, _FLOAT, np.sinh),
    Elementwise("cosh", 1, _FLOAT, np.cosh),
    Elementwise("tanh", 1, _FLOAT, np.tanh),
    Elementwise("asinh", 1, _FLOAT, np.arcsinh),
    Elementwise("acosh", 1, _FLOAT, np.arccosh),
    Elementwise("atanh", 1, _FLOAT, np.arctanh),
    # error function and activations
    Elementwise("erf", 1, _FLOAT, _erf),
    Elementwise("erfc", 1, _FLOAT, _erfc),
    Elementwise("sigmoid", 1, _FLOAT, _sigmoid),
    Elementwise("relu", 1, _NUMERIC, _relu),
    Elementwise("gelu", 1, _FLOAT, _gelu),
    Elementwise("gelu_tanh", 1, _FLOAT, _gelu_tanh),
    Elementwise("silu", 1, _FLOAT, _silu),
    # predicates
    Elementwise("isnan", 1, _BOOL, np.isnan, _ring_false),
    Elementwise("isinf", 1, _BOOL, np.isinf, _ring_false),
    Elementwise("isfinite", 1, _BOOL, np.isfinite, _ring_true),
    Elementwise("logical_not", 1, _LOGICAL, np.logical_not),
    Elementwise("bitwise_not", 1, _BITWISE, np.bitwise_not),
    # arithmetic
    Elementwise("add", 2, _SAME, np.add, np.add, commutative=True),
    Elementwise("sub", 2, _NUMERIC, np.subtract, np.subtract),
    Elementwise("mul", 2, _SAME, np.multiply, np.multiply, commutative=True),
    Elementwise("div", 2, DTypeRule.DIVIDE, np.true_divide, _ring_div),
    Elementwise("floor_divide", 2, _NUMERIC, np.floor_divide),
    Elementwise("remainder", 2, _NUMERIC, np.remainder),
    Elementwise("fmod", 2, _NUMERIC, np.fmod),
    Elementwise("pow", 2, _NUMERIC, _pow),
    Elementwise("maximum", 2, _SAME, np.maximum, np.maximum, commutative=True),
    Elementwise("minimum", 2, _SAME, np.minimum, np.minimum, commutative=True),
    Elementwise("fmax", 2, _SAME, np.fmax, np.maximum, commutative=True),
    Elementwise("fmin", 2, _SAME, np.fmin, np.minimum, commutative=True),
    Elementwise("atan2", 2, _FLOAT, np.arctan2),
    Elementwise("hypot", 2, _FLOAT, np.hypot),
    Elementwise("copysign", 2, _FLOAT, np.copysign),
    # comparisons
    Elementwise("eq", 2, _BOOL, np.equal, np.equal, commutative=True),
    Elementwise("ne", 2, _BOOL, np.not_equal, np.not_equal, commutative=True),
    Elementwise("lt", 2, _BOOL, np.less, np.less),
    Elementwise("le", 2, _BOOL, np.less_equal, np.less_equal),
    Elementwise("gt", 2, _BOOL, np.greater, np.greater),
    Elementwise("ge", 2, _BOOL, np.greater_equal, np.greater_equal),
    # logic and bits
    Elementwise("logical_and", 2, _LOGICAL, np.logical_and, commutative=True),
    Elementwise("logical_or", 2, _LOGICAL, np.logical_or, commutative=True),
    Elementwise("logical_xor", 2, _LOGICAL, np.logical_xor, commutative=True),
    Elementwise("bitwise_and", 2, _BITWISE, np.bitwise_and, commutative=True),
    Elementwise("bitwise_or", 2, _BITWISE, np.bitwise_or, commutative=True),
    Elementwise("bitwise_xor", 2, _BITWISE, np.bitwise_xor, commutative=True),
    Elementwise("left_shift", 2, _SHIFT, np.left_shift),
    Elementwise("right_shift", 2, _SHIFT, np.right_shift),
    # three operands
    Elementwise("where", 3, DTypeRule.SELECT, np.where, np.where),
    Elementwise("clamp", 3, _SAME, _clamp, _clamp),
    Elementwise("lerp", 3, _FLOAT, _lerp, _ring_lerp),
    Elementwise("fma", 3, _NUMERIC, _fma, _ring_fma),
)

ELEMENTWISE: dict[str, Elementwise] = {row.name: row for row in _ROWS}


def _all_bits(dtype: DType) -> int | bool:
    if dtype is bool_:
        return True
    return -1 if dtype.min_value < 0 else int(dtype.max_value)


def _combine(name: str, neutral: Callable[[DType], int | float | bool]) -> Combine:
    return Combine(name, ELEMENTWISE[name], neutral)


def _zero(dtype: DType) -> int | float | bool:
    return False if dtype is bool_ else 0.0 if dtype.is_float else 0


def _one(dtype: DType) -> int | float | bool:
    return True if dtype is bool_ else 1.0 if dtype.is_float else 1


COMBINES: dict[str, Combine] = {
    c.name: c
    for c in (
        _combine("add", _zero),
        _combine("mul", _one),
        _combine("maximum", lambda dtype: dtype.lowest),
        _combine("minimum", lambda dtype: dtype.highest),
        _combine("logical_and", _one),
        _combine("logical_or", _zero),
        _combine("bitwise_and", _all_bits),
        _combine("bitwise_or", _zero),
        _combine("bitwise_xor", _zero),
    )
}
