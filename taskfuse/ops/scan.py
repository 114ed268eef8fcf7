"""Scans: each element combined with all elements before it along one dimension, or, if it is exclusive, these alone.

Floats below 32 bits are accumulated in float32, and each result is cast once.
"""

from __future__ import annotations

from taskfuse.dtypes import DType, DTypeLike
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.expr import Scan
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import broadcast_read, cast_tensor, check_tensor, described, normalize_axis
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import accumulated_dtype
from taskfuse.ops.registry import OpKind, op, same, total
from taskfuse.ops.views import reshape

__all__ = ["cummax", "cummin", "cumprod", "cumsum"]


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


def _scan(op: str, combine: str, x: TensorView, axis: int | None, dtype: DType | None, exclusive: bool) -> TensorView:
    check_tensor(op, x)
    place = 0 if axis is None else normalize_axis(op, axis, x.ndim, described(x))
    wanted = x.dtype if dtype is None else dtype
    location = caller()
    with x.fusion.call():
        source = reshape(x, [-1]) if axis is None else x
        carried = wanted if dtype is None else wanted.compute
        out = x.fusion.new_tensor([new_axis(e) for e in source.shape], carried, location=location)
        made = x.fusion.define(Scan(out, COMBINES[combine], (broadcast_read(source, source.shape),), place, location, exclusive))
        return cast_tensor(made, wanted)
