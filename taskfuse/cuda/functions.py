"""The elementwise table in CUDA C++: one row per row of :data:`taskfuse.ir.elementwise.ELEMENTWISE`.

A row says how the function is written for each class of types: ``{0}``, ``{1}``, ``{2}`` are the operands, ``{T}`` their type and ``{U}``
the type in which it wraps. An operand stands once in a text, since it may be a load. What needs an operand twice is a device function
(:mod:`taskfuse.cuda.device_functions`). A new function of taskfuse needs a row here, and nothing else in the CUDA backend.

Semantics are those of the NumPy implementations in ``ELEMENTWISE``. docs/math.md has the errors of the float functions.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.cuda.c_types import c_type, wrapping_type
from taskfuse.cuda.conversions import CONVERSIONS, convert
from taskfuse.cuda.device_functions import DEVICE_FUNCTIONS
from taskfuse.cuda.text import Fragment, Helper
from taskfuse.dtypes import DType, DTypeKind, bool_
from taskfuse.errors import UnsupportedError
from taskfuse.ir.elementwise import DTypeRule, Elementwise


@dataclass(frozen=True, slots=True)
class Row:
    """How one function is written. ``None``: the function does not take these types.

    Attributes:
        f32, f64: for float and double.
        signed, unsigned, boolean: for integers of any width, and for bool.
        fast: for float where accuracy may go (compiled with ``--use_fast_math``); ``None``: as ``f32``.
        moves: true if an operand is the result as it is: floats below 32 bits are taken as their bits.
    """

    f32: str | None = None
    f64: str | None = None
    signed: str | None = None
    unsigned: str | None = None
    boolean: str | None = None
    fast: str | None = None
    moves: bool = False


def _library(name: str, arity: int = 1, fast: str | None = None) -> Row:
    """A function of CUDA's math library, named after C's."""
    operands = ", ".join(f"{{{i}}}" for i in range(arity))
    return Row(f"{name}f({operands})", f"{name}({operands})", fast=fast)


def _any(text: str, boolean: str | None = None, moves: bool = False) -> Row:
    return Row(text, text, text, text, boolean or text, moves=moves)


def _logical(operator: str, boolean: str) -> Row:
    return _any(f"({{0}} {operator} {{1}})", boolean)


def _rounding(name: str) -> Row:
    return Row(f"{name}f({{0}})", f"{name}({{0}})", "{0}", "{0}")


def _arithmetic(operator: str, boolean: str | None) -> Row:
    floats, integers = f"({{0}} {operator} {{1}})", f"(({{T}})(({{U}}){{0}} {operator} ({{U}}){{1}}))"
    return Row(floats, floats, integers, integers, boolean)


def _bitwise(operator: str) -> Row:
    text = f"(({{T}})({{0}} {operator} {{1}}))"
    return Row(None, None, text, text, text)


def _extremum(f32: str, f64: str, integers: str, boolean: str) -> Row:
    return Row(f"{f32}({{0}}, {{1}})", f"{f64}({{0}}, {{1}})", f"{integers}<{{T}}>({{0}}, {{1}})", f"{integers}<{{T}}>({{0}}, {{1}})", boolean)


def _comparison(operator: str) -> Row:
    return _any(f"({{0}} {operator} {{1}})")


_AND, _OR, _XOR = "((bool)({0} & {1}))", "((bool)({0} | {1}))", "({0} != {1})"

_CLAMP = Row(
    "minimum_or_nan(maximum_or_nan({0}, {1}), {2})",
    "double_minimum_or_nan(double_maximum_or_nan({0}, {1}), {2})",
    "lesser<{T}>(greater<{T}>({0}, {1}), {2})",
    "lesser<{T}>(greater<{T}>({0}, {1}), {2})",
    "((bool)(({0} | {1}) & {2}))",
)

_ROWS: dict[str, Row] = {
    # moving values
    "copy": _any("{0}", moves=True),
    "cast": _any("{0}", moves=True),
    # sign and rounding
    "neg": Row("(-{0})", "(-{0})", "(({T})(0 - ({U}){0}))", "(({T})(0 - ({U}){0}))"),
    "abs": Row("fabsf({0})", "fabs({0})", "absolute<{T}, {U}>({0})", "{0}", "{0}"),
    "sign": Row("sign<{T}>({0})", "sign<{T}>({0})", "sign<{T}>({0})", "(({T})({0} != 0))"),
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("rint"),
    "trunc": _rounding("trunc"),
    # powers, exponentials, logarithms
    "square": Row("square<{T}, {U}>({0})", "square<{T}, {U}>({0})", "square<{T}, {U}>({0})", "square<{T}, {U}>({0})"),
    "sqrt": _library("sqrt"),
    "rsqrt": _library("rsqrt"),
    "reciprocal": Row("(1.0f / {0})", "(1.0 / {0})", fast="__fdividef(1.0f, {0})"),
    "exp": _library("exp", fast="__expf({0})"),
    "exp2": _library("exp2"),
    "expm1": _library("expm1"),
    "log": _library("log", fast="__logf({0})"),
    "log2": _library("log2", fast="__log2f({0})"),
    "log10": _library("log10", fast="__log10f({0})"),
    "log1p": _library("log1p"),
    # trigonometric and hyperbolic functions (radians)
    "sin": _library("sin", fast="__sinf({0})"),
    "cos": _library("cos", fast="__cosf({0})"),
    "tan": _library("tan", fast="__tanf({0})"),
    "asin": _library("asin"),
    "acos": _library("acos"),
    "atan": _library("atan"),
    "sinh": _library("sinh"),
    "cosh": _library("cosh"),
    "tanh": _library("tanh", fast="fast_tanh({0})"),
    "asinh": _library("asinh"),
    "acosh": _library("acosh"),
    "atanh": _library("atanh"),
    # error function and activations
    "erf": _library("erf"),
    "erfc": _library("erfc"),
    "sigmoid": Row("sigmoid({0})", "double_sigmoid({0})", fast="fast_sigmoid({0})"),
    "relu": Row("maximum_or_nan({0}, 0.0f)", "double_maximum_or_nan({0}, 0.0)", "greater<{T}>({0}, 0)", "{0}"),
    "gelu": Row("gelu({0})", "double_gelu({0})"),
    "gelu_tanh": Row("gelu_tanh({0})", "double_gelu_tanh({0})", fast="fast_gelu_tanh({0})"),
    "silu": Row("silu({0})", "double_silu({0})", fast="fast_silu({0})"),
    # predicates
    "isnan": Row("isnan({0})", "isnan({0})", "false", "false", "false"),
    "isinf": Row("isinf({0})", "isinf({0})", "false", "false", "false"),
    "isfinite": Row("isfinite({0})", "isfinite({0})", "true", "true", "true"),
    "logical_not": _any("(!{0})"),
    "bitwise_not": Row(signed="(({T})~{0})", unsigned="(({T})~{0})", boolean="(!{0})"),
    # arithmetic
    "add": _arithmetic("+", boolean=_OR),
    "sub": _arithmetic("-", boolean=None),
    "mul": _arithmetic("*", boolean=_AND),
    "div": Row("({0} / {1})", "({0} / {1})", fast="__fdividef({0}, {1})"),
    "floor_divide": Row(
        "float_floored_quotient<{T}>({0}, {1})",
        "float_floored_quotient<{T}>({0}, {1})",
        "signed_floored_quotient<{T}, {U}>({0}, {1})",
        "unsigned_quotient<{T}>({0}, {1})",
    ),
    "remainder": Row(
        "float_floored_remainder<{T}>({0}, {1})",
        "float_floored_remainder<{T}>({0}, {1})",
        "signed_floored_remainder<{T}>({0}, {1})",
        "unsigned_remainder<{T}>({0}, {1})",
    ),
    "fmod": Row("fmodf({0}, {1})", "fmod({0}, {1})", "signed_remainder<{T}>({0}, {1})", "unsigned_remainder<{T}>({0}, {1})"),
    "pow": Row("powf({0}, {1})", "pow({0}, {1})", "signed_power<{T}, {U}>({0}, {1})", "unsigned_power<{T}, {U}>({0}, {1})", fast="fast_power({0}, {1})"),
    "maximum": _extremum("maximum_or_nan", "double_maximum_or_nan", "greater", _OR),
    "minimum": _extremum("minimum_or_nan", "double_minimum_or_nan", "lesser", _AND),
    "fmax": _extremum("fmaxf", "fmax", "greater", _OR),
    "fmin": _extremum("fminf", "fmin", "lesser", _AND),
    "atan2": _library("atan2", 2),
    "hypot": _library("hypot", 2),
    "copysign": _library("copysign", 2),
    # comparisons
    "eq": _comparison("=="),
    "ne": _comparison("!="),
    "lt": _comparison("<"),
    "le": _comparison("<="),
    "gt": _comparison(">"),
    "ge": _comparison(">="),
    # logic and bits
    "logical_and": _logical("&&", _AND),
    "logical_or": _logical("||", _OR),
    "logical_xor": _any("(!{0} != !{1})", _XOR),
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "left_shift": Row(signed="shifted_left<{T}, {U}>({0}, {1})", unsigned="shifted_left<{T}, {U}>({0}, {1})"),
    "right_shift": Row(signed="signed_shifted_right<{T}, {U}>({0}, {1})", unsigned="unsigned_shifted_right<{T}>({0}, {1})"),
    # three operands
    "where": _any("({0} ? {1} : {2})", moves=True),
    "clamp": _CLAMP,
    "lerp": Row("lerp<{T}>({0}, {1}, {2})", "lerp<{T}>({0}, {1}, {2})"),
    "fma": Row("fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})", "(({T})(({U}){0} * ({U}){1} + ({U}){2}))", "(({T})(({U}){0} * ({U}){1} + ({U}){2}))"),
}


def result_dtype(op: Elementwise, dtype: DType) -> DType:
    """The dtype of what ``op`` gives when it computes in ``dtype``."""
    return bool_ if op.rule in (DTypeRule.BOOL, DTypeRule.LOGICAL) else dtype


def call(op: Elementwise, operands: Sequence[str], dtype: DType, fast_math: bool = False) -> Fragment:
    """``op`` on operands of ``dtype`` (a selector is a bool), as C++ of type ``c_type(result_dtype(op, dtype))``.

    Args:
        operands: texts that may stand as operands; each is evaluated at most once.
        dtype: what ``op`` computes in. Floats below 32 bits are computed in float and rounded once.
        fast_math: take the faster and less accurate forms of float.

    Raises :class:`UnsupportedError` if the function has no row for the dtype.
    """
    row = _ROWS.get(op.name, Row())
    if dtype.compute is not dtype and not row.moves:
        return _inRow(op, operands, dtype, fast_math)
    text = _form(row, dtype, fast_math)
    if text is None:
        raise UnsupportedError(what=f"{op.name} of {dtype}", reason="the CUDA backend has no form of it")
    # no minus sign after another one
    apart = [f"({operand})" if operand.startswith("-") else operand for operand in operands]
    return Fragment(text.format(*apart, T=c_type(dtype), U=wrapping_type(dtype)), DEVICE_FUNCTIONS.called(text))


def _inRow(op: Elementwise, operands: Sequence[str], dtype: DType, fast_math: bool) -> Fragment:
    converted = [convert(operand, dtype, dtype.compute) for operand in operands]
    value = call(op, [operand.text for operand in converted], dtype.compute, fast_math)
    result = result_dtype(op, dtype)
    rounded = convert(value.text, result_dtype(op, dtype.compute), result)
    return Fragment(rounded.text, frozenset[Helper]().union(value.helpers, rounded.helpers, *(operand.helpers for operand in converted)))


def _form(row: Row, dtype: DType, fast_math: bool) -> str | None:
    match dtype.kind:
        case DTypeKind.INT:
            return row.signed
        case DTypeKind.UINT:
            return row.unsigned
        case DTypeKind.BOOL:
            return row.boolean
        case DTypeKind.FLOAT if dtype.bits == 64:
            return row.f64
        case DTypeKind.FLOAT:
            return row.fast if fast_math and row.fast is not None else row.f32


_FORMS = [form for row in _ROWS.values() for form in (row.f32, row.f64, row.signed, row.unsigned, row.fast) if form is not None]
# what the texts of this module and of conversions call: no variable may have such a name where they stand
IDENTIFIERS: frozenset[str] = frozenset(re.findall(r"[a-zA-Z_]\w+", " ".join(_FORMS))) | CONVERSIONS.helpers.keys()
