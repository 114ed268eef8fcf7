"""The ranges of the symbols around a statement: loops, threads and blocks under the conditions around them, as spans and remaining conditions.

For a statement that stores to Global memory, these ranges determine all elements that it stores.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.bounded_variables import BoundedElement, Trip
from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import ones
from taskfuse.check.ranges import EQ, LE, LT, NE, Ranges, terms_of
from taskfuse.check.statement_tree import BLOCK_NAMES, THREAD_NAMES, THREADS, Node, StatementTree
from taskfuse.check.values.claims import Place
from taskfuse.check.values.questions import inside, nonempty, proves
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import (
    ONE,
    TRUE,
    ZERO,
    Compare,
    Const,
    Expr,
    FloorDiv,
    Mod,
    Select,
    Sym,
    conjuncts,
    const,
    eq,
    evaluate,
    is_boolean,
    le,
    lt,
    remembered,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import For

Ints = NDArray[np.int64]
MEMORY = 1 << 6
"""Sets of threads that are remembered."""
Span = tuple[Expr, Expr | None]
"""The first value and the exclusive end; ``None``: bounded by a condition that is known to include all relevant values."""


@dataclass(frozen=True, slots=True, eq=False)
class Visits:
    """The points that one statement visits.

    Attributes:
        point: one expression per axis.
        spans: symbols, each with its range.
        conditions: those that select among existing points.
        rows: joint values of some symbols, if they are not the whole product of their spans.
        ranges: constant bounds of symbols whose spans are not constants.
    """

    node: Node
    point: tuple[Expr, ...]
    spans: Mapping[str, Span]
    conditions: tuple[Expr, ...]
    ranges: Ranges
    rows: Mapping[str, Ints] | None = None

    def walks(self, extents: Iterable[Expr], *, again: bool) -> bool:
        """True only if each axis of a box has a symbol of its own, from 0 to the end of the axis, and all others have one value: each point is visited once.

        Args:
            again: others may have more than one.
        """
        if self.rows is not None or self.conditions:
            return False
        others = dict(self.spans)
        for e, extent in zip(self.point, extents, strict=True):
            start, stop = others.pop(e.name, (None, None)) if isinstance(e, Sym) else (e, e + 1)
            if start is not ZERO or stop is not extent or not extent.free.isdisjoint(self.spans):
                return False
        counts = [None if stop is None else stop - start for start, stop in others.values()]
        return all(n is ONE or (again and isinstance(n, Const) and n.value > 0) for n in counts)


def runs(
    node: Node,
    loops: Iterable[Node],
    spans: dict[str, Span],
    points: Mapping[str, int],
    exists: tuple[Expr, ...],
    held: Iterable[Expr] = (),
    *,
    spared: bool = False,
) -> tuple[dict[str, Span], list[Expr]]:
    """The spans of some loops and of ``spans`` under the conditions around a statement, and the conditions that select among their values.

    Args:
        loops: the loops.
        spans: further symbols.
        points: symbols of the instruction.
        exists: the condition that the visited point exists: conditions that follow from it exclude nothing.
        held: conditions that hold in any case.
        spared: spans do not end by conditions that the point exists.

    Raises:
        Open: a condition depends on more.
    """
    spans = dict(spans) | {name: (const(0), const(n)) for name, n in points.items()}
    conditions: list[Expr] = []
    late: set[str] = set()  # their bounds depend on others that run, or on a condition: these are conditions
    trips: list[Trip] = []
    for n in loops:
        s = n.stmt
        assert isinstance(s, For)
        stop: Expr = s.stop
        while isinstance(stop, Select) and proves(n.context.constraints, le(stop.b, s.start)):
            conditions += (c for c in conjuncts(stop.cond) if not proves(n.context.constraints, c))  # what is around the loop says the others
            stop = stop.a
            late.add(s.var)
        if s.start is const(0) and is_boolean(stop) and not isinstance(stop, Const):  # one iteration where the condition holds
            conditions += (c for c in conjuncts(stop) if not proves(n.context.constraints, c))
            stop = const(1)
            late.add(s.var)
        if s.var in late:
            trips.append(Trip.of(replace(s, stop=stop)))
        spans[s.var] = s.start, stop
        if s.step is not const(1):
            conditions.append(eq((sym(s.var) - s.start) % s.step, 0))
    running = frozenset(spans)
    for name, (start, end) in list(spans.items()):
        if not start.free.isdisjoint(spans):
            least, _ = node.context.ranges.of(start)
            if least is None:
                raise Open(f"{name} begins at {start}, of which no bound is known", node)
            late.add(name)
            conditions.append(le(start, sym(name)))
            spans[name] = const(least), end
        if end is not None and not end.free.isdisjoint(spans):
            late.add(name)
            conditions.append(_before(name, end, spans))
            spans[name] = spans[name][0], None
    conditions += [part for c in node.conditions for part in conjuncts(c)]
    ended = ((name, spans[name][0], node.context.ranges.of(sym(name))) for name in sorted(late) if spans[name][1] is None)  # when they stop is a condition
    single = {name: (start, const(lo)) for name, start, (lo, hi) in ended if lo is not None and lo == hi}
    only: dict[str, Expr] = {name: value for name, (_, value) in single.items()}
    if single:  # loops with one iteration at most: their conditions say when they have one
        conditions = [substitute(c, only) for c in (*conditions, *(le(start, value) for start, value in single.values()))]
        spans |= {name: (value, value + 1) for name, value in only.items()}
    if not conditions:
        return spans, []
    kept = {substitute(c, only) if only else c for c in held}
    if spared:
        existing = known_of(node, points, late).given(*exists)
        conditions = [c for c in conditions if c.free <= THREADS or not proves(existing, c)]
    listed = all(isinstance(e, Const) for e in node.context.kernel.block)  # threads are written down one by one
    spans, conditions = _tightened(spans, conditions, node.context.constraints.about(const(0))[0], THREADS if listed else frozenset())
    around = known_of(node, points, late).given(*exists, *(t for t in trips if (t.start + t.stop).free.isdisjoint(running)))
    on_threads = [c for c in conditions if c.free <= THREADS and c.free]  # all of them are kept, so that others may follow from them
    under = around.given(*on_threads) if on_threads else around
    left: list[Expr] = []
    for c in conditions:
        if c in kept:
            continue
        if c.free <= THREADS and c.free:
            left.append(c)
        elif proves(around, c) or (under is not around and proves(under, c)):
            continue
        elif not c.free.isdisjoint(spans):
            left.append(c)
        else:
            raise Open(f"it is executed under {c} only", node)
    return spans, left


def _before(name: str, end: Expr, running: Container[str]) -> Expr:
    """That a symbol is less than the end of its span, without a quotient: ``x < a//g + c`` is ``g*(x - c) + g <= a``; what runs on the left."""
    quotients = [(t.a, t.b.value, t) for t, k in terms_of(end)[0] if k == 1 and isinstance(t, FloorDiv) and isinstance(t.b, Const) and t.b.value > 0]
    if len(quotients) != 1:
        return lt(sym(name), end)
    ((a, g, quotient),) = quotients
    form = a - (sym(name) - (end - quotient) + 1) * g  # at least 0
    left: Expr = const(0)
    for term, k in terms_of(form)[0]:
        if any(n in running for n in term.free):
            left = left - term * k
    return le(left, form + left)


def known_of(node: Node, points: Mapping[str, int], without: Iterable[str] = ()) -> Constraints:
    """The facts of the loops around a statement, without some of them, and without conditions."""
    names = set(without)
    assumptions = (i for i in node.context.constraints.assumptions if not isinstance(i, Expr) and not (isinstance(i, Trip) and str(i.symbol) in names))
    elements = (BoundedElement(sym(name), (0, n - 1)) for name, n in points.items())
    return node.context.constraints.about(const(0))[0].given(*assumptions, *elements)


def _tightened(spans: dict[str, Span], conditions: list[Expr], root: Constraints, without: frozenset[str]) -> tuple[dict[str, Span], list[Expr]]:
    """Spans tightened by conditions that bound one symbol; the other conditions."""
    left: list[Expr] = []
    for c in conditions:
        match c:
            case Compare(op, a, b) if op is not NE:
                form = b - a
            case _:
                left.append(c)
                continue
        equal = op is EQ
        match [(t, k) for t, k in terms_of(form)[0] if not t.free.isdisjoint(spans)]:
            case [(Sym(name=name) as u, (1 | -1) as k)] if equal and name not in without:  # the only value, if it is one of them
                bound = (form - u * k) * -k
                if proves(root, le(spans[name][0], bound)) and _ends_after(root, spans[name], bound + 1):
                    spans[name] = bound, bound + 1
                    continue
            case [(Sym(name=name) as t, (1 | -1) as k)] | [(FloorDiv(a=Sym(name=name), b=Const()) as t, (1 | -1) as k)] if not equal and name not in without:
                size = t.b if isinstance(t, FloorDiv) else const(1)  # x//c <= q is x < c*q + c, and x//c >= q is x >= c*q, for c > 0
                bound = (form - t * k - (1 if op is LT else 0)) * -k
                start, stop = spans[name]
                if k > 0 and proves(root, lt(0, size)) and proves(root, le(start, low := size * bound)):
                    spans[name] = low, stop
                    continue
                if k < 0 and proves(root, lt(0, size)) and _ends_after(root, spans[name], high := size * (bound + 1)):
                    spans[name] = start, high
                    continue
            case _:
                pass
        left.append(c)
    return spans, left


def _ends_after(root: Constraints, span: Span, end: Expr) -> bool:
    """Whether a span is unbounded, or ends at or after ``end``."""
    return span[1] is None or proves(root, le(end, span[1]))


def threads_of(kernel: Kernel, conditions: Iterable[Expr]) -> Mapping[str, Ints] | None:
    """The threads that conditions on them select, index by index; ``None`` if the block has no constant extents."""
    shape = tuple([e.value for e in kernel.block if isinstance(e, Const)])
    return _threads(shape, tuple(conditions)) if len(shape) == 3 else None


@remembered(MEMORY)
def _threads(shape: tuple[int, ...], conditions: tuple[Expr, ...]) -> Mapping[str, Ints]:
    """The same in a block of some shape."""
    linear = np.arange(prod(shape), dtype=np.int64)
    parts = (linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1]))
    env: dict[str, Ints] = dict(zip(THREAD_NAMES, parts, strict=True))
    mask = ones(linear.size)
    for c in conditions:
        mask &= np.asarray(evaluate(c, env), np.bool_)
    return {n: v[mask] for n, v in env.items()}


def below(condition: Expr, a: Expr) -> Expr | None:
    """``T`` of a condition ``a < T``; ``None`` for other conditions."""
    match condition:
        case Compare(op, x, FloorDiv(a=p, b=Const(value=g))) if op is LT and g > 0:  # x < p//g is g*x + g - 1 < p
            form = p - x * g - (g - 1)
        case Compare(op, x, y) if op is LT:
            form = y - x
        case Compare(op, x, y) if op is LE:
            form = y - x + 1
        case _:
            return None
    bound = form + a
    return bound if bound.free.isdisjoint(a.free) else None


def _dealt(loops: list[Node], spans: dict[str, Span], used: Container[str]) -> tuple[list[Node], dict[str, Span]]:
    """Loops that deal their values to the indices of a symbol as spans of these values: ``for w = (b + c) % n; w < stop; w += n``, for ``b`` from 0 to n - 1.

    Each ``w`` below ``stop`` is one of exactly one ``b``, as that is ``w - c`` modulo n. So nothing else may depend on ``b``.
    """
    left, spans = list(loops), dict(spans)
    for n in loops:
        s = n.stmt
        assert isinstance(s, For)
        match s.start:
            case Mod(a, m) if m is s.step:
                terms, _ = terms_of(a)
            case _:
                continue
        match terms:
            case ((Sym(name=b), 1),) if b in spans and b not in used and spans[b][0] is const(0) and spans[b][1] is s.step:
                pass
            case _:
                continue
        others = (e for o in left if o is not n and isinstance(o.stmt, For) for e in (o.stmt.start, o.stmt.stop, o.stmt.step))
        if b in s.stop.free or any(b in e.free for e in others):
            continue
        left.remove(n)
        del spans[b]
        spans[s.var] = const(0), s.stop
    return left, spans


def _owned(place: Place, spans: dict[str, Span], conditions: list[Expr]) -> tuple[dict[str, Span], list[Expr]]:
    """Without the block indices of which whatever else runs says the only value, by a condition ``b == e`` with ``e`` in the span of ``b``."""
    equal = [c for c in conditions if isinstance(c, Compare) and c.op is EQ]
    if not equal:
        return spans, conditions
    spans, left = dict(spans), list(conditions)
    around = known_of(place.node, dict(place.points))
    for c in equal:
        form = c.a - c.b
        for b in BLOCK_NAMES:
            k = next((k for t, k in terms_of(form)[0] if t is sym(b)), 0)
            if abs(k) != 1 or b not in spans:
                continue
            owner = sym(b) - form * k
            others = (*place.element, *(e for e in left if e is not c), *(e for n, span in spans.items() if n != b for e in span if e is not None))
            if b in owner.free or any(b in e.free for e in others):
                continue
            start, stop = spans[b]
            if stop is not None and proves(around, le(start, owner)) and proves(around, lt(owner, stop)):
                left.remove(c)
                del spans[b]
                break
    return spans, left


def stores(tree: StatementTree, place: Place, shape: tuple[Expr, ...], needed: Expr = TRUE, *, each: bool = False) -> Visits:
    """The elements that a statement stores, by all blocks, threads and iterations.

    Args:
        needed: a condition on the index of the elements in question, ``i0`` and so on.
        each: every execution counts, also a repeated one.

    Raises:
        Open: no proof was found.
    """
    node, kernel = place.node, tree.kernel
    place = replace(place, element=tuple(simplify(e, node.context.facts) for e in place.element))  # what its conditions say of it
    spans: dict[str, Span] = {}
    for names, extents in ((BLOCK_NAMES, kernel.grid), (THREAD_NAMES, kernel.block)):
        spans |= {n: (const(0), e) for n, e in zip(names, extents, strict=True)}
    at = {f"i{k}": e for k, e in enumerate(place.element)}
    exists = (*inside(place.element, shape), *nonempty(shape, node.context.ranges), *conjuncts(substitute(needed, at)))
    free = {n for e in place.element for n in e.free} | {n for c in node.conditions for n in c.free}
    loops = () if each else node.loops
    again = [n for n in loops if isinstance(n.stmt, For) and n.stmt.var not in free and (n.runs() or _needed_runs(n, place, exists))]  # stores again
    inner, spans = _dealt([n for n in node.loops if n not in again], spans, free)
    spans, conditions = runs(node, inner, spans, dict(place.points), exists)
    spans, conditions = _owned(place, spans, conditions)
    threads = [c for c in conditions if c.free <= THREADS]
    rows = threads_of(kernel, threads) if threads else None  # of all threads their spans say it
    if rows is None:
        return Visits(node, place.element, spans, tuple(conditions), node.context.ranges)
    fixed = {n: const(int(v[0])) for n, v in rows.items() if v.size and (v == v[0]).all()}
    rows = {n: v for n, v in rows.items() if n not in fixed}
    left = tuple(substitute(c, fixed) for c in conditions if c not in threads)
    spans = {n: s for n, s in spans.items() if n not in fixed}
    return Visits(node, tuple(substitute(e, fixed) for e in place.element), spans, left, node.context.ranges, rows or None)


def _needed_runs(loop: Node, place: Place, exists: tuple[Expr, ...]) -> bool:
    """True only if a loop that nothing else around a statement depends on has an iteration wherever the element that is stored exists."""
    stmt, node = loop.stmt, place.node
    assert isinstance(stmt, For)
    bounds = (e for n in node.loops if isinstance(n.stmt, For) for e in (n.stmt.start, n.stmt.stop, n.stmt.step))
    if any(stmt.var in e.free for e in bounds):
        return False
    return proves(known_of(node, dict(place.points), (stmt.var,)).given(*exists), lt(stmt.start, stmt.stop))
