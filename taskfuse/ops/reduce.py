"""Reductions.

Floats below 32 bits are accumulated in float32 and the result is cast once (maximum and minimum are exact in any dtype). A reduction over no
elements gives the neutral element: 0, 1, the lowest, the highest value, false, true.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType, DTypeLike, as_dtype, bool_, float64
from taskfuse.ir.axes import AxisKind, axis, iteration_symbol
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import Literal, Read, Reduction
from taskfuse.ir.scalar import ONE, Expr, maximum
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import cast_tensor, check_tensor, define_pointwise, divide_by_count, normalize_axes, shape_error, total_dtype
from taskfuse.ops.elementwise import sqrt, sub
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OpKind, always, floating, op, same, total
from taskfuse.ops.views import expand_dims, squeeze

__all__ = ["all", "any", "max", "mean", "min", "prod", "std", "sum", "var", "var_mean"]

Axes = int | Sequence[int] | None
_COPY = ELEMENTWISE["copy"]


def reduce_axes(x: TensorView, axes: Sequence[int], combine: Combine, dtype: DType, keepdims: bool, body: Elementwise = _COPY) -> TensorView:
    """``combine`` of ``body(x)`` over sorted axes, computed in ``dtype``; kept dimensions are a view of the result."""
    location = caller()
    read = Read(x, tuple(iteration_symbol(d) for d in range(x.ndim)))
    if not axes:
        op = ELEMENTWISE["cast"] if body is _COPY and dtype is not x.dtype else body
        return define_pointwise(x.fusion, op, x.shape, (read,), dtype)
    root = [axis(e, AxisKind.REDUCTION if d in axes else AxisKind.ITERATION) for d, e in enumerate(x.shape)]
    out = x.fusion.new_tensor(root, dtype, location=location)
    out = x.fusion.define(Reduction(out, combine, body, (read,), Literal(combine.neutral(dtype), dtype), location))
    return expand_dims(out, tuple(axes)) if keepdims else out


def accumulated_dtype(x: TensorView, dtype: DTypeLike | None) -> DType:
    """The dtype of a sum or product of elements: the given one, or that of ``x``, int64 or uint64 for bool and integers."""
    return total_dtype(x.dtype) if dtype is None else as_dtype(dtype)


def _accumulate(op: str, combine: str, x: TensorView, axis: Axes, keepdims: bool, dtype: DTypeLike | None) -> TensorView:
    check_tensor(op, x)
    axes = normalize_axes(op, axis, x)
    wanted = accumulated_dtype(x, dtype)
    with x.fusion.call():
        return cast_tensor(reduce_axes(x, axes, COMBINES[combine], wanted.compute, keepdims), wanted)


@op(OpKind.REDUCTION, total)
@axial
def sum(x: TensorView, axis: Axes = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> TensorView:
    """The sum over ``axis`` (all axes if ``None``), in ``dtype``: by default that of ``x``, int64 or uint64 for bool and integers."""
    return _accumulate("sum", "add", x, axis, keepdims, dtype)


@op(OpKind.REDUCTION, total)
@axial
def prod(x: TensorView, axis: Axes = None, keepdims: bool = False, dtype: DTypeLike | None = None) -> TensorView:
    """The product over ``axis``; dtypes as in :func:`sum`."""
    return _accumulate("prod", "mul", x, axis, keepdims, dtype)


def _extreme(op: str, combine: str, x: TensorView, axis: Axes, keepdims: bool) -> TensorView:
    check_tensor(op, x)
    axes = normalize_axes(op, axis, x)
    with x.fusion.call():
        return reduce_axes(x, axes, COMBINES[combine], x.dtype, keepdims)


@op(OpKind.REDUCTION, same, torch="max amax")
@axial
def max(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The maximum over ``axis``, NaN if an element is NaN; the lowest value of the dtype over no elements."""
    return _extreme("max", "maximum", x, axis, keepdims)


@op(OpKind.REDUCTION, same, torch="min amin")
@axial
def min(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The minimum over ``axis``, NaN if an element is NaN; the highest value of the dtype over no elements."""
    return _extreme("min", "minimum", x, axis, keepdims)


def _truth(op: str, combine: str, x: TensorView, axis: Axes, keepdims: bool) -> TensorView:
    check_tensor(op, x)
    axes = normalize_axes(op, axis, x)
    with x.fusion.call():
        return reduce_axes(x, axes, COMBINES[combine], bool_, keepdims)


@op(OpKind.REDUCTION, always(bool_))
@axial
def any(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """True where an element over ``axis`` is not 0."""
    return _truth("any", "logical_or", x, axis, keepdims)


@op(OpKind.REDUCTION, always(bool_))
@axial
def all(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """True where every element over ``axis`` is not 0."""
    return _truth("all", "logical_and", x, axis, keepdims)


# -- statistics -------------------------------------------------------------------------------------------------------------------------


def count(x: TensorView, axes: Sequence[int]) -> Expr:
    """The number of elements over ``axes``."""
    total: Expr = ONE
    for a in axes:
        total = total * x.shape[a]
    return total


def mean_axes(x: TensorView, axes: Sequence[int], keepdims: bool) -> TensorView:
    """The mean over sorted axes of a tensor, in the compute dtype of its float dtype (float64 for integers)."""
    wide = x.dtype.compute if x.dtype.is_float else float64
    return divide_by_count(reduce_axes(x, axes, COMBINES["add"], wide, keepdims), count(x, axes))


def centered(x: TensorView, axes: Sequence[int]) -> TensorView:
    """``x`` less its mean over sorted axes, in the compute dtype."""
    return sub(x, mean_axes(x, axes, keepdims=True))


def mean_square(x: TensorView, axes: Sequence[int], keepdims: bool, correction: int = 0) -> TensorView:
    """The sum of squares over sorted axes of a tensor in its compute dtype, over the number of elements less ``correction``."""
    total = reduce_axes(x, axes, COMBINES["add"], x.dtype, keepdims, ELEMENTWISE["square"])
    return divide_by_count(total, maximum(count(x, axes) - correction, 0) if correction else count(x, axes))


@op(OpKind.REDUCTION, floating)
@axial
def mean(x: TensorView, axis: Axes = None, keepdims: bool = False) -> TensorView:
    """The arithmetic mean over ``axis``, a float: float64 for bool and integers. Over no elements it is NaN."""
    check_tensor("mean", x)
    axes = normalize_axes("mean", axis, x)
    with x.fusion.call():
        return cast_tensor(mean_axes(x, axes, keepdims), _float_dtype(x))


@op(OpKind.REDUCTION, floating)
@axial
def var(x: TensorView, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> TensorView:
    """The variance over ``axis``: the sum of squared distances from the mean, divided by the number of elements less ``correction``.

    Raises :class:`ShapeError` for a negative ``correction``.
    """
    axes = _check_var("var", x, axis, correction)
    with x.fusion.call():
        return cast_tensor(mean_square(centered(x, axes), axes, keepdims, correction), _float_dtype(x))


@op(OpKind.REDUCTION, floating)
@axial
def std(x: TensorView, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> TensorView:
    """The square root of :func:`var`."""
    axes = _check_var("std", x, axis, correction)
    with x.fusion.call():
        return cast_tensor(sqrt(mean_square(centered(x, axes), axes, keepdims, correction)), _float_dtype(x))


@op(OpKind.REDUCTION, floating, numpy="")
@axial
def var_mean(x: TensorView, axis: Axes = None, keepdims: bool = False, correction: int = 0) -> tuple[TensorView, TensorView]:
    """:func:`var` and :func:`mean`; the mean is computed once. ``correction`` is 0 by default, as in NumPy; in torch it is 1."""
    axes = _check_var("var_mean", x, axis, correction)
    with x.fusion.call():
        middle = mean_axes(x, axes, keepdims=True)
        distance = sub(cast_tensor(x, middle.dtype), middle)
        spread = cast_tensor(mean_square(distance, axes, keepdims, correction), _float_dtype(x))
        return spread, cast_tensor(middle if keepdims else squeeze(middle, axes), _float_dtype(x))


def _check_var(op: str, x: TensorView, axis: Axes, correction: int) -> tuple[int, ...]:
    check_tensor(op, x)
    if correction < 0:
        raise shape_error(op, f"correction is {correction}", "use 0 for the population's variance, 1 for the sample's")
    return normalize_axes(op, axis, x)


def _float_dtype(x: TensorView) -> DType:
    return x.dtype if x.dtype.is_float else float64
