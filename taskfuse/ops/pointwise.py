"""Elementwise functions with further parameters: a dtype, optional bounds, decimals. The others are in :mod:`taskfuse.ops.elementwise`."""

from __future__ import annotations

from taskfuse.dtypes import DType, DTypeLike, as_dtype
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import broadcast_read, cast_tensor, check_tensor, define_pointwise, dtype_error, pointwise, typed
from taskfuse.ops.registry import elementwise

__all__ = ["cast", "clamp", "round"]


@elementwise
def cast(x: TensorView, dtype: DTypeLike) -> TensorView:
    """``x`` converted to ``dtype``: floats round to nearest even, floats to integers truncate and clamp (NaN is 0), bool is ``x != 0``.

    Makes a tensor even if ``x`` has that dtype already.
    """
    wanted: DType = as_dtype(dtype)
    check_tensor("cast", x)
    return define_pointwise(x.fusion, ELEMENTWISE["cast"], x.shape, (broadcast_read(x, x.shape),), wanted)


@elementwise
def clamp(x: Value, min: Value | None = None, max: Value | None = None) -> TensorView:
    """``minimum(maximum(x, min), max)``, without a bound that is ``None``."""
    if min is None:
        return pointwise(ELEMENTWISE["copy"], (x,)) if max is None else pointwise(ELEMENTWISE["minimum"], (x, max))
    if max is None:
        return pointwise(ELEMENTWISE["maximum"], (x, min))
    return pointwise(ELEMENTWISE["clamp"], (x, min, max))


@elementwise
def round(x: Value, decimals: int = 0) -> TensorView:
    """The nearest integer, halves to even, in the dtype of ``x``; with ``decimals`` the nearest multiple of ``10 ** -decimals``. Not for bool.

    A multiple is ``round(x * 10 ** decimals) / 10 ** decimals``, as in NumPy and torch, with their errors. Integers are rounded to integers alone: raises
    :class:`DTypeError` for ``decimals`` of them other than 0.
    """
    if decimals == 0:
        return pointwise(ELEMENTWISE["round"], (x,))
    tv = check_tensor("round", x)
    if not tv.dtype.is_float:
        raise dtype_error("round", f"{decimals} decimals of {typed(tv)}", "cast to a float first")
    with tv.fusion.call():
        wide = cast_tensor(tv, tv.dtype.compute)
        scale = 10.0 ** abs(decimals)
        forward, back = (ELEMENTWISE["mul"], ELEMENTWISE["div"]) if decimals > 0 else (ELEMENTWISE["div"], ELEMENTWISE["mul"])
        found = pointwise(back, (pointwise(ELEMENTWISE["round"], (pointwise(forward, (wide, scale)),)), scale))
        return cast_tensor(found, tv.dtype)
