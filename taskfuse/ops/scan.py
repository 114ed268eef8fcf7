"""Scans: each element combined with all elements before it along one dimension, or, if it is exclusive, these alone.

Floats below 32 bits are accumulated in float32, and each result is cast once. Sums of a constant integer (positions of
tokens without a mask) are its multiples, without a scan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from taskfuse.dtypes import DType, DTypeLike, float32, float64, int64
from taskfuse.errors import shown
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Pointwise, Scan
from taskfuse.ir.scalar import Const, Expr
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import broadcast_read, cast_tensor, check_tensor, define_pointwise, described, dtype_error, normalize_axis
from taskfuse.ops.elementwise import eq, isnan, logical_or, mul, where
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import accumulated_dtype
from taskfuse.ops.registry import OpKind, floating, op, same, total
from taskfuse.ops.views import reshape

EXACT: Final[Mapping[DType, int]] = {float32: 1 << 24, float64: 1 << 53}
"""By float dtype, the greatest n such that it holds all integers up to n."""

__all__ = ["cummax", "cummax_with_indices", "cummin", "cummin_with_indices", "cumprod", "cumsum", "logcumsumexp"]


@op(OpKind.SCAN, total)
@axial
def cumsum(x: TensorView, axis: int | None = None, dtype: DTypeLike | None = None, *, exclusive: bool = False) -> TensorView:
    """The inclusive sum scan along ``axis`` (over all elements in row-major order if ``None``), as ``np.cumsum``.

    The result has ``dtype``: by default that of ``x``, int64 or uint64 for bool and integers. An ``exclusive`` one leaves out the element itself: the first
    is 0. Raises :class:`ShapeError` if ``axis`` is out of range.
    """
    return _scan("cumsum", "add", x, axis, accumulated_dtype(check_tensor("cumsum", x), dtype), exclusive)


@op(OpKind.SCAN, total)
@axial
def cumprod(x: TensorView, axis: int | None = None, dtype: DTypeLike | None = None, *, exclusive: bool = False) -> TensorView:
    """The inclusive product scan; otherwise as :func:`cumsum`."""
    return _scan("cumprod", "mul", x, axis, accumulated_dtype(check_tensor("cumprod", x), dtype), exclusive)


@op(OpKind.SCAN, floating, numpy="logaddexp.accumulate")
@axial
def logcumsumexp(x: TensorView, axis: int | None = None, *, exclusive: bool = False) -> TensorView:
    """The logarithm of the sum of ``exp`` of the elements up to each one along ``axis``, as ``np.logaddexp.accumulate``: no step overflows. A float."""
    check_tensor("logcumsumexp", x)
    return _scan("logcumsumexp", "logaddexp", x, axis, x.dtype if x.dtype.is_float else float64, exclusive)


@op(OpKind.SCAN, same, torch="", numpy="maximum.accumulate")
@axial
def cummax(x: TensorView, axis: int | None = None, *, exclusive: bool = False) -> TensorView:
    """The maximum of the elements up to each one along ``axis``, as ``np.maximum.accumulate``: NaN from the first NaN on."""
    return _scan("cummax", "maximum", x, axis, None, exclusive)


@op(OpKind.SCAN, same, torch="", numpy="minimum.accumulate")
@axial
def cummin(x: TensorView, axis: int | None = None, *, exclusive: bool = False) -> TensorView:
    """The minimum of the elements up to each one along ``axis``, as ``np.minimum.accumulate``: NaN from the first NaN on."""
    return _scan("cummin", "minimum", x, axis, None, exclusive)


@op(OpKind.SCAN, same, torch="cummax", numpy="")
@axial
def cummax_with_indices(x: TensorView, axis: int) -> tuple[TensorView, TensorView]:
    """:func:`cummax`, and the index (int64) of each maximum: the last of equal elements, the last NaN, as ``torch.cummax``."""
    return _scan_with_indices("cummax_with_indices", "maximum", x, axis)


@op(OpKind.SCAN, same, torch="cummin", numpy="")
@axial
def cummin_with_indices(x: TensorView, axis: int) -> tuple[TensorView, TensorView]:
    """:func:`cummin`, and the index (int64) of each minimum; otherwise as :func:`cummax_with_indices`."""
    return _scan_with_indices("cummin_with_indices", "minimum", x, axis)


def _scan_with_indices(op: str, combine: str, x: TensorView, axis: int) -> tuple[TensorView, TensorView]:
    """A position is that of an extreme if the element there is equal to the extreme so far: the greatest such position so far is that of the last."""
    check_tensor(op, x)
    place = normalize_axis(op, axis, x.ndim, described(x))
    with x.fusion.call():
        found = _scan(op, combine, x, place, None)
        is_extreme = eq(x, found)
        is_extreme = logical_or(is_extreme, isnan(x)) if x.dtype.is_float else is_extreme
        position = define_pointwise(x.fusion, ELEMENTWISE["copy"], x.shape, (IndexValue(iteration_symbol(place)),), int64)
        return found, _scan(op, "maximum", where(is_extreme, position, 0), place, None)


def _scan(op: str, combine: str, x: TensorView, axis: int | None, dtype: DType | None, exclusive: object = False) -> TensorView:
    check_tensor(op, x)
    if not isinstance(exclusive, bool):
        raise dtype_error(op, f"exclusive= is {shown(exclusive)}", "give True or False")
    place = 0 if axis is None else normalize_axis(op, axis, x.ndim, described(x))
    wanted = x.dtype if dtype is None else dtype
    location = caller()
    with x.fusion.call():
        source = reshape(x, [-1]) if axis is None else x
        carried = wanted if dtype is None else wanted.compute
        if combine == "add" and (step := _constant(source)) is not None and _are_exact(carried, step, source.shape[place]):
            return cast_tensor(_progression(source, place, carried, step, exclusive), wanted)
        out = x.fusion.new_tensor([new_axis(e) for e in source.shape], carried, location=location)
        made = x.fusion.define(Scan(out, COMBINES[combine], (broadcast_read(source, source.shape),), place, location, exclusive))
        return cast_tensor(made, wanted)


def _constant(x: TensorView) -> int | None:
    """The integer that all elements of a tensor are, if one is known."""
    match x.fusion.definition(resolve(x.fusion, broadcast_read(x, x.shape)).tensor):
        case Pointwise(op=op, operands=(Literal(value=value),)) if op is ELEMENTWISE["copy"] and float(value).is_integer():
            return int(value)
        case _:
            return None


def _are_exact(dtype: DType, step: int, extent: Expr) -> bool:
    """True if a dtype has all multiples of an integer up to that of an extent: then these are what a sum of it comes to, in whatever order."""
    if not isinstance(extent, Const) or dtype.is_bool:
        return False
    most = EXACT.get(dtype, 0) if dtype.is_float else int(dtype.max_value)
    return abs(step) * extent.value <= most and (step >= 0 or dtype.min_value < 0)


def _progression(x: TensorView, axis: int, dtype: DType, step: int, exclusive: bool) -> TensorView:
    """The sums of equal elements, which need no scan: multiples of them."""
    index = iteration_symbol(axis) if exclusive else iteration_symbol(axis) + 1
    found = cast_tensor(define_pointwise(x.fusion, ELEMENTWISE["copy"], x.shape, (IndexValue(index),), int64), dtype)
    return found if step == 1 else mul(found, step)
