"""The elements of a dimension in order: all of them (sort, argsort), or the first few (topk).

Up to 16 elements of a row are found one after another: each is a reduction, the least key (:mod:`taskfuse.ops.order_keys`) greater than the last one. So
k reductions read a row that is loaded once, and only k keys are stored. More are taken from rows in order (:mod:`taskfuse.ops.merge`). Of long rows, either
is done with the few groups of elements that the first ones lie in (:mod:`taskfuse.ops.tournament`). Elements of
64 bits are ordered by the lower half of their rank bits, and then, stably, by the upper one; few of them by comparing every two. Integers of which fewer
bits are known to differ, such as the indices that ``topk`` found, are ordered as narrower ones.
"""

from __future__ import annotations

from taskfuse.dtypes import int8, int16, int32, int64, uint8, uint16, uint32
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.scalar import ZERO, Const, le, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.value_ranges import value_range
from taskfuse.ops.argreduce import first_position
from taskfuse.ops.build import cast_tensor, check_tensor, described, elementwise, facts_help, normalize_axis, shape_error
from taskfuse.ops.elementwise import isnan
from taskfuse.ops.gather import take_along_axis
from taskfuse.ops.keywords import axial
from taskfuse.ops.merge import counted_elements, counted_order, ordered
from taskfuse.ops.order_keys import KeyLayout, index_along, rank_bits, rank_dtype
from taskfuse.ops.rearrange import count, moveaxis, sliced
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, always, op, same
from taskfuse.ops.select import cat
from taskfuse.ops.tournament import fans, first_by_groups
from taskfuse.ops.views import expand_dims, squeeze

__all__ = ["argsort", "kthvalue", "median", "sort", "sort_with_indices", "topk"]

_FEW = 16

_SHORT = (uint8, int8, uint16, int16, uint32, int32)

_LEAST = COMBINES["minimum"]


@op(OpKind.COMPOSITE, same, torch="msort")
@axial
def sort(x: TensorView, axis: int = -1, descending: bool = False) -> TensorView:
    """The elements of ``x`` along ``axis`` in order, as ``np.sort``; NaN is the greatest.

    Raises :class:`ShapeError` if ``axis`` is out of range, or its extent is not provably at most 2^20.
    """
    return sort_with_indices(x, axis, descending)[0]


@op(OpKind.COMPOSITE, always(int64))
@axial
def argsort(x: TensorView, axis: int = -1, descending: bool = False) -> TensorView:
    """The indices (int64) of the elements of ``x`` along ``axis`` in order: equal elements keep their order, in either direction. Otherwise as :func:`sort`."""
    return sort_with_indices(x, axis, descending)[1]


@op(OpKind.COMPOSITE, same, torch="sort", numpy="")
@axial
def sort_with_indices(x: TensorView, axis: int = -1, descending: bool = False) -> tuple[TensorView, TensorView]:
    """:func:`sort` and :func:`argsort` of one pass, as ``torch.sort`` with ``stable=True``."""
    check_tensor("sort", x)
    place = normalize_axis("sort", axis, x.ndim, described(x))
    with x.fusion.call():
        rows = moveaxis(x, place, -1)
        values, indices = _in_order("sort", rows, descending)
        return moveaxis(values, -1, place), moveaxis(indices, -1, place)


@op(OpKind.COMPOSITE, same, numpy="")
@axial
def topk(x: TensorView, k: int, axis: int = -1, largest: bool = True) -> tuple[TensorView, TensorView]:
    """The ``k`` greatest elements along ``axis``, the greatest first, and their indices (int64); with ``largest=False`` the least, the least first.

    NaN is the greatest of all, as in ``torch.topk``. Of equal elements those with less indices come first. ``k`` is an integer constant. A long row of
    known length is read once; then a few times ``k`` of its elements are compared.

    Raises :class:`ShapeError` if ``axis`` is out of range, or does not provably have ``k`` elements.
    """
    check_tensor("topk", x)
    place, number = normalize_axis("topk", axis, x.ndim, described(x)), count("topk", "number of elements", k)
    if not prove(le(number, x.shape[place]), x.fusion.facts()):
        raise shape_error("topk", f"dimension {place} of {described(x)} does not provably have {number} elements", facts_help(x))
    with x.fusion.call():
        if number == 0:
            none = sliced(x, place, ZERO, ZERO)
            return none, index_along(none, place, int64)
        rows = moveaxis(x, place, -1)
        short = _narrowed(rows)
        members = fans(rows, number, _FEW) if rank_dtype((rows if short is None else short).dtype).bits < 64 else ()
        if members:
            values, indices = first_by_groups(rows if short is None else short, number, largest, members, _least)
            values = cast_tensor(values, x.dtype)
        elif number <= _FEW:
            return _first(x, place, number, largest)
        else:
            values, indices = _in_order("topk", rows, largest, number)
        return moveaxis(values, -1, place), moveaxis(indices, -1, place)


@op(OpKind.COMPOSITE, same, numpy="")
@axial
def kthvalue(x: TensorView, k: int, axis: int = -1, keepdims: bool = False) -> tuple[TensorView, TensorView]:
    """The ``k``-th least element along ``axis`` (1: the least), and its index (int64), as ``torch.kthvalue``.

    NaN is the greatest, and equal elements are in order. ``k`` is an integer constant.

    Raises :class:`ShapeError` if ``axis`` is out of range, or does not provably have ``k`` elements.
    """
    check_tensor("kthvalue", x)
    number, place = count("kthvalue", "number of an element", k, 1), normalize_axis("kthvalue", axis, x.ndim, described(x))
    with x.fusion.call():
        return _taken(topk(x, number, place, largest=False), place, number - 1, keepdims)


@op(OpKind.COMPOSITE, same, torch="median", numpy="")
@axial
def median(x: TensorView, axis: int, keepdims: bool = False) -> tuple[TensorView, TensorView]:
    """The median along ``axis``, the lesser of two, and its index (int64), as ``torch.median``; the first NaN if there is one.

    Raises :class:`ShapeError` if ``axis`` is out of range, or its extent is not a positive constant.
    """
    check_tensor("median", x)
    place = normalize_axis("median", axis, x.ndim, described(x))
    size = x.shape[place]
    if not isinstance(size, Const) or size.value < 1:
        raise shape_error("median", f"dimension {place} of {described(x)} is not a positive constant", "sort, and read the element with tf.take")
    with x.fusion.call():
        values, indices = _taken(topk(x, (size.value + 1) // 2, place, largest=False), place, (size.value - 1) // 2, keepdims)
        if not x.dtype.is_float:
            return values, indices
        first = first_position(isnan(x), (place,))
        first = expand_dims(first, place) if keepdims else first
        has_nan = elementwise("lt", first, size.value)
        return elementwise("where", has_nan, float("nan"), values), elementwise("where", has_nan, first, indices)


def _taken(found: tuple[TensorView, TensorView], axis: int, number: int, keepdims: bool) -> tuple[TensorView, TensorView]:
    """One of the first elements, and its index."""
    values, indices = (sliced(tv, axis, number, number + 1) for tv in found)
    return (values, indices) if keepdims else (squeeze(values, axis), squeeze(indices, axis))


def _in_order(op: str, x: TensorView, descending: bool, first: int | None = None) -> tuple[TensorView, TensorView]:
    """Rows of the last dimension in order, or the first of each, and where they were."""
    last, short = x.ndim - 1, _narrowed(x)
    if short is not None:
        values, indices = _in_order(op, short, descending, first)
        return cast_tensor(values, x.dtype), indices
    layout = KeyLayout.of(x, last, descending)
    if layout is not None:
        keys = ordered(op, layout.keys(x), first)
        return layout.values(keys), layout.indices(keys)
    rank = rank_bits(x, descending)
    if prove(le(x.shape[last], counted_elements(rank)), x.fusion.facts()):
        order = counted_order(rank)
        indices = order if first is None else sliced(order, last, 0, first)
        return take_along_axis(x, indices, last), indices
    indices: TensorView | None = None
    for half in (elementwise("bitwise_and", rank, 2**32 - 1), elementwise("right_shift", rank, 32)):
        found = cast_tensor(half, uint32)
        layout = KeyLayout.of(found, last, descending=False)
        if layout is None:
            raise shape_error(op, f"rows of {described(x)} are too long", "call the framework before the kernel")
        keys = layout.keys(found if indices is None else take_along_axis(found, indices, last))
        order = layout.indices(ordered(op, keys, None if indices is None else first))
        indices = order if indices is None else take_along_axis(indices, order, last)
    assert indices is not None
    return take_along_axis(x, indices, last), indices


def _narrowed(x: TensorView) -> TensorView | None:
    """``x`` in a dtype of fewer bits that holds all of its values, if one does: an expert's number has few bits, and the keys of few bits are small."""
    if not x.dtype.is_integer:
        return None
    low, high = value_range(x)
    return next((cast_tensor(x, d) for d in _SHORT if d.bits < x.dtype.bits and d.min_value <= low and high <= d.max_value), None)


def _first(x: TensorView, axis: int, number: int, descending: bool) -> tuple[TensorView, TensorView]:
    """The first of ``x`` in order, and where they are."""
    if (short := _narrowed(x)) is not None:
        values, indices = _first(short, axis, number, descending)
        return cast_tensor(values, x.dtype), indices
    layout = KeyLayout.of(x, axis, descending)
    if layout is None:
        return _first_pairs(x, axis, number, descending)
    first = _minima(layout.keys(x), axis, number)
    return layout.values(first), layout.indices(first)


def _minima(keys: TensorView, axis: int, number: int) -> TensorView:
    """The least keys in order: each is the least of those above the last one."""
    found: list[TensorView] = []
    for _ in range(number):
        rest = keys if not found else elementwise("where", elementwise("gt", keys, found[-1]), keys, int(keys.dtype.max_value))
        found.append(reduce_axes(rest, (axis,), _LEAST, keys.dtype, keepdims=True))
    return cat(found, axis)


def _least(keys: TensorView, number: int) -> TensorView:
    """The least keys of the last dimension in order."""
    return _minima(keys, keys.ndim - 1, number) if number <= _FEW else ordered("topk", keys, number)


def _first_pairs(x: TensorView, axis: int, number: int, descending: bool) -> tuple[TensorView, TensorView]:
    """The same of elements of 64 bits: each is found by its rank bits, then by its index."""
    rank, index = rank_bits(x, descending), index_along(x, axis, int64)
    none, nowhere = int(rank.dtype.max_value), int(int64.max_value)
    found: list[TensorView] = []
    left: TensorView | None = None
    for _ in range(number):
        best = reduce_axes(rank if left is None else elementwise("where", left, rank, none), (axis,), _LEAST, rank.dtype, keepdims=True)
        is_best = elementwise("eq", rank, best)
        is_here = is_best if left is None else elementwise("logical_and", left, is_best)
        at = reduce_axes(elementwise("where", is_here, index, nowhere), (axis,), _LEAST, int64, keepdims=True)
        left = elementwise("logical_or", elementwise("gt", rank, best), elementwise("logical_and", is_best, elementwise("gt", index, at)))
        found.append(at)
    indices = cat(found, axis)
    return take_along_axis(x, indices, axis), indices
