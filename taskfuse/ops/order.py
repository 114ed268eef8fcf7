"""The elements of a dimension in order: the first few of them (topk).

The first k of a row are found one after another: each is the least key (:mod:`taskfuse.ops.order_keys`) greater than the last one found, a reduction. So
k reductions look at a row that is loaded once, and nothing is stored but k keys.
"""

from __future__ import annotations

from taskfuse.dtypes import int64
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import ZERO, le, prove
from taskfuse.ir.tensor import TensorView, Value
from taskfuse.ops.build import check_tensor, described, normalize_axis, pointwise, shape_error
from taskfuse.ops.gather import take_along_axis
from taskfuse.ops.keywords import axial
from taskfuse.ops.order_keys import KeyLayout, index_along, rank_bits
from taskfuse.ops.rearrange import count, sliced
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, op, same
from taskfuse.ops.select import cat

__all__ = ["topk"]

_LEAST = COMBINES["minimum"]


@op(OpKind.COMPOSITE, same, numpy="")
@axial
def topk(x: TensorView, k: int, axis: int = -1, largest: bool = True) -> tuple[TensorView, TensorView]:
    """The ``k`` greatest elements along ``axis``, the greatest first, and their indices (int64); with ``largest=False`` the least, the least first.

    NaN is the greatest of all, as in ``torch.topk``. Of equal elements those with less indices come first. ``k`` is an integer constant. Each of the k
    is found by a reduction over all elements of its row.

    Raises :class:`ShapeError` if ``axis`` is out of range, or does not provably have ``k`` elements.
    """
    check_tensor("topk", x)
    place, number = normalize_axis("topk", axis, x.ndim, described(x)), count("topk", "number of elements", k)
    if not prove(le(number, x.shape[place]), x.fusion.facts()):
        raise shape_error("topk", f"dimension {place} of {described(x)} does not provably have {number} elements", "give facts with tf.dim(..., min=)")
    with x.fusion.call():
        if number == 0:
            none = sliced(x, place, ZERO, ZERO)
            return none, index_along(none, place, int64)
        return _first(x, place, number, largest)


def _of(name: str, *operands: Value) -> TensorView:
    return pointwise(ELEMENTWISE[name], operands)


def _first(x: TensorView, axis: int, number: int, descending: bool) -> tuple[TensorView, TensorView]:
    """The first of ``x`` in order, and where they are."""
    layout = KeyLayout.of(x, axis, descending)
    if layout is None:
        return _first_pairs(x, axis, number, descending)
    keys = layout.keys(x)
    found: list[TensorView] = []
    for _ in range(number):
        rest = keys if not found else _of("where", _of("gt", keys, found[-1]), keys, int(keys.dtype.max_value))
        found.append(reduce_axes(rest, (axis,), _LEAST, keys.dtype, keepdims=True))
    first = cat(found, axis)
    return layout.values(first), layout.indices(first)


def _first_pairs(x: TensorView, axis: int, number: int, descending: bool) -> tuple[TensorView, TensorView]:
    """The same of elements of 64 bits: each is found by its rank bits, then by its index."""
    rank, index = rank_bits(x, descending), index_along(x, axis, int64)
    none, nowhere = int(rank.dtype.max_value), int(int64.max_value)
    found: list[TensorView] = []
    left: TensorView | None = None
    for _ in range(number):
        best = reduce_axes(rank if left is None else _of("where", left, rank, none), (axis,), _LEAST, rank.dtype, keepdims=True)
        is_best = _of("eq", rank, best)
        is_here = is_best if left is None else _of("logical_and", left, is_best)
        at = reduce_axes(_of("where", is_here, index, nowhere), (axis,), _LEAST, int64, keepdims=True)
        left = _of("logical_or", _of("gt", rank, best), _of("logical_and", is_best, _of("gt", index, at)))
        found.append(at)
    indices = cat(found, axis)
    return take_along_axis(x, indices, axis), indices
