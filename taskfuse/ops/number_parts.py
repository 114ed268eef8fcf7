"""Questions about single numbers, and parts of them: signs, fractions, infinities; divisions and shifts that round or fill in another way."""

from __future__ import annotations

from taskfuse.dtypes import bool_, float64, uint8, uint16, uint32, uint64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, dtype_error, operand_dtype, typed
from taskfuse.ops.create import full_like
from taskfuse.ops.elementwise import (
    abs,
    add,
    div,
    eq,
    float_bits,
    floor_divide,
    fmod,
    gcd,
    isfinite,
    isnan,
    le,
    logical_and,
    logical_or,
    lt,
    mul,
    ne,
    right_shift,
    sub,
    trunc,
)
from taskfuse.ops.registry import OPS, OpKind, always, floating_only, op

__all__ = ["frac", "isclose", "isneginf", "isposinf", "isreal", "lcm", "logical_right_shift", "signbit", "trunc_divide"]


@op(OpKind.COMPOSITE, always(bool_))
def signbit(x: TensorView) -> TensorView:
    """True where ``x`` is negative, or -0.0; False for NaN."""
    check_tensor("signbit", x)
    with x.fusion.call():
        if not x.dtype.is_float:
            return lt(x, 0) if x.dtype.min_value < 0 else full_like(x, False, bool_)
        bits = float_bits(x)
        return ne(right_shift(bits, bits.dtype.bits - 1), 0)


def _is_infinite(x: TensorView, value: float) -> TensorView:
    return eq(x, value) if x.dtype.has_infinity else full_like(x, False, bool_)


@op(OpKind.COMPOSITE, always(bool_))
def isposinf(x: TensorView) -> TensorView:
    """True where ``x`` is infinite and positive."""
    return _is_infinite(check_tensor("isposinf", x), float("inf"))


@op(OpKind.COMPOSITE, always(bool_))
def isneginf(x: TensorView) -> TensorView:
    """True where ``x`` is infinite and negative."""
    return _is_infinite(check_tensor("isneginf", x), -float("inf"))


@op(OpKind.COMPOSITE, always(bool_))
def isreal(x: TensorView) -> TensorView:
    """True everywhere: no dtype is complex."""
    return full_like(check_tensor("isreal", x), True, bool_)


@op(OpKind.COMPOSITE, floating_only, numpy="")
def frac(x: TensorView) -> TensorView:
    """``x - trunc(x)``: the fractional part, with the sign of ``x``; NaN for infinities. Raises :class:`DTypeError` unless ``x`` is a float."""
    check_tensor("frac", x)
    if not x.dtype.is_float:
        raise dtype_error("frac", f"{typed(x)} has no fractional part", "cast to a float first")
    with x.fusion.call():
        wide = cast_tensor(x, x.dtype.compute)
        return cast_tensor(sub(wide, trunc(wide)), x.dtype)


@op(OpKind.COMPOSITE, OPS["floor_divide"].result, torch="", numpy="")
def trunc_divide(a: Value, b: Value) -> TensorView:
    """The integer part of ``a / b``, in the promoted dtype, as ``torch.div`` with ``rounding_mode="trunc"``; an integer divided by 0 is 0. Not for bool."""
    fusion, dtype = common_fusion("trunc_divide", (a, b)), operand_dtype(ELEMENTWISE["floor_divide"], (a, b))
    with fusion.call():
        left, right = (cast_tensor(v, dtype.compute) if isinstance(v, TensorView) else v for v in (a, b))
        if dtype.is_float:
            return cast_tensor(trunc(div(left, right)), dtype)
        return floor_divide(sub(left, fmod(left, right)), right)


_UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


@op(OpKind.COMPOSITE, OPS["right_shift"].result, torch="", numpy="")
def logical_right_shift(a: TensorView, b: Value) -> TensorView:
    """The bits of ``a`` shifted right by ``b`` and filled with 0, whatever the sign. For integers; 0 for shifts by the width or more."""
    check_tensor("logical_right_shift", a)
    fusion, dtype = common_fusion("logical_right_shift", (a, b)), operand_dtype(ELEMENTWISE["right_shift"], (a, b))
    with fusion.call():
        plain = _UNSIGNED[dtype.bits]
        moved = right_shift(cast_tensor(cast_tensor(a, dtype), plain), cast_tensor(b, plain) if isinstance(b, TensorView) else b)
        return cast_tensor(moved, dtype)


@op(OpKind.COMPOSITE, OPS["gcd"].result)
def lcm(a: TensorView, b: TensorView) -> TensorView:
    """The least common multiple; 0 where one is 0. For integers; products wrap."""
    fusion, dtype = common_fusion("lcm", (a, b)), operand_dtype(ELEMENTWISE["gcd"], (a, b))
    with fusion.call():
        left, right = (cast_tensor(check_tensor("lcm", v), dtype) for v in (a, b))
        return mul(abs(floor_divide(left, gcd(left, right))), abs(right))


@op(OpKind.COMPOSITE, always(bool_))
def isclose(a: TensorView, b: TensorView, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> TensorView:
    """True where ``abs(a - b) <= atol + rtol * abs(b)`` and both are finite, where they are equal, and with ``equal_nan`` where both are NaN."""
    for tv in (a, b):
        check_tensor("isclose", tv)
    with common_fusion("isclose", (a, b)).call():
        same = eq(a, b)
        left, right = (cast_tensor(v, v.dtype.compute if v.dtype.is_float else float64) for v in (a, b))
        distance = abs(sub(left, right))
        found = logical_or(same, logical_and(isfinite(distance), le(distance, add(mul(abs(right), float(rtol)), float(atol)))))
        return logical_or(found, logical_and(isnan(left), isnan(right))) if equal_nan else found
