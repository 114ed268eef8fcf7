"""Statistics: reductions that leave NaN out, counts, ranges, norms, quantiles.

Floats below 32 bits are computed in float32 throughout; the result is cast once.
"""

from __future__ import annotations

import math

from taskfuse.dtypes import bool_, int64
from taskfuse.errors import shown
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import le, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.activations import wide as wide_of
from taskfuse.ops.build import (
    cast_tensor,
    check_tensor,
    common_fusion,
    described,
    dtype_error,
    normalize_axes,
    normalize_axis,
    plain,
    shape_error,
    total_dtype,
    typed,
)
from taskfuse.ops.elementwise import abs, add, copy, div, eq, floor_divide, isnan, maximum, mul, ne, pow, sqrt, square, sub, where
from taskfuse.ops.elementwise import le as le_
from taskfuse.ops.gather import take_along_axis
from taskfuse.ops.keywords import axial
from taskfuse.ops.order import sort, sort_with_indices
from taskfuse.ops.rearrange import sliced
from taskfuse.ops.reduce import Axes, max, mean, min, reduce_axes
from taskfuse.ops.registry import OpKind, always, floating, floating_only, numeric, op, same, total
from taskfuse.ops.views import expand_dims, squeeze

__all__ = ["aminmax", "average", "count_nonzero", "nanmax", "nanmean", "nanmedian", "nanmin", "nanstd", "nansum", "nanvar", "ptp", "quantile", "vector_norm"]

_ADD = COMBINES["add"]


def _numbers(x: TensorView, fill: float) -> TensorView:
    """``x`` with ``fill`` for NaN."""
    return where(isnan(x), fill, x) if x.dtype.is_float else x


@op(OpKind.REDUCTION, total)
@axial
def nansum(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The sum of the elements over ``axis`` that are not NaN; dtypes as in :func:`sum`."""
    check_tensor("nansum", x)
    axes, wanted = normalize_axes("nansum", axis, x), total_dtype(x.dtype)
    with x.fusion.call():
        return cast_tensor(reduce_axes(_numbers(x, 0.0), axes, _ADD, wanted.compute, keepdims), wanted)


@op(OpKind.REDUCTION, floating)
@axial
def nanmean(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The mean of the elements over ``axis`` that are not NaN, a float; NaN if all are."""
    check_tensor("nanmean", x)
    axes = normalize_axes("nanmean", axis, x)
    with x.fusion.call():
        value, dtype = wide_of(x)
        number = reduce_axes(cast_tensor(eq(value, value), value.dtype), axes, _ADD, value.dtype, keepdims)
        return cast_tensor(div(reduce_axes(_numbers(value, 0.0), axes, _ADD, value.dtype, keepdims), number), dtype)


@op(OpKind.REDUCTION, floating, torch="")
@axial
def nanvar(x: TensorView, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> TensorView:
    """The variance of the elements over ``axis`` that are not NaN, with their number less ``correction`` as divisor; a float, NaN if that is not positive."""
    check_tensor("nanvar", x)
    axes = normalize_axes("nanvar", axis, x)
    with x.fusion.call():
        value, dtype = wide_of(x)
        is_number = eq(value, value)
        number = reduce_axes(cast_tensor(is_number, value.dtype), axes, _ADD, value.dtype, keepdims=True)
        middle = div(reduce_axes(_numbers(value, 0.0), axes, _ADD, value.dtype, keepdims=True), number)
        total = reduce_axes(where(is_number, square(sub(value, middle)), 0.0), axes, _ADD, value.dtype, keepdims=True)
        divisor = number if correction == 0 else sub(number, float(correction))
        found = where(le_(divisor, 0.0), math.nan, div(total, divisor))
        return cast_tensor(found if keepdims else squeeze(found, axes), dtype)


@op(OpKind.REDUCTION, floating, torch="")
@axial
def nanstd(x: TensorView, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> TensorView:
    """The square root of :func:`nanvar`."""
    check_tensor("nanstd", x)
    with x.fusion.call():
        value, dtype = wide_of(x)
        return cast_tensor(sqrt(nanvar(value, axis, keepdims, correction)), dtype)


def _extreme(op: str, combine: str, x: TensorView, axis: Axes, keepdims: bool) -> TensorView:
    check_tensor(op, x)
    axes = normalize_axes(op, axis, x)
    with x.fusion.call():
        if not x.dtype.is_float:
            return reduce_axes(x, axes, COMBINES[combine], x.dtype, keepdims)
        fill = x.dtype.lowest if combine == "maximum" else x.dtype.highest
        found = reduce_axes(_numbers(x, float(fill)), axes, COMBINES[combine], x.dtype, keepdims)
        return where(reduce_axes(isnan(x), axes, COMBINES["logical_and"], bool_, keepdims), math.nan, found)


@op(OpKind.REDUCTION, same, torch="")
@axial
def nanmax(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The maximum of the elements over ``axis`` that are not NaN; NaN if all are."""
    return _extreme("nanmax", "maximum", x, axis, keepdims)


@op(OpKind.REDUCTION, same, torch="")
@axial
def nanmin(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The minimum of the elements over ``axis`` that are not NaN; NaN if all are."""
    return _extreme("nanmin", "minimum", x, axis, keepdims)


@op(OpKind.COMPOSITE, same, torch="nanmedian", numpy="")
@axial
def nanmedian(x: TensorView, axis: int, keepdims: bool = False) -> tuple[TensorView, TensorView]:
    """The median of the elements along ``axis`` that are not NaN, the lesser of two, and its index (int64), as ``torch.nanmedian``; NaN if all are.

    Raises :class:`ShapeError` if ``axis`` is out of range, or its extent is not provably positive and at most 2^20.
    """
    check_tensor("nanmedian", x)
    place = normalize_axis("nanmedian", axis, x.ndim, described(x))
    if not prove(le(1, x.shape[place]), x.fusion.facts()):
        raise shape_error("nanmedian", f"dimension {place} of {described(x)} may have no elements", "declare the extent with tf.dim(..., min=1)")
    with x.fusion.call():
        values, indices = sort_with_indices(x, place)
        number = reduce_axes(cast_tensor(eq(x, x), int64), (place,), _ADD, int64, keepdims=True)
        middle = maximum(floor_divide(sub(number, 1), 2), 0)
        found = tuple(take_along_axis(tv, middle, place) for tv in (values, indices))
        value, index = found if keepdims else (squeeze(tv, place) for tv in found)
        return value, index


@op(OpKind.REDUCTION, always(int64))
@axial
def count_nonzero(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The number of nonzero elements over ``axis``, int64."""
    check_tensor("count_nonzero", x)
    axes = normalize_axes("count_nonzero", axis, x)
    with x.fusion.call():
        is_counted = x if x.dtype.is_bool else ne(x, 0)
        return reduce_axes(cast_tensor(is_counted, int64), axes, _ADD, int64, keepdims)


@op(OpKind.REDUCTION, same, numpy="")
@axial
def aminmax(x: TensorView, axis: int | None = None, keepdims: bool = False) -> tuple[TensorView, TensorView]:
    """The minimum and the maximum over ``axis``; NaN if an element is NaN."""
    check_tensor("aminmax", x)
    with x.fusion.call():
        return min(x, axis, keepdims), max(x, axis, keepdims)


@op(OpKind.REDUCTION, numeric, torch="")
@axial
def ptp(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The difference of the maximum and the minimum over ``axis``. Not for bool."""
    check_tensor("ptp", x)
    with x.fusion.call():
        return sub(max(x, axis, keepdims), min(x, axis, keepdims))


@op(OpKind.REDUCTION, floating, torch="")
@axial
def average(x: TensorView, axis: Axes = None, weights: TensorView | None = None, keepdims: bool = False) -> TensorView:
    """The mean over ``axis`` weighted by ``weights``, which have the shape of ``x``, or of its one ``axis``; a float, as ``np.average``.

    Raises :class:`ShapeError` for weights of another shape.
    """
    check_tensor("average", x)
    axes = normalize_axes("average", axis, x)
    if weights is not None:
        check_tensor("average", weights)
        common_fusion("average", (x, weights))
        along = weights.ndim == 1 and len(axes) == 1 and weights.shape[0] is x.shape[axes[0]]
        if not along and weights.shape != x.shape:
            raise shape_error("average", f"weights {described(weights)} have neither the shape of {described(x)} nor that of one axis", "broadcast them first")
    if weights is None:
        return mean(x, axis, keepdims)
    with x.fusion.call():
        value, dtype = wide_of(x)
        weight = cast_tensor(weights, value.dtype)
        if weights.shape == x.shape:
            divisor = reduce_axes(weight, axes, _ADD, value.dtype, keepdims)
        else:
            divisor = reduce_axes(weight, (0,), _ADD, value.dtype, keepdims=False)
            weight = expand_dims(weight, tuple(d for d in range(x.ndim) if d != axes[0]))
        return cast_tensor(div(reduce_axes(mul(value, weight), axes, _ADD, value.dtype, keepdims), divisor), dtype)


@op(OpKind.REDUCTION, floating_only, torch="linalg_vector_norm", numpy="linalg.norm")
@axial
def vector_norm(x: TensorView, ord: float = 2, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The norm of order ``ord`` over ``axis``: ``sum(abs(x)^ord)^(1/ord)``; the greatest magnitude for inf, the least for -inf, the count of nonzeros for 0.

    Raises :class:`DTypeError` unless ``x`` is a float.
    """
    check_tensor("vector_norm", x)
    axes = normalize_axes("vector_norm", axis, x)
    if not x.dtype.is_float:
        raise dtype_error("vector_norm", f"{typed(x)} is not a float", "cast to a float first")
    order = plain(ord)
    if isinstance(order, bool) or not isinstance(order, int | float):
        raise shape_error("vector_norm", f"{shown(ord)} is not the order of a norm", "give a number; the dimensions are axis=")
    with x.fusion.call():
        value, dtype = wide_of(x)

        def total(terms: TensorView) -> TensorView:
            return reduce_axes(terms, axes, _ADD, value.dtype, keepdims)

        if math.isinf(ord):
            found = reduce_axes(abs(value), axes, COMBINES["maximum" if ord > 0 else "minimum"], value.dtype, keepdims)
        elif ord == 0:
            found = total(cast_tensor(ne(value, 0.0), value.dtype))
        elif ord == 1:
            found = total(abs(value))
        elif ord == 2:
            found = sqrt(total(square(value)))
        else:
            found = pow(total(pow(abs(value), float(ord))), 1 / ord)
        return cast_tensor(found, dtype)


@op(OpKind.COMPOSITE, floating_only, torch="", numpy="")
@axial
def quantile(x: TensorView, q: float, axis: int = -1, keepdims: bool = False) -> TensorView:
    """The quantile ``q`` of the elements along ``axis``, interpolated between the two nearest, as ``np.quantile``. NaN if an element is NaN.

    Raises:
        ShapeError: unless ``0 <= q <= 1``, or if the extent of ``axis`` is not a positive constant of at most 2^20.
        DTypeError: unless ``x`` is a float.
    """
    check_tensor("quantile", x)
    place = normalize_axis("quantile", axis, x.ndim, described(x))
    if not x.dtype.is_float:
        raise dtype_error("quantile", f"{typed(x)} is not a float", "cast to a float first")
    part = plain(q)
    if isinstance(part, bool) or not isinstance(part, int | float) or not 0 <= part <= 1:
        raise shape_error("quantile", f"q is {shown(q)}", "use a number from 0 to 1")
    size = x.shape[place]
    if size.free or int(size) < 1:
        raise shape_error("quantile", f"dimension {place} of {described(x)} is not a positive constant", "tf.sort takes symbolic extents")
    with x.fusion.call():
        values = sort(x, place)
        value, dtype = wide_of(values)
        at = q * (int(size) - 1)
        low = math.floor(at)
        high = low + 1 if low + 1 < int(size) else low
        below, above = sliced(value, place, low, low + 1), sliced(value, place, high, high + 1)
        found = add(below, mul(sub(above, below), at - low)) if high != low else copy(below)
        found = where(isnan(sliced(value, place, int(size) - 1, int(size))), math.nan, found)
        found = cast_tensor(found, dtype)
        return found if keepdims else squeeze(found, place)
