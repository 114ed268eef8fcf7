"""Elementwise functions composed of others: activations, masks, replacements of NaN and infinity.

Floats below 32 bits are computed in float32 throughout; the result is cast once. Where a function differs for great and small elements, neither
side overflows on the way.
"""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.dtypes import DType, float64
from taskfuse.errors import shown
from taskfuse.ir.axes import axis, iteration_point
from taskfuse.ir.expr import FirstValid, Read
from taskfuse.ir.scalar import Expr, IntLike, ge, le
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.location import caller
from taskfuse.ops.build import cast_tensor, check_symbols, check_tensor, common_fusion, described, dtype_error, literal, plain, shape_error
from taskfuse.ops.elementwise import abs, add, eq, exp, expm1, gt, isnan, log1p, maximum, minimum, mul, neg, where
from taskfuse.ops.elementwise import copy as copied
from taskfuse.ops.pointwise import clamp
from taskfuse.ops.registry import OPS, OpKind, floating, op, same

__all__ = ["clip", "elu", "leaky_relu", "masked_fill", "nan_to_num", "softplus", "tril", "triu"]


def wide(x: TensorView) -> tuple[TensorView, DType]:
    """``x`` in its compute dtype (float64 for bool and integers), and the float dtype of a result."""
    dtype = x.dtype if x.dtype.is_float else float64
    return cast_tensor(x, dtype.compute), dtype


@op(OpKind.ELEMENTWISE, OPS["clamp"].result, torch="clip")
def clip(x: Value, min: Value | None = None, max: Value | None = None) -> TensorView:
    """:func:`clamp`, by NumPy's name."""
    return clamp(x, min, max)


@op(OpKind.COMPOSITE, floating, numpy="")
def softplus(x: TensorView, beta: float = 1.0) -> TensorView:
    """``log(1 + exp(beta * x)) / beta``, a float. Raises :class:`ShapeError` for a ``beta`` of 0."""
    check_tensor("softplus", x)
    if not beta:
        raise shape_error("softplus", f"beta is {beta}", "use a number other than 0, such as 1")
    with x.fusion.call():
        value, dtype = wide(x)
        scaled = value if beta == 1 else mul(value, float(beta))
        found = add(maximum(scaled, 0.0), log1p(exp(neg(abs(scaled)))))
        return cast_tensor(found if beta == 1 else mul(found, 1 / beta), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def leaky_relu(x: TensorView, slope: float = 0.01) -> TensorView:
    """``x`` where it is positive, else ``slope * x``, a float."""
    check_tensor("leaky_relu", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(where(gt(value, 0.0), value, mul(value, float(slope))), dtype)


@op(OpKind.COMPOSITE, floating, numpy="")
def elu(x: TensorView, alpha: float = 1.0) -> TensorView:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``, a float (Clevert, Unterthiner, Hochreiter, "Exponential Linear Units")."""
    check_tensor("elu", x)
    with x.fusion.call():
        value, dtype = wide(x)
        return cast_tensor(where(gt(value, 0.0), value, mul(expm1(minimum(value, 0.0)), float(alpha))), dtype)


@op(OpKind.COMPOSITE, same)
def nan_to_num(x: TensorView, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> TensorView:
    """``x`` with NaN and the infinities replaced by numbers: by default 0, and the greatest and least of its dtype."""
    check_tensor("nan_to_num", x)
    dtype = x.dtype
    with x.fusion.call():
        if not dtype.is_float:
            return copied(x)
        infinite = float("inf")
        high = dtype.max_value if posinf is None else posinf
        low = dtype.min_value if neginf is None else neginf
        value = where(isnan(x), float(nan), x)
        if not dtype.holds(infinite):
            return value
        return where(eq(x, infinite), float(high), where(eq(x, -infinite), float(low), value))


@op(OpKind.COMPOSITE, same, numpy="")
def masked_fill(x: TensorView, mask: TensorView, value: Value) -> TensorView:
    """``x`` with ``value`` where ``mask`` is not 0, in the dtype of ``x``; the three broadcast.

    Raises :class:`DTypeError` if the dtype of ``x`` cannot hold a number ``value``.
    """
    check_tensor("masked_fill", x)
    check_tensor("masked_fill", mask)
    common_fusion("masked_fill", (x, mask, value))
    number = plain(value)
    if isinstance(number, bool | int | float) and not (x.dtype.is_float or x.dtype.holds(number)):
        raise dtype_error("masked_fill", f"{shown(value)} is not a value of {x.dtype.name}", "cast the tensor to a dtype that holds it")
    with x.fusion.call():
        return cast_tensor(where(mask, value, x), x.dtype)


def _triangle(name: str, condition: Callable[[Expr, Expr], Expr], x: TensorView, k: IntLike) -> TensorView:
    check_tensor(name, x)
    offset = plain(k)
    if x.ndim < 2:
        raise shape_error(name, f"{described(x)} has fewer than two dimensions", "give at least two dimensions")
    if isinstance(offset, bool) or not isinstance(offset, int | Expr):
        raise shape_error(name, f"{shown(k)} is not a diagonal", "use an integer: 0 is the main one")
    check_symbols(name, x.fusion, offset)
    with x.fusion.call():
        point = iteration_point(x.ndim)
        kept = Read(x, point, condition(point[-2] + offset, point[-1]))
        out = x.fusion.new_tensor([axis(e) for e in x.shape], x.dtype, location=caller())
        return x.fusion.define(FirstValid(out, name, (kept, literal(name, 0, x.dtype)), caller()))


@op(OpKind.COMPOSITE, same)
def tril(x: TensorView, k: IntLike = 0) -> TensorView:
    """The last two dimensions of ``x`` up to the diagonal ``k``, 0 above it. Raises :class:`ShapeError` for fewer than two dimensions."""
    return _triangle("tril", ge, x, k)


@op(OpKind.COMPOSITE, same)
def triu(x: TensorView, k: IntLike = 0) -> TensorView:
    """The last two dimensions of ``x`` from the diagonal ``k`` on, 0 below it; otherwise as :func:`tril`."""
    return _triangle("triu", le, x, k)
