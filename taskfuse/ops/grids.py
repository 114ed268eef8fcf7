"""Elements at positions that a tensor holds: grid_sample.

A position is a number in each of the last dimensions of the input, from -1 to 1. Each element of the result is a sum of the elements around its position: reads
at computed indices (:mod:`taskfuse.ops.gather`), multiplied by weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from enum import Enum

from taskfuse.dtypes import DType, int64
from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.expr import Read
from taskfuse.ir.scalar import Expr
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, dtype_error, shape_error, typed
from taskfuse.ops.elementwise import abs, add, eq, floor, floor_divide, fmod, ge, logical_and, lt, maximum, minimum, mul, remainder, sub, where
from taskfuse.ops.gather import define_gather
from taskfuse.ops.pointwise import round
from taskfuse.ops.registry import OpKind, op
from taskfuse.ops.resample import cubic_weights
from taskfuse.ops.views import expand_dims

__all__ = ["grid_sample"]


class _Padding(Enum):
    """The values outside the input: zeros, its outermost elements, or its mirror image."""

    ZEROS = "zeros"
    BORDER = "border"
    REFLECTION = "reflection"


class _Sampling(Enum):
    """How an element between elements is made."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"


def _one_float(dtypes: Sequence[DType]) -> DType | None:
    return dtypes[0] if dtypes[0].is_float and dtypes[0] is dtypes[-1] else None


@op(OpKind.GATHER, _one_float, torch="grid_sample", numpy="")
def grid_sample(x: TensorView, grid: TensorView, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool = False) -> TensorView:
    """The elements of ``x [N, C, ..., H, W]`` at the positions ``grid [N, ..., h, w, d]``: ``[N, C, ..., h, w]``, as ``torch.nn.functional.grid_sample``.

    Args:
        x: floats, with one to three dimensions after N and C.
        grid: for each element of the result its position in the last d dimensions of ``x``, the last one first; of its dtype.
        mode: ``bilinear``: the elements around a position, weighted by their distance; ``nearest``; ``bicubic``: four in each of two dimensions.
        padding_mode: outside are ``zeros``; the outermost elements (``border``); or all elements mirrored (``reflection``).
        align_corners: -1 and 1 are the centers of the outermost elements, otherwise their outer edges.

    Raises:
        ShapeError: if the shapes do not fit, or ``bicubic`` is asked for in other than two dimensions.
        DTypeError: for another mode, or unless both are floats of one dtype.
    """
    for tv in (x, grid):
        check_tensor("grid_sample", tv)
    fusion = common_fusion("grid_sample", (x, grid))
    dims = x.ndim - 2
    if not x.dtype.is_float or grid.dtype is not x.dtype:
        raise dtype_error("grid_sample", f"{typed(x)} and {typed(grid)} are not floats of one dtype", "cast them first")
    if dims < 1 or grid.ndim != dims + 2 or grid.shape[0] is not x.shape[0] or str(grid.shape[-1]) != str(dims):
        raise shape_error("grid_sample", f"{described(grid)} does not hold positions in {described(x)}", "give x [N, C, H, W] and a grid [N, h, w, 2]")
    try:
        kind, padding = _Sampling(mode), _Padding(padding_mode)
    except ValueError:
        names = ", ".join(m.value for m in (*_Sampling, *_Padding))
        raise dtype_error("grid_sample", f"{shown(mode)} and {shown(padding_mode)} are not a mode and a padding", f"use one of each of {names}") from None
    if kind is _Sampling.BICUBIC and dims != 2:
        raise shape_error("grid_sample", f"bicubic sampling in {dims} dimensions", "use bilinear")
    with fusion.call():
        wide = x.dtype.compute
        places = [cast_tensor(grid[..., dims - 1 - d], wide) for d in range(dims)]
        sizes = x.shape[2:]
        places = [_unnormalized(p, n, align_corners) for p, n in zip(places, sizes, strict=True)]
        if kind is not _Sampling.BICUBIC:
            places = [_inside(p, n, padding, align_corners) for p, n in zip(places, sizes, strict=True)]
        taps: list[list[tuple[TensorView, TensorView | None]]] = []
        for place, size in zip(places, sizes, strict=True):
            match kind:
                case _Sampling.NEAREST:
                    taps.append([(round(place), None)])
                case _Sampling.BILINEAR:
                    low = floor(place)
                    part = sub(place, low)
                    taps.append([(low, sub(1.0, part)), (add(low, 1.0), part)])
                case _Sampling.BICUBIC:
                    low = floor(place)
                    weights = cubic_weights(sub(place, low))
                    taps.append([(_inside(add(low, float(k)), size, padding, align_corners), w) for k, w in enumerate(weights, start=-1)])
        found: TensorView | None = None
        for chosen in itertools.product(*taps):
            term = cast_tensor(_elements(x, [at for at, _ in chosen]), wide)
            for _, weight in chosen:
                term = term if weight is None else mul(term, expand_dims(weight, 1))
            found = term if found is None else add(found, term)
        assert found is not None
        return cast_tensor(found, x.dtype)


def _unnormalized(place: TensorView, size: Expr, align_corners: bool) -> TensorView:
    """A place from -1 to 1 as an index of a dimension."""
    if align_corners:
        return mul(mul(add(place, 1.0), 0.5), size - 1)
    return mul(sub(mul(add(place, 1.0), size), 1.0), 0.5)


def _inside(place: TensorView, size: Expr, padding: _Padding, align_corners: bool) -> TensorView:
    """A place moved into a dimension, unless there are zeros outside."""
    match padding:
        case _Padding.ZEROS:
            return place
        case _Padding.BORDER:
            return minimum(maximum(place, 0.0), size - 1)
        case _Padding.REFLECTION:
            first, length = (0.0, size - 1) if align_corners else (-0.5, size)
            distance = abs(sub(place, first))
            turns, rest = floor_divide(distance, length), fmod(distance, length)
            mirrored = where(eq(remainder(turns, 2.0), 0.0), add(rest, first), sub(add(sub(0.0, rest), length), -first))
            single = where(eq(rest, rest), mirrored, 0.0)  # of one element there is no length
            return minimum(maximum(single, 0.0), size - 1)


def _elements(x: TensorView, at: list[TensorView]) -> TensorView:
    """The elements of ``x`` at integer places in its last dimensions; 0 outside."""
    shape = (*x.shape[:2], *at[0].shape[1:])
    values: list[tuple[Read, Expr]] = []
    for d, place in enumerate(at):
        size = x.shape[2 + d]
        is_inside = logical_and(ge(place, 0.0), lt(place, size))
        number = where(is_inside, cast_tensor(place, int64), size)
        values.append((Read(number, (iteration_symbol(0), *map(iteration_symbol, range(2, len(shape))))), size))
    index = [iteration_symbol(0), iteration_symbol(1), *(value_symbol(d) for d in range(len(at)))]
    return define_gather(x, shape, index, values)
