"""Scans by any associative function of one or more tensors: linear recurrences, scans of segments.

Steps of 1, 2, 4, ... indices: after each, an element has the combination of twice as many (Hillis and Steele, "Data Parallel Algorithms", CACM 1986), so
that N elements take log2(N) elementwise steps, whatever the function is. Sums and extremes have scans of their own (:mod:`taskfuse.ops.scan`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from taskfuse.dtypes import bool_, int64, result_type
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.scalar import Const
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import broadcast_shape, cast_tensor, check_tensor, common_fusion, define_pointwise, dtype_error, normalize_axis, shape_error
from taskfuse.ops.elementwise import add, mul, where
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OpKind, op, promoted, same
from taskfuse.ops.select import pad
from taskfuse.ops.views import broadcast_to

__all__ = ["associative_scan", "linear_recurrence", "segmented_cumsum"]

Combining = Callable[[Any, Any], Sequence[TensorView] | TensorView]


@op(OpKind.SCAN, promoted, torch="", numpy="")
@axial
def associative_scan(combine: Combining, *operands: TensorView, axis: int = -1) -> tuple[TensorView, ...]:
    """For each index along ``axis``, the combination of all elements up to it, for any number of tensors at once, as ``jax.lax.associative_scan``.

    Args:
        combine: from the combinations of two adjacent ranges, the earlier first, to that of both, each a tensor, or of several operands a tuple of as many
            tensors; it must be associative, elementwise, and keep dtypes. Empty ranges are passed as zeros, and their results are not used.

    Raises:
        ShapeError: the operands do not broadcast, ``axis`` is out of range or its extent is not constant, or ``combine`` gives another number of tensors.
        DTypeError: ``combine`` changes a dtype.
    """
    tensors = tuple(check_tensor("associative_scan", x) for x in operands)
    if not tensors:
        raise shape_error("associative_scan", "no tensors are given", "give one or more")
    fusion = common_fusion("associative_scan", tensors)
    shape = broadcast_shape("associative_scan", tensors)
    place = normalize_axis("associative_scan", axis, len(shape), "the operands")
    extent = shape[place]
    if not isinstance(extent, Const):
        raise shape_error("associative_scan", f"the number of steps for {extent} elements is not constant", "give the axis a constant extent")
    with fusion.call():
        found = tuple(broadcast_to(x, list(shape)) for x in tensors)
        index = define_pointwise(fusion, ELEMENTWISE["copy"], shape, (IndexValue(iteration_symbol(place)),), int64)
        step = 1
        while step < extent.value:
            found = _doubled(combine, found, place, step, index)
            step *= 2
    return found


def _doubled(combine: Combining, found: tuple[TensorView, ...], place: int, step: int, index: TensorView) -> tuple[TensorView, ...]:
    """Each element combined with that ``step`` indices before it, where there is one."""
    ahead = [(step, -step) if d == place else (0, 0) for d in range(found[0].ndim)]
    earlier = tuple(pad(x, ahead) for x in found)
    made = combine(earlier[0], found[0]) if len(found) == 1 else combine(earlier, found)
    both = (made,) if isinstance(made, TensorView) else tuple(made)
    if len(both) != len(found):
        raise shape_error("associative_scan", f"combine returns {len(both)} tensors for two sets of {len(found)}", "let it return one set")
    for old, new in zip(found, both, strict=True):
        if new.dtype is not old.dtype:
            raise dtype_error("associative_scan", f"combine returns {new.dtype} for {old.dtype}", "cast its results back, or the operands before")
    return tuple(where(index >= step, new, old) for old, new in zip(found, both, strict=True))


@op(OpKind.SCAN, promoted, torch="", numpy="")
@axial
def linear_recurrence(x: TensorView, decay: TensorView, axis: int = -1) -> TensorView:
    """All states of ``s = s * decay + x`` along ``axis``, from ``s = 0``; :func:`decayed_sum` is the last. Otherwise as :func:`associative_scan`.

    Floats below 32 bits are computed in float32. Of two ranges, the decays multiply, and the earlier state decays by the later range's (Blelloch,
    "Prefix Sums and Their Applications", 1990, section 1.4).
    """
    check_tensor("linear_recurrence", x)
    check_tensor("linear_recurrence", decay)
    wanted = result_type(x.dtype, decay.dtype)

    def both(earlier: tuple[TensorView, ...], later: tuple[TensorView, ...]) -> tuple[TensorView, ...]:
        return mul(earlier[0], later[0]), add(mul(earlier[1], later[0]), later[1])

    with x.fusion.call():
        return cast_tensor(associative_scan(both, cast_tensor(decay, wanted.compute), cast_tensor(x, wanted.compute), axis=axis)[1], wanted)


@op(OpKind.SCAN, same, torch="", numpy="")
@axial
def segmented_cumsum(x: TensorView, starts: TensorView, axis: int = -1) -> TensorView:
    """:func:`cumsum` along ``axis`` that restarts wherever ``starts`` (bool) is true. Otherwise as :func:`associative_scan`.

    Sums are in the dtype of ``x``; floats below 32 bits are added in float32.

    Raises:
        DTypeError: ``starts`` is not bool.
    """
    check_tensor("segmented_cumsum", x)
    if check_tensor("segmented_cumsum", starts).dtype is not bool_:
        raise dtype_error("segmented_cumsum", f"starts is {starts.dtype}", "give a bool tensor, such as ids != previous")

    def both(earlier: tuple[TensorView, ...], later: tuple[TensorView, ...]) -> tuple[TensorView, ...]:
        return earlier[0] | later[0], where(later[0], later[1], add(earlier[1], later[1]))

    with x.fusion.call():
        return cast_tensor(associative_scan(both, starts, cast_tensor(x, x.dtype.compute), axis=axis)[1], x.dtype)
