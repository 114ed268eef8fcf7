"""Which pairs of threads may access one element, by enumeration: for indices with few values that digits do not explain, such as swizzles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.accesses import Use
from taskfuse.check.ranges import Ranges
from taskfuse.check.statement_tree import THREAD_NAMES, THREADS, Context
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Mod, Select, const, evaluate, lt, private, rebuild, sym
from taskfuse.kir.nodes import For
from taskfuse.target import WARP

Ints = NDArray[np.int64]
INSTANCES = 1 << 15


class Pairs:
    """A superset of the pairs of threads that may access one element: those of one *group*, whose instances of the two accesses have equal elements.

    All pairs agree on a value if each group does. So instances are compared with one of their group, and no pair is ever enumerated.

    Attributes:
        values: thread indices by name, of the enumerated axes, of all instances in groups of both accesses; on other axes both threads agree.
        leaders: for each instance, one of its group.
    """

    def __init__(self, values: dict[str, Ints], leaders: Ints) -> None:
        self.values = values
        self.leaders = leaders

    @staticmethod
    def of(a: Use, b: Use, equal: frozenset[str], tables: dict[tuple[int, tuple[int, ...]], AccessTable | None]) -> Pairs | None:
        """The pairs of two accesses whose indices agree on ``equal``; ``None``: too many values, or unknown ones. ``tables``: those made so far.

        If all axes of an index have too many values together, those with the most are left out, which only adds pairs.
        """
        axes = tuple(
            k
            for k, (x, y) in enumerate(zip(a.index, b.index, strict=a.buffer == b.buffer))
            if a.buffer == b.buffer
            and x is not None
            and y is not None
            and _countable(x, a.context.ranges)
            and _countable(y, b.context.ranges)
            and not (x is y and x.free <= equal)  # what all pairs agree on tells none from another
        )
        while True:
            for u in (a, b):
                if (u.place, axes) not in tables:
                    tables[u.place, axes] = AccessTable.of(u, axes)
            one, two = tables[a.place, axes], tables[b.place, axes]
            if (one is not None and two is not None) or len(axes) < 2:
                break
            axes = min((axes[:k] + axes[k + 1 :] for k in range(len(axes))), key=lambda left: max(_instances(a, left), _instances(b, left)))
        if one is None or two is None or one.names != two.names or not equal | set(one.names) >= THREADS:
            return None
        shared = tuple(sorted(equal & one.symbols.keys() & two.symbols.keys()))
        left, right = one.distinct(shared), two.distinct(shared)
        both = np.concatenate([left, right], axis=1)
        size = len(one.elements) + len(shared)
        elements, groups = np.unique(_numbers(both[:size]), return_inverse=True)
        first, second = (np.bincount(side, minlength=len(elements)) > 0 for side in np.split(groups, [left.shape[1]]))
        met = np.flatnonzero((first & second)[groups])
        groups = groups[met]
        leader = np.zeros(len(elements), np.int64)
        leader[groups] = np.arange(len(met))
        return Pairs({n: both[size + k, met] for k, n in enumerate(one.names)}, leader[groups])

    @property
    def empty(self) -> bool:
        """True if no such pair exists."""
        return bool(self.values) and not len(self.leaders)

    def one_thread(self, equal: frozenset[str]) -> bool:
        """True only if both threads are always the same one."""
        return set(self.values) | equal >= THREADS and all(map(self._equal, self.values.values()))

    def agree(self, e: Expr) -> bool:
        """True only if an expression has one value for both threads of each pair."""
        return e.free <= set(self.values) and self._equal(np.broadcast_to(np.asarray(evaluate(e, self.values)), self.leaders.shape))

    def one_warp(self, threads: Threads, equal: frozenset[str]) -> bool:
        """True only if both threads of each pair are always in one warp."""
        rest = THREADS - set(self.values)
        if any(n not in equal or (n not in threads.outer and threads.extents[n] is not const(1)) for n in rest):
            return False
        strides = {n: e.value for n in self.values if isinstance(e := threads.strides[n], Const)}
        moving = [n for n, v in self.values.items() if not self._equal(v)]
        if len(strides) < len(self.values) and (any(n not in strides for n in moving) or any(n not in strides and n not in threads.outer for n in self.values)):
            return False
        return self._equal(sum((k * self.values[n] for n, k in strides.items()), start=np.zeros(self.leaders.shape, np.int64)) // WARP)

    def _equal(self, values: Ints) -> bool:
        """True only if each group has one value."""
        return bool((values == values[self.leaders]).all())


class AccessTable:
    """All instances of an access.

    Attributes:
        count: number of instances.
        elements: values of some axes of its index.
        symbols: values of the symbols.
        names: the thread indices among these.
    """

    def __init__(self, count: int, elements: list[Ints], symbols: dict[str, Ints]) -> None:
        self.count = count
        self.elements = elements
        self.symbols = symbols
        self.names = tuple(n for n in THREAD_NAMES if n in symbols)
        self._distinct: dict[tuple[str, ...], Ints] = {}

    @staticmethod
    def of(u: Use, axes: Iterable[int]) -> AccessTable | None:
        """The instances of an access, for some axes; ``None``: too many values, or unknown ones."""
        index = [e for k in axes if (e := u.index[k]) is not None]
        names = {n for n in THREADS if None not in u.context.ranges.of(sym(n))}
        env = _values(names.union(*(e.free for e in index)), u.context)
        if env is None:
            return None
        count = len(next(iter(env.values()))) if env else 1
        return AccessTable(count, [np.broadcast_to(np.asarray(evaluate(e, env), np.int64), (count,)) for e in index], env)

    def distinct(self, shared: tuple[str, ...]) -> Ints:
        """Elements, some symbols and the thread indices, a row each, without equal columns."""
        found = self._distinct.get(shared)
        if found is None:
            columns = [*self.elements, *(self.symbols[n] for n in (*shared, *self.names))]
            rows = np.array(columns, np.int64).reshape(len(columns), self.count)
            _, first = np.unique(_numbers(rows), return_index=True)
            found = self._distinct[shared] = rows[:, first]
        return found


def _instances(u: Use, axes: tuple[int, ...]) -> int:
    """The values that the symbols of some axes have together, with the indices of threads."""
    ranges = u.context.ranges
    names = {n for n in THREADS if None not in ranges.of(sym(n))}
    return _size(names.union(*(e.free for k in axes if (e := u.index[k]) is not None)), ranges)


def _numbers(rows: Ints) -> Ints:
    """A number for each column, the same for equal columns."""
    found = np.zeros(rows.shape[1], np.int64)
    count = 1
    for row in rows:
        if not row.size:
            break
        low, high = int(row.min()), int(row.max())
        width = high - low + 1
        if count * width > 1 << 62:  # fewer numbers for what there is
            _, found = np.unique(found, return_inverse=True)
            count = int(found.max()) + 1
        found = found * width + (row - low)
        count *= width
    return found


def _countable(e: Expr, ranges: Ranges) -> bool:
    return all(None not in ranges.of(sym(n)) for n in e.free)


def extremes(e: Expr, context: Context) -> tuple[int, int] | None:
    """The least and the largest value of an expression in a context, by enumeration (both 0 where it has none); ``None``: too many values, or unknown ones."""
    env = _values(set(e.free), context)
    if env is None:
        return None
    try:
        values = np.asarray(evaluate(e, env))
    except ZeroDivisionError:  # of constants
        return None
    return (int(values.min()), int(values.max())) if values.size else (0, 0)


def tell_apart(facts: Sequence[Expr], moving: frozenset[str], one: Context, two: Context) -> bool:
    """True only if some expressions differ whenever some of their symbols do, in either context; by enumeration.

    Args:
        facts: about all other symbols, which have the same value in both.
        moving: the symbols.
    """
    names = frozenset[str]().union(*(f.free for f in facts))
    tables = [_values(set(names), context) for context in (one, two)]
    if None in tables:
        return False
    rows: list[Ints] = []
    for env in tables:
        assert env is not None
        count = len(next(iter(env.values())))
        try:
            rows.append(np.array([np.broadcast_to(np.asarray(evaluate(f, env), np.int64), (count,)) for f in facts] + [env[n] for n in sorted(names)]))
        except ZeroDivisionError:
            return False
    table = np.concatenate(rows, axis=1)
    same = [k for k, n in enumerate(sorted(names), len(facts)) if n not in moving]
    return len(np.unique(_numbers(table[[*range(len(facts)), *same]]))) == len(np.unique(_numbers(table[len(facts) :])))


def named(e: Expr, context: Context) -> tuple[Expr, Context]:
    """An expression with a new symbol for each division by a non-constant, and each choice, whose extremes an enumeration finds; and a context with these
    symbols.

    The order of tiles of a persistent kernel is such an expression: of the block and of the trip, while other symbols of the index have too many values
    beside them.
    """
    found: dict[Expr, Expr] = {}
    spans: list[tuple[Expr, tuple[int, int]]] = []

    def written(node: Expr) -> Expr:
        if node in found:
            return found[node]
        is_one = isinstance(node, Select) or (isinstance(node, FloorDiv | Mod) and not isinstance(node.b, Const))
        if is_one and (span := extremes(node, context)) is not None:
            found[node] = private(f"division.{len(spans)}")
            spans.append((found[node], span))
            return found[node]
        return rebuild(node, written)

    e = written(e)
    for symbol, span in spans:
        context = context.with_span(symbol, span)
    return e, context


def _values(names: set[str], context: Context) -> dict[str, Ints] | None:
    """All values that symbols have together, under the conditions on symbols with constant bounds; ``None``: too many, one without such bounds, or a
    condition without a value."""
    ranges = context.ranges
    if any(None in ranges.of(sym(n)) for n in names):
        return None
    ends = [lt(sym(n.stmt.var), n.stmt.stop) for n in context.loops if isinstance(n.stmt, For)]
    conditions = [c for c in (*context.conditions, *ends) if _countable(c, ranges)]
    while True:
        more = {n for c in conditions if not c.free.isdisjoint(names) for n in c.free} - names
        if not more or _size(names | more, ranges) > INSTANCES:
            break
        names = names | more
    if _size(names, ranges) > INSTANCES:
        return None
    ordered = sorted(names)
    spans = [ranges.of(sym(n)) for n in ordered]
    grids = [np.arange(lo, hi + 1) for lo, hi in spans if lo is not None and hi is not None]
    mesh = np.meshgrid(*grids, indexing="ij")
    env = {n: g.reshape(-1) for n, g in zip(ordered, mesh, strict=True)}
    if not env:
        return env
    mask = np.ones(mesh[0].size, np.bool_)
    for c in conditions:
        if c.free <= names:
            try:
                mask = mask & np.asarray(evaluate(c, env), np.bool_)
            except ZeroDivisionError:  # what a loop or a condition around it divides by may be 0
                return None
    return {n: v[mask] for n, v in env.items()}


def _size(names: set[str], ranges: Ranges) -> int:
    size = 1
    for n in names:
        lo, hi = ranges.of(sym(n))
        size *= 1 if lo is None or hi is None else max(0, hi - lo + 1)
    return size
