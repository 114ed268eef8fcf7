"""The first few of long rows: groups of elements are chosen by their best, and only the chosen ones are looked at.

Elements that are neighbors form a group, whose rank is the least of theirs; groups form groups in turn, as in a tournament. The first ``k`` elements of a row
lie in its first ``k`` groups: any other group has at least ``k`` before it, each with an element before all of its own. Equal groups are in the order of their
places, as their elements are, so this holds of equal elements too. From the top down, the groups of each level are put in order, and the members of the first
``k`` are the next candidates, which are read at computed indices (tournament selection: Knuth, The Art of Computer Programming 3, 5.2.3).

So a row is read once, by reductions of neighbors, and a few times ``k`` candidates are ordered, once per level. Nothing is sorted but they.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod

from taskfuse.dtypes import int64
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue
from taskfuse.ir.scalar import Const, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import define_pointwise, elementwise
from taskfuse.ops.gather import take_along_axis
from taskfuse.ops.merge import BLOCK, COMPARED
from taskfuse.ops.order_keys import KeyLayout, index_values, is_negative_zero, rank_bits
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.select import pad
from taskfuse.ops.views import expand_dims, reshape

FANS = (8, 16, 32, 64, 128, 256)
"""How many members a group may have."""
LEVELS = 3
"""Of groups, at most."""
KERNEL = COMPARED // 2
"""Comparisons that take as long as a kernel with little work."""
PHASES = 8
"""Minima of a row, one after another, that take about as long as a kernel."""
MINIMUM = 4
"""Comparisons that take as long as an element of a minimum above another one; of a candidate, which is read where its group is, twice as many."""
BLOCKS = 128
"""Blocks of a GPU: fewer rows take as long as that many."""

Order = Callable[[TensorView, int], TensorView]
"""The first keys of rows, in order."""


def fans(x: TensorView, number: int, few: int) -> tuple[int, ...]:
    """How many members the groups of each level have by which the first elements of the last dimension are found, elements first; none: all are put in order.

    Args:
        x: the rows, of known length; if their number is not known, it is assumed.
        number: how many elements are wanted.
        few: up to so many are minima, one after another.
    """
    *rows, n = (e.value if isinstance(e, Const) else None for e in x.shape)
    if n is None:
        return ()
    known = prod(e for e in rows if e is not None)
    return _cheapest(known if None not in rows else max(known, BLOCKS), n, number, number <= few, LEVELS)[1]


@cache
def _cheapest(rows: int, n: int, number: int, is_few: bool, levels: int) -> tuple[float, tuple[int, ...]]:
    """Comparisons, with kernels in their unit, for the first of rows of ``n`` elements, and the members of groups that take fewest."""
    best = _minima(rows, n, number) if is_few else _ordered(rows, n), ()
    for members in FANS if levels else ():
        if (groups := -(-n // members)) <= number:
            break
        above, rest = _cheapest(rows, groups, number, is_few, levels - 1)
        candidates = number * members
        total = above + KERNEL + (_minima(rows, 2 * candidates, number) if is_few else _ordered(rows, candidates))
        if total < best[0]:
            best = total, (members, *rest)
    return best


def _minima(rows: int, n: int, number: int) -> float:
    """The comparisons of minima, one after another in one kernel, whose blocks have a row each."""
    return KERNEL * (1 + number / PHASES) + MINIMUM * max(rows, BLOCKS) * n * number


def _ordered(rows: int, n: int) -> float:
    """The comparisons that put rows in order: all with all, or those of blocks, and a kernel for each doubling."""
    whole = rows * n * n
    doublings = max(0, -(-n // BLOCK) - 1).bit_length()
    return 3 * KERNEL + min(whole, rows * n * BLOCK + doublings * COMPARED)


def first_by_groups(x: TensorView, number: int, descending: bool, members: Sequence[int], order: Order) -> tuple[TensorView, TensorView]:
    """The first elements of the last dimension of ``x`` in order, and where they are.

    Args:
        x: elements of fewer than 64 bits, in rows of known length.
        members: of a group, for each level (:func:`fans`).
        order: puts keys in order.
    """
    ranks = [rank_bits(x, descending)]
    for each in members:
        ranks.append(_leasts(ranks[-1], each))
    last = x.ndim - 1
    layout = _layout(x, ranks[-1], 1, descending)
    groups = layout.indices(order(layout.packed(ranks[-1], index_values(ranks[-1], iteration_symbol(last), layout.key)), number))
    for rank, each in reversed(list(zip(ranks[1:-1], members[1:], strict=True))):
        index = _members(groups, each)
        layout = _layout(x, rank, each, descending)
        groups = layout.indices(order(layout.packed(_within(rank, each, take_along_axis(rank, index, last), index), index), number))
    index, layout = _members(groups, members[0]), _layout(x, x, members[0], descending)
    found = take_along_axis(x, index, last)
    negative = is_negative_zero(found) if x.dtype.is_float else None
    keys = order(layout.packed(_within(x, members[0], rank_bits(found, descending), index), index, negative), number)
    return layout.values(keys), layout.indices(keys)


def _leasts(rank: TensorView, members: int) -> TensorView:
    """The least of each group of neighbors in the last dimension; the last group may have fewer members."""
    last, n = rank.ndim - 1, rank.shape[-1]
    assert isinstance(n, Const)
    groups = -(-n.value // members)
    if (more := groups * members - n.value) > 0:
        rank = pad(rank, [(0, 0)] * last + [(0, more)], int(rank.dtype.max_value))
    return reduce_axes(reshape(rank, [*rank.shape[:-1], wrap(groups), wrap(members)]), (rank.ndim,), COMBINES["minimum"], rank.dtype, keepdims=False)


def _members(groups: TensorView, members: int) -> TensorView:
    """The indices of the members of chosen groups, in one row."""
    lead, place = groups.shape[:-1], groups.ndim
    number = groups.shape[-1]
    within = define_pointwise(groups.fusion, ELEMENTWISE["copy"], (*groups.shape, wrap(members)), (IndexValue(iteration_symbol(place)),), int64)
    return reshape(elementwise("add", elementwise("mul", expand_dims(groups, place), members), within), [*lead, number * members])


def _within(row: TensorView, members: int, rank: TensorView, index: TensorView) -> TensorView:
    """Ranks at indices of the members of groups, the last rank where an index lies behind the row."""
    n = row.shape[-1]
    assert isinstance(n, Const)
    return rank if n.value % members == 0 else elementwise("where", elementwise("lt", index, n.value), rank, int(rank.dtype.max_value))


def _layout(x: TensorView, row: TensorView, members: int, descending: bool) -> KeyLayout:
    """The layout of the keys of a level, whose indices go to the end of its last group."""
    n = row.shape[-1]
    assert isinstance(n, Const)
    whole = -(-n.value // members) * members
    return KeyLayout(x.dtype, x.ndim - 1, max(whole - 1, 0).bit_length(), descending)
