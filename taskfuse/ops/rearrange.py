"""Rearranged elements: dimensions exchanged, joined and repeated, windows, pieces, diagonals (all views), and differences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from taskfuse.dtypes import DType
from taskfuse.errors import shown
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.scalar import ONE, ZERO, Const, Expr, IntLike, and_, le, minimum, prove, simplify, wrap
from taskfuse.ir.tensor import Scalar, TensorView, Value
from taskfuse.ops.build import cast_tensor, check_symbols, check_tensor, described, facts_help, listed, normalize_axis, plain, shape_error
from taskfuse.ops.create import arange_like
from taskfuse.ops.elementwise import add, ne, sub
from taskfuse.ops.gather import take
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import sum as total_of
from taskfuse.ops.registry import OpKind, op, same, total
from taskfuse.ops.views import broadcast_to, expand_dims, permute, reshape, view

__all__ = [
    "as_strided",
    "chunk",
    "diagonal",
    "diff",
    "flatten",
    "moveaxis",
    "narrow",
    "ravel",
    "repeat",
    "roll",
    "split",
    "swapaxes",
    "tile",
    "trace",
    "unfold",
]


def count(name: str, what: str, value: object, least: int = 0) -> int:
    """``value`` as an integer constant. Raises :class:`ShapeError`."""
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int) or found < least:
        raise shape_error(name, f"{shown(value)} is not a {what}", f"use an integer of at least {least}")
    return found


# -- dimensions -------------------------------------------------------------------------------------------------------------------------


@op(OpKind.VIEW, same, torch="swapaxes swapdims")
def swapaxes(x: TensorView, axis1: int, axis2: int) -> TensorView:
    """``x`` with two dimensions exchanged: a view."""
    check_tensor("swapaxes", x)
    a, b = (normalize_axis("swapaxes", d, x.ndim, described(x)) for d in (axis1, axis2))
    return permute(x, [b if d == a else a if d == b else d for d in range(x.ndim)])


@op(OpKind.VIEW, same, torch="moveaxis movedim")
def moveaxis(x: TensorView, source: int | Sequence[int], destination: int | Sequence[int]) -> TensorView:
    """``x`` with the dimensions ``source`` at the positions ``destination``, the others in their order: a view. Raises :class:`ShapeError`."""
    check_tensor("moveaxis", x)
    old, new = ([normalize_axis("moveaxis", d, x.ndim, described(x)) for d in listed("moveaxis", given, "axes")] for given in (source, destination))
    if len(old) != len(new) or len(set(old)) < len(old) or len(set(new)) < len(new):
        raise shape_error("moveaxis", f"axes {old} do not go to {new}", "give one place for each axis, all different")
    rest = iter(d for d in range(x.ndim) if d not in old)
    return permute(x, [old[new.index(d)] if d in new else next(rest) for d in range(x.ndim)])


@op(OpKind.VIEW, same, numpy="")
def flatten(x: TensorView, start: int = 0, stop: int = -1) -> TensorView:
    """``x`` with its dimensions ``start`` to ``stop`` (both included, by default all) merged into one: a view."""
    check_tensor("flatten", x)
    if x.ndim == 0:
        return reshape(x, [1])
    first, last = (normalize_axis("flatten", d, x.ndim, described(x)) for d in (start, stop))
    if first > last:
        raise shape_error("flatten", f"dimension {first} comes after {last}", "give the first dimension, then the last")
    joined: Expr = ONE
    for e in x.shape[first : last + 1]:
        joined = joined * e
    return reshape(x, [*x.shape[:first], joined, *x.shape[last + 1 :]])


@op(OpKind.VIEW, same)
def ravel(x: TensorView) -> TensorView:
    """The elements of ``x`` in row-major order in one dimension: a view."""
    return flatten(x)


@op(OpKind.VIEW, same)
def diagonal(x: TensorView, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorView:
    """The elements of ``x`` whose index along ``axis2`` is that along ``axis1`` plus ``offset``, as the last dimension: a view.

    Raises :class:`ShapeError` if the dimensions are the same, or the diagonal is not provably within both.
    """
    a, b, at, size = diagonal_of("diagonal", x, offset, axis1, axis2)
    kept = [d for d in range(x.ndim) if d not in (a, b)]
    here = iteration_symbol(len(kept))
    index: list[Expr] = [ZERO] * x.ndim
    for k, d in enumerate(kept):
        index[d] = iteration_symbol(k)
    index[a], index[b] = here + max(-at, 0), here + max(at, 0)
    return view(x, "diagonal", [*(x.shape[d] for d in kept), size], index)


def diagonal_of(op: str, x: TensorView, offset: int, axis1: int, axis2: int) -> tuple[int, int, int, Expr]:
    """The dimensions of a diagonal counted from the front, its offset and its extent. Raises :class:`ShapeError` as :func:`diagonal` does."""
    check_tensor(op, x)
    a, b = (normalize_axis(op, d, x.ndim, described(x)) for d in (axis1, axis2))
    if a == b:
        raise shape_error(op, f"axis1 and axis2 of {described(x)} are the same axis", "give two dimensions")
    at = diagonal_number(op, offset)
    rows, columns = x.shape[a] - max(-at, 0), x.shape[b] - max(at, 0)
    facts = x.fusion.facts()
    if not prove(and_(le(0, rows), le(0, columns)), facts):
        raise shape_error(op, f"{described(x)} does not have a diagonal {at} for all extents", facts_help(x))
    return a, b, at, simplify(minimum(rows, columns), facts)


def diagonal_number(op: str, value: object) -> int:
    """The number of a diagonal. Raises :class:`ShapeError` for what is not an integer."""
    at = plain(value)
    if isinstance(at, bool) or not isinstance(at, int):
        raise shape_error(op, f"{shown(value)} is not a diagonal", "use an integer: 0 is the main one")
    return at


@op(OpKind.REDUCTION, total)
def trace(x: TensorView, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorView:
    """The sum of the :func:`diagonal`; dtypes as in :func:`sum`."""
    check_tensor("trace", x)
    with x.fusion.call():
        return total_of(diagonal(x, offset, axis1, axis2), -1)


# -- pieces -----------------------------------------------------------------------------------------------------------------------------


def sliced(x: TensorView, axis: int, start: IntLike, stop: IntLike) -> TensorView:
    """The elements ``[start, stop)`` along a dimension, which must exist: a view."""
    shape = [wrap(stop) - start if d == axis else e for d, e in enumerate(x.shape)]
    return view(x, "slice", shape, [start + iteration_symbol(d) if d == axis else iteration_symbol(d) for d in range(x.ndim)])


@op(OpKind.VIEW, same, numpy="")
@axial
def chunk(x: TensorView, chunks: int, axis: int = 0) -> tuple[TensorView, ...]:
    """``x`` in at most ``chunks`` pieces along ``axis``, all but the last one equally long, as ``torch.chunk``: views.

    Raises :class:`ShapeError` if the extent is symbolic and ``chunks`` does not provably divide it.
    """
    check_tensor("chunk", x)
    place, parts = normalize_axis("chunk", axis, x.ndim, described(x)), count("chunk", "number of pieces", chunks, 1)
    size = x.shape[place]
    length = simplify(size.ceildiv(parts), x.fusion.facts())
    if isinstance(size, Const):
        step = max(int(length), 1)
        return tuple(sliced(x, place, k, min(k + step, size.value)) for k in range(0, max(size.value, 1), step))
    if simplify(length * parts - size, x.fusion.facts()) is not ZERO:
        raise shape_error("chunk", f"{parts} pieces of dimension {place} of {described(x)} may differ in size", facts_help(x, "multiple_of="))
    return tuple(sliced(x, place, length * k, length * (k + 1)) for k in range(parts))


@op(OpKind.VIEW, same, torch="split_with_sizes split")
@axial
def split(
    x: TensorView, *, sizes: Sequence[IntLike] | None = None, sections: int | None = None, indices: Sequence[IntLike] | None = None, axis: int = 0
) -> tuple[TensorView, ...]:
    """``x`` in pieces along ``axis``: views. A number means something else in NumPy and in torch, so it needs a keyword.

    Args:
        x: the tensor.
        sizes: the length of each piece; their sum is the extent (torch).
        sections: the number of pieces of equal length (NumPy).
        indices: where a piece ends and the next one starts (NumPy).
        axis: the dimension.

    Raises :class:`ShapeError` unless exactly one of the three is given and provably fits the extent.
    """
    check_tensor("split", x)
    place = normalize_axis("split", axis, x.ndim, described(x))
    size, facts = x.shape[place], x.fusion.facts()
    if [sizes is None, sections is None, indices is None].count(False) != 1:
        raise shape_error("split", "it takes exactly one of sizes=, sections= and indices=", "tf.split(x, sizes=[2, 4]), or tf.chunk(x, 3)")
    if sections is not None:
        parts = count("split", "number of pieces", sections, 1)
        length = simplify(size // parts, facts)
        bounds = [length * k for k in range(1, parts)]
        if not _same(length * parts, size, x):
            raise shape_error("split", f"{parts} does not provably divide dimension {place} of {described(x)}", "use sizes=, or tf.chunk")
    elif sizes is not None:
        bounds: list[Expr] = []
        end: Expr = ZERO
        for length in listed("split", sizes, "sizes"):
            end = end + _extent("split", x, length)
            bounds.append(end)
        if not bounds or not _same(bounds.pop(), size, x):
            raise shape_error("split", f"sizes {sizes} do not add up to {size}, dimension {place} of {described(x)}")
    else:
        bounds = [_extent("split", x, at) for at in listed("split", indices, "indices")]
    ends = [ZERO, *bounds, size]
    for start, stop in itertools.pairwise(ends):
        if not prove(le(start, stop), facts):
            raise shape_error("split", f"a piece from {start} to {stop} is not provably one", "give ascending places, and facts with tf.dim(...)")
    return tuple(sliced(x, place, start, stop) for start, stop in itertools.pairwise(ends))


def _extent(name: str, x: TensorView, value: object) -> Expr:
    found = plain(value)
    if isinstance(found, bool) or not isinstance(found, int | Expr):
        raise shape_error(name, f"{shown(value)} is not an extent", "use an integer, or an expression of extents")
    check_symbols(name, x.fusion, found)
    return wrap(found)


def _same(a: Expr, b: Expr, x: TensorView) -> bool:
    return simplify(a - b, x.fusion.facts()) is ZERO


@op(OpKind.GATHER, same, numpy="")
@axial
def narrow(x: TensorView, axis: int, start: Value, length: IntLike) -> TensorView:
    """``length`` elements of ``x`` along ``axis`` from ``start`` on, as ``torch.narrow``: a view; if ``start`` is a run-time scalar or a 0-d tensor of
    integers, a read at computed indices, which gives 0 outside ``x`` and counts negative indices from the end.

    Raises :class:`ShapeError` if a constant or symbolic ``start`` does not provably fit.
    """
    check_tensor("narrow", x)
    place = normalize_axis("narrow", axis, x.ndim, described(x))
    extent = _extent("narrow", x, length)
    if isinstance(start, TensorView | Scalar):
        if isinstance(start, TensorView) and start.ndim:
            raise shape_error("narrow", f"start {described(start)} is not 0-d", "give one start; tf.take reads at many positions")
        with x.fusion.call():
            return take(x, add(arange_like(x.fusion, extent), start), place)
    first = _extent("narrow", x, start)
    first = x.shape[place] + first if isinstance(first, Const) and first.value < 0 else first
    if not prove(and_(le(0, first), and_(le(0, extent), le(first + extent, x.shape[place]))), x.fusion.facts()):
        raise shape_error("narrow", f"{extent} elements from {start} on are not provably in dimension {place} of {described(x)}", facts_help(x))
    return sliced(x, place, first, first + extent)


@op(OpKind.VIEW, same, numpy="")
@axial
def unfold(x: TensorView, axis: int, size: int, step: int = 1) -> TensorView:
    """Windows of ``size`` elements along ``axis``, one every ``step``, as ``torch.Tensor.unfold``: a view, with the windows as the last dimension.

    Raises :class:`ShapeError` unless the windows provably fit.
    """
    check_tensor("unfold", x)
    place = normalize_axis("unfold", axis, x.ndim, described(x))
    width, stride = count("unfold", "number of elements", size), count("unfold", "step", step, 1)
    facts = x.fusion.facts()
    if not prove(le(width, x.shape[place]), facts):
        raise shape_error("unfold", f"a window of {width} does not provably fit into dimension {place} of {described(x)}", facts_help(x))
    windows = simplify((x.shape[place] - width) // stride + 1, facts)
    index = [iteration_symbol(d) * stride + iteration_symbol(x.ndim) if d == place else iteration_symbol(d) for d in range(x.ndim)]
    return view(x, "unfold", [*(windows if d == place else e for d, e in enumerate(x.shape)), wrap(width)], index)


@op(OpKind.VIEW, same, torch="", numpy="")
def as_strided(x: TensorView, size: Sequence[IntLike], stride: Sequence[int], offset: int = 0) -> TensorView:
    """The element ``offset + i * stride[0] + j * stride[1] + ...`` of ``x`` in row-major order at ``[i, j, ...]``: a view.

    This is ``torch.as_strided`` of a contiguous tensor, because the math does not depend on memory layout. Strides are nonnegative constants.

    Raises :class:`ShapeError` unless every such element is provably one of ``x``, or the numbers of sizes and strides differ.
    """
    check_tensor("as_strided", x)
    shape = [_extent("as_strided", x, e) for e in listed("as_strided", size, "extents")]
    steps = [count("as_strided", "stride", s) for s in listed("as_strided", stride, "strides")]
    if len(shape) != len(steps):
        raise shape_error("as_strided", f"{len(shape)} sizes and {len(steps)} strides", "give one of each per dimension")
    first: Expr = wrap(count("as_strided", "offset", offset))
    place, last, total = first, first, ONE
    for d, (e, s) in enumerate(zip(shape, steps, strict=True)):
        place, last = place + iteration_symbol(d) * s, last + (e - 1) * s
    for e in x.shape:
        total = total * e
    if not prove(and_(le(0, last), le(last + 1, total)), x.fusion.facts()):
        raise shape_error("as_strided", f"element {last} is not provably one of the {total} of {described(x)}", facts_help(x))
    with x.fusion.call():
        return view(reshape(x, [-1]), "as_strided", shape, [place])


# -- repetitions ------------------------------------------------------------------------------------------------------------------------


@op(OpKind.VIEW, same, torch="repeat_interleave")
@axial
def repeat(x: TensorView, repeats: int, axis: int | None = None) -> TensorView:
    """Each element of ``x`` ``repeats`` times along ``axis`` (of all elements in row-major order if ``None``), as ``np.repeat``: a view.

    :func:`tile` is torch's ``x.repeat``. Raises :class:`ShapeError` unless ``repeats`` is constant.
    """
    check_tensor("repeat", x)
    times = count("repeat", "number of repetitions", repeats)
    source = reshape(x, [-1]) if axis is None else x
    place = 0 if axis is None else normalize_axis("repeat", axis, x.ndim, described(x))
    return _spread(source, place, place + 1, times)


@op(OpKind.VIEW, same)
def tile(x: TensorView, reps: int | Sequence[int]) -> TensorView:
    """``x`` repeated ``reps[d]`` times along each dimension, as ``np.tile`` and ``torch.Tensor.repeat``: a view.

    If there are fewer ``reps`` than dimensions, they apply to the last ones; further ``reps`` make leading dimensions.
    """
    check_tensor("tile", x)
    times = [count("tile", "number of repetitions", n) for n in listed("tile", reps, "numbers")]
    times = [1] * (x.ndim - len(times)) + times
    found = reshape(x, [ONE] * (len(times) - x.ndim) + list(x.shape)) if len(times) > x.ndim else x
    for d, n in enumerate(times):
        found = found if n == 1 else _spread(found, d, d, n)
    return found


def _spread(x: TensorView, axis: int, at: int, times: int) -> TensorView:
    """A dimension repeated: element by element if the new dimension follows it, as a whole if it precedes it."""
    with x.fusion.call():
        apart = expand_dims(x, at)
        wide = broadcast_to(apart, [wrap(times) if d == at else e for d, e in enumerate(apart.shape)])
        return reshape(wide, [e * times if d == axis else e for d, e in enumerate(x.shape)])


@op(OpKind.VIEW, same)
@axial
def roll(x: TensorView, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> TensorView:
    """``x`` shifted by ``shift`` along ``axis``, the last elements first (all in row-major order if ``None``): a view.

    Raises :class:`ShapeError` if a symbolic extent is not provably at least as great as the shift.
    """
    check_tensor("roll", x)
    if axis is None:
        with x.fusion.call():
            return reshape(roll(reshape(x, [-1]), shift, 0), x.shape)
    places = [normalize_axis("roll", d, x.ndim, described(x)) for d in listed("roll", axis, "axes")]
    shifts = [plain(s) for s in listed("roll", shift, "shifts")]
    shifts = shifts * len(places) if len(shifts) == 1 else shifts
    if len(shifts) != len(places):
        raise shape_error("roll", f"{len(shifts)} shifts along {len(places)} axes", "give one shift, or one for each axis")
    index: list[Expr] = [iteration_symbol(d) for d in range(x.ndim)]
    for place, by in zip(places, shifts, strict=True):
        first = _first(x, place, by)
        if first is not ZERO:
            index[place] = (index[place] + first) % x.shape[place]
    return x if index == [iteration_symbol(d) for d in range(x.ndim)] else view(x, "roll", x.shape, index)


def _first(x: TensorView, place: int, by: object) -> Expr:
    """The position of the element that a roll by ``by`` places brings to the front."""
    if isinstance(by, bool) or not isinstance(by, int):
        raise shape_error("roll", f"{shown(by)} is not a shift", "use an integer constant; tf.take reads at computed indices")
    size = x.shape[place]
    if isinstance(size, Const):
        return wrap(-by % size.value) if size.value else ZERO
    if not prove(le(max(by, -by), size), x.fusion.facts()):
        raise shape_error("roll", f"a shift by {by} is not provably within dimension {place} of {described(x)}", facts_help(x))
    return size - by if by > 0 else wrap(-by)


# -- differences ------------------------------------------------------------------------------------------------------------------------


@op(OpKind.COMPOSITE, same)
@axial
def diff(x: TensorView, n: int = 1, axis: int = -1) -> TensorView:
    """The difference of each element along ``axis`` from the one before it, ``n`` times; for bool, whether they differ.

    Raises :class:`ShapeError` if the dimension does not provably have ``n`` elements.
    """
    check_tensor("diff", x)
    place, times = normalize_axis("diff", axis, x.ndim, described(x)), count("diff", "number of times", n)
    if not prove(le(times, x.shape[place]), x.fusion.facts()):
        raise shape_error("diff", f"dimension {place} of {described(x)} does not provably have {times} elements", facts_help(x))
    with x.fusion.call():
        wide: DType = x.dtype.compute
        found = x if times == 0 or x.dtype.is_bool else cast_tensor(x, wide)
        for _ in range(times):
            size = found.shape[place]
            after, before = sliced(found, place, 1, size), sliced(found, place, 0, size - 1)
            found = ne(after, before) if x.dtype.is_bool else sub(after, before)
        return cast_tensor(found, x.dtype)
