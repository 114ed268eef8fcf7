"""A product of two tiles, added to accumulators: each accumulator takes the terms of a reduction at some points.

A term counts if its two operands are those that the body reads at the point. It adds nothing if both are zeros, as in the padding of a tile: one zero
is not enough for floats, since its product with an infinity or a NaN is not 0.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from taskfuse.check.flags import all_of, any_of
from taskfuse.check.values.elements import value
from taskfuse.check.values.lanes import ExecutedLanes
from taskfuse.check.values.partials import Accumulation, Leaves, Words
from taskfuse.check.values.state import NUMBERS, RunState
from taskfuse.check.values.terms import WRONG, Bools, Ints, Terms, constant_tag
from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.operands import Access, IndexOf, Operand
from taskfuse.kir.products import Mma, Wgmma
from taskfuse.kir.witness import Reduce

ADD, MUL = ELEMENTWISE["add"], ELEMENTWISE["mul"]


def multiply(state: RunState, stmt: Mma | Wgmma, lanes: ExecutedLanes, acc: Terms, a: Terms, b: Terms) -> Terms:
    """The accumulators ``[groups, m, n]`` after the products of ``a`` ``[groups, m, k]`` and ``b`` ``[groups, n, k]``.

    Args:
        lanes: the first thread of each group.
    """
    groups, m, n = acc.tag.shape
    threads = np.broadcast_to(lanes.ids[:, None, None], acc.tag.shape).reshape(-1)
    state.budget.spend(acc.tag.size // 2)
    holds = stmt.holds
    fold = None if holds is None or holds.tensor not in state.elements.tensors else state.fold(holds.tensor)
    if holds is None or fold is None or not isinstance(fold.rule, Reduce) or (fold.rule.combine.op, fold.rule.body) != (ADD, MUL):
        return state.wrong(stmt, lanes.role, threads, lambda k: "multiplies what no definition says").reshape(groups, m, n)
    if stmt.row.sums is not fold.dtype:
        sums = f"sums in {stmt.row.sums} where {fold.tensor.name} is summed in {fold.dtype}"
        return state.wrong(stmt, lanes.role, threads, lambda k: sums).reshape(groups, m, n)
    k: int = a.tag.shape[2]
    tile: dict[str, Ints] = {}
    for j, size in enumerate((m, n, k)):
        steps: Ints = np.arange(size)
        tile[f"tile.{j}"] = np.expand_dims(steps, tuple(a for a in range(4) if a != j + 1))
    some = _Wide(lanes, tile)
    index = [some.value(e) for e in holds.index]
    inside: Bools = np.ones((1, 1, 1, 1), np.bool_)
    for at, extent in zip(index, fold.tensor.space, strict=True):
        inside = inside & (at >= np.int64(0)) & (at < np.int64(extent))
    symbols: dict[str, int | Ints] = dict(state.launch.symbols) | {f"i{j}": at for j, at in enumerate(index)}
    for axis, start in fold.rule.starts:
        inside = inside & (index[axis] >= value(start, symbols))
    for axis, end in fold.rule.ends:
        inside = inside & (index[axis] < value(end, symbols))
    left, right = Terms(a.tag[:, :, None, :], a.data[:, :, None, :]), Terms(b.tag[:, None, :, :], b.data[:, None, :, :])
    dtypes = stmt.dtype, stmt.b_dtype or stmt.dtype
    first, second = _expected(state, fold.rule.terms, symbols)
    if first.tag.shape[2] > 1 or second.tag.shape[1] > 1:  # the first operand of the body goes along the columns: factors may change places
        first, second = second, first
    good_a, good_b = _equal(state, left, first, dtypes[0]), _equal(state, right, second, dtypes[1])
    shape = groups, m, n, k
    good = good_a & good_b & inside
    zeros = (_zero(left, dtypes[0]), _zero(right, dtypes[1]))
    neutral = (zeros[0] & zeros[1] & (not fold.is_signed_zero)) if fold.dtype.is_float else zeros[0] | zeros[1]
    sums, bad = _terms(fold, index, good, neutral, shape)

    def points(leaf: int) -> list[int]:
        at = np.unravel_index(leaf, shape[:3])
        place: Ints = np.zeros(k, np.int64)
        for axis, extent in zip(index, fold.tensor.space, strict=True):
            place = place * extent + np.broadcast_to(axis, shape)[at]
        found: list[int] = place[np.broadcast_to(good, shape)[at]].tolist()
        return found

    nodes, known = state.partials.nodes(fold, acc.flat(), threads)
    steps = np.full(sums.size, -1)
    if fold.rescaled is not None:  # terms at several indices have none in common
        along = np.broadcast_to(index[fold.rescaled], shape)
        steps = np.where((along == along[..., :1]).all(axis=-1), along[..., 0], -2).reshape(-1)
    leaves = state.partials.leaves(sums.reshape(-1), Leaves(stmt, lanes.ids, points, m * n), steps)
    known &= state.partials.are_alike(fold, nodes, leaves, is_term=True)
    tags: Ints = np.full(nodes.shape, fold.part, np.int64)
    found = Terms(tags, state.partials.joins(nodes, leaves))
    if not all_of(known):
        where = np.flatnonzero(~known)
        was = acc.flat()[where]
        aim = fold.tensor.name
        new = state.wrong(stmt, lanes.role, threads[where], lambda j: f"adds to {state.text(was[j : j + 1])}, which is not a partial result of {aim}")
        found[where] = Terms(np.full(len(where), WRONG, np.int64), np.where(was.tag == WRONG, was.data, new.data))
    if bad is not None:
        where = np.flatnonzero(bad.any(axis=-1).reshape(-1) & known)
        found[where] = _reasons(state, stmt, lanes, fold, index, (left, right), (first, second), (good_a, good_b), bad.reshape(-1, k)[where], where, shape)
    return found.reshape(groups, m, n)


class _Wide:
    """The symbols of groups of threads, ``[groups, 1, 1, 1]``, and of the elements of a tile."""

    def __init__(self, lanes: ExecutedLanes, tile: dict[str, Ints]) -> None:
        self._lanes = lanes
        self._tile = tile

    def value(self, e: Any) -> Any:
        """An expression's value: four axes, or a number."""
        symbols: dict[str, Any] = {}
        for name in e.free:
            if name in self._tile:
                symbols[name] = self._tile[name]
            else:
                v = self._lanes.symbol(name)
                symbols[name] = v if isinstance(v, int) else v.reshape(-1, 1, 1, 1)
        found = value(e, symbols)
        return np.full((1, 1, 1, 1), found, np.int64) if isinstance(found, int) else found


def _expected(state: RunState, operands: tuple[Operand, ...], symbols: dict[str, int | Ints]) -> list[Terms]:
    """The operands of the body at all points, on four axes of which those that do not matter have length 1."""
    found: list[Terms] = []
    for o in operands:
        names: set[str] = set()
        match o:
            case Access(index=of):
                names = names.union(*(e.free for e in of))
            case IndexOf(value=e):
                names = set(e.free)
            case _:
                pass
        arrays = {n: v for n, v in symbols.items() if n in names and not isinstance(v, int)}
        shape = np.broadcast_shapes((1, 1, 1, 1), *(v.shape for v in arrays.values()))
        at = dict(symbols) | {n: np.broadcast_to(v, shape).reshape(-1) for n, v in arrays.items()}
        found.append(state.elements.operand(o, at, int(np.prod(shape))).reshape(*shape))
    return found


def _equal(state: RunState, held: Terms, expected: Terms, dtype: DType) -> Bools:
    """Which operands are those expected; they are of the dtype that the instruction reads."""
    shape = np.broadcast_shapes(held.tag.shape, expected.tag.shape)
    h, e = (Terms(np.broadcast_to(t.tag, shape).reshape(-1), np.broadcast_to(t.data, shape).reshape(-1)) for t in (held, expected))
    return (state.same(h, e, dtype) & (state.dtype_numbers(h) == NUMBERS[dtype])).reshape(shape)


def _zero(held: Terms, dtype: DType) -> Bools:
    return (held.tag == constant_tag(dtype)) & (held.data == 0)


def _terms(fold: Accumulation, index: list[Ints], good: Bools, neutral: Bools, shape: tuple[int, int, int, int]) -> tuple[Words, Bools | None]:
    """For each accumulator the sum of the numbers of its good terms' points; and which terms are neither good nor neutral (``None``: no one is)."""
    words = [w[np.clip(at, 0, max(0, len(w) - 1))] if len(w) else np.zeros(at.shape, np.uint64) for w, at in zip(fold.words, index, strict=True)]
    one: Words = np.ones((1, 1, 1, 1), np.uint64)

    def along(w: Words) -> bool:
        """True if the numbers of an axis differ from term to term."""
        return w.size > w[..., 0].size

    if fold.without is not None and all(fold.tensor.space):
        place: Any = np.zeros((1, 1, 1, 1), np.int64)
        for at, n in zip(index, fold.tensor.space, strict=True):
            place = place * n + np.clip(at, 0, n - 1)
        left_out = np.broadcast_to(fold.without[place], shape)
        good, neutral = good & ~left_out, neutral | (good & left_out)
    if all_of(good):
        total = _times([one, *(w for w in words if along(w))])
        total = total.sum(axis=3, keepdims=True, dtype=np.uint64) if along(total) else total * np.uint64(shape[3])
        total = _times([total, *(w for w in words if not along(w))])
        return np.broadcast_to(total[..., 0], shape[:3]), None
    total = np.where(good, np.broadcast_to(_times([one, *words]), shape), np.uint64(0)).sum(axis=3, dtype=np.uint64)
    bad = np.broadcast_to(~(good | neutral), shape)
    return total, bad if any_of(bad) else None


def _times(factors: list[Words]) -> Words:
    return reduce(lambda a, b: a * b, factors)


def _reasons(
    state: RunState,
    stmt: Mma | Wgmma,
    lanes: ExecutedLanes,
    fold: Accumulation,
    index: list[Ints],
    held: tuple[Terms, Terms],
    expected: tuple[Terms, Terms],
    good: tuple[Bools, Bools],
    bad: Bools,
    where: Ints,
    shape: tuple[int, ...],
) -> Terms:
    """Wrong accumulators: those of a wrong operand where there is one, else new ones that say what is read at the first wrong point."""
    first = np.argmax(bad, axis=1)
    at = (*np.unravel_index(where, shape[:3]), first)
    threads = lanes.ids[at[0]]
    sides = [Terms(np.broadcast_to(t.tag, shape)[at], np.broadcast_to(t.data, shape)[at]) for t in held]
    wants = [Terms(np.broadcast_to(t.tag, shape)[at], np.broadcast_to(t.data, shape)[at]) for t in expected]
    fits = [np.broadcast_to(g, shape)[at] for g in good]
    points = [np.broadcast_to(i, shape)[at] for i in index]

    def say(k: int) -> str:
        place = f"[{', '.join(str(int(p[k])) for p in points)}]"
        for side, want, fit in zip(sides, wants, fits, strict=True):
            if not fit[k]:
                return f"at {place} of {fold.tensor.name}: {state.difference(side[k : k + 1], want[k : k + 1])[0]}"
        factors = " and ".join(state.text(side[k : k + 1]) for side in sides)
        return f"a term at {place} past the end of {fold.tensor.name} need not be zero: it is of {factors}"

    found = state.wrong(stmt, lanes.role, threads, say)
    for side in reversed(sides):
        theirs = side.tag == WRONG
        found.data[theirs] = side.data[theirs]
    return found
