"""Sums that are rescaled: before the terms at an index along one axis, the partial sum is multiplied by the factor at that index, once.

One loop runs over all indices in order, around all statements that take terms or rescale. It may have other iterations, or an index of an earlier one, as a
software pipeline has: then none of these statements runs at another index than those. In an iteration, the statements that rescale come first. Each
accumulator that takes a term in it is multiplied by one of them, for the same element, and by no other. A thread's part of a sum is rescaled like the whole.
An axis of one index needs no loop: then the same holds of all that is done to the accumulators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import BLOCK_NAMES, THREADS, Node
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term
from taskfuse.check.values.claims import Place
from taskfuse.check.values.match import is_left_by_one, where_found
from taskfuse.check.values.questions import equal, inside, known_at, proves
from taskfuse.check.values.solve import Open
from taskfuse.check.values.write_and_read import Found, WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing
from taskfuse.ir.scalar import (
    ONE,
    ZERO,
    Const,
    Expr,
    Facts,
    FloorDiv,
    Mod,
    const,
    evaluate,
    le,
    lookups_of,
    lt,
    maximum,
    minimum,
    rebuild,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir.nodes import For
from taskfuse.kir.witness import Definition, Reduce

MOST = 4096
"""The most accumulators of a thread that are multiplied in one iteration."""


class Rescaling:
    """The statements of a kernel that rescale."""

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self._factors: dict[str, list[Term]] = {}

    def enter(self, factor: Term) -> None:
        """Add a statement that multiplies accumulators."""
        self._factors.setdefault(factor.place.buffer, []).append(factor)

    def check(self, group: Sequence[Term], scope: Sequence[Node], definition: Definition, rule: Reduce, parts: Sequence[Node]) -> None:
        """The accumulators of a group of terms are rescaled as their sum is. Raises :class:`Open`."""
        first = group[0]
        factors = self._factors.get(first.place.buffer, [])
        if rule.rescaled is None:
            if factors:
                raise Open("an accumulator is multiplied, and its sum is not rescaled", factors[0].node)
            return
        loop = None if definition.space[rule.rescaled] is ONE else self._loop((*group, *factors), scope, definition, rule.rescaled)
        for t in (*group[1:], *factors):
            is_around = loop is None or loop in t.node.loops
            if not is_around or [n for n in t.node.loops if n in scope] != list(scope) or t.point[rule.rescaled] is not first.point[rule.rescaled]:
                raise Open("its terms and factors are not taken in one loop", first.node, t.node)
        if not factors:
            raise Open("it is not rescaled", first.node)
        last = max(f.node.number for f in factors)
        late = next((t for t in group if t.node.number < last), None)
        if late is not None:
            raise Open("it is rescaled behind terms of the same index", factors[-1].node, late.node)
        joined = next((n for n in parts if loop in n.loops), None)
        if joined is not None:
            raise Open("its partial results are joined between the indices at which it is rescaled", joined)
        self._once(factors, [*scope, *([] if loop is None else [loop])])
        for t in group:
            self._each(t, factors)

    def _loop(self, every: Sequence[Term], scope: Sequence[Node], definition: Definition, axis: int) -> Node:
        """The loop over the indices, which no other loop repeats. ``every``: all terms and factors, of which the first has their index."""
        first = every[0]
        for n in first.node.loops:
            s = n.stmt
            if n in scope or not isinstance(s, For):
                continue
            if not self._is_fixed(first.point[axis] - sym(s.var), first, scope):
                raise Open(f"it is rescaled again in each iteration of {s.var}", first.node)
            is_from_first = simplify(first.point[axis] - _start(first, definition, axis), first.node.context.facts) is sym(s.var)
            is_whole = is_from_first and s.start is const(0) and self._ends_with_terms(s.stop, first, definition, axis)
            if s.step is not const(1) or not (is_whole or all(self._is_among(t, definition, axis) for t in every)):
                raise Open("its loop does not run over all indices at which it is rescaled, in order", first.node)
            return n
        raise Open("the index at which it is rescaled is not a loop's", first.node)

    def _is_fixed(self, e: Expr, first: Term, scope: Sequence[Node]) -> bool:
        """True only if an integer is the same wherever a thread takes the terms of one sum, for which loops around do not start anew."""
        around = {n.stmt.var for n in first.node.loops if n in scope and isinstance(n.stmt, For)}
        return e.free <= around | THREADS | {*BLOCK_NAMES} | {dim.name for dim in self.writes.tree.kernel.extents}

    @staticmethod
    def _is_among(t: Term, definition: Definition, axis: int) -> bool:
        """True only if a statement runs at no other index than those that have terms: all of these do, so the loop runs over them."""
        index, start, end = t.point[axis], _start(t, definition, axis), _end(t, definition, axis)
        around = known_at(replace(t.place, given=())), known_at(t.place)
        return any(proves(known, le(start, index)) and proves(known, lt(index, end)) for known in around)

    @staticmethod
    def _ends_with_terms(stop: Expr, first: Term, definition: Definition, axis: int) -> bool:
        """True if a loop ends with the axis, or where the terms of its elements end."""
        return equal(known_at(first.place), stop, maximum(_end(first, definition, axis) - _start(first, definition, axis), 0))

    @staticmethod
    def _once(factors: Sequence[Term], around: Sequence[Node]) -> None:
        """In an iteration of some loops no accumulator is multiplied twice."""
        seen: set[tuple[int, ...]] = set()
        for f in factors:
            own = [n.stmt for n in f.node.loops if n not in around and isinstance(n.stmt, For)]
            spans: list[range] = []
            for s in own:
                match s.start, s.stop, s.step:
                    case Const(value=start), Const(value=stop), Const(value=step):
                        spans.append(range(start, stop, step))
                    case _:
                        raise Open("how often it is rescaled is not known", f.node)
            names = [s.var for s in own]
            if any(not e.free <= set(names) for e in f.place.index) or len(seen) > MOST:
                raise Open("which accumulators are rescaled is not known", f.node)
            for values in product(*spans):
                at = tuple(int(evaluate(e, dict(zip(names, values, strict=True)))) for e in f.place.index)
                if at in seen:
                    raise Open("an accumulator is rescaled twice at one index", f.node)
                seen.add(at)

    def _each(self, t: Term, factors: Sequence[Term]) -> None:
        """Every accumulator that takes terms is multiplied, for its element, in the same iteration."""
        storage = self.writes.storages[t.place.buffer]
        shape = self.writes.shape(t.place.tensor)
        around = known_at(t.place).given(*inside(t.place.element, shape))

        def found(f: Term, constraints: Constraints, among: ValueTable | None) -> Found | None:
            same = {n.stmt.var: sym(n.stmt.var) for n in f.node.loops if isinstance(n.stmt, For) and n in t.node.loops}
            return where_found(WriteAndRead(Writing(f.place, storage.memory, same), _wanted(t), storage, shape, None, constraints, among, past=False))

        if not is_left_by_one(factors, found, around):
            raise Open("not every accumulator is rescaled before it takes terms", t.node)


def _start(t: Term, definition: Definition, axis: int) -> Expr:
    """Where the terms of an element start along an axis."""
    starts = dict(definition.rule.starts) if isinstance(definition.rule, Reduce) else {}
    return maximum(substitute(starts[axis], {f"i{k}": e for k, e in enumerate(t.point)}), 0) if axis in starts else ZERO


def _end(t: Term, definition: Definition, axis: int) -> Expr:
    """Where the terms of an element end along an axis."""
    extent = definition.space[axis]
    ends = dict(definition.rule.ends) if isinstance(definition.rule, Reduce) else {}
    if axis not in ends:
        return extent
    end = substitute(ends[axis], {f"i{k}": e for k, e in enumerate(t.point)})
    return minimum(extent, maximum(_tiles_named(end, known_at(t.place).facts), 0))


def _tiles_named(e: Expr, facts: Facts) -> Expr:
    """An end in which quotients of indices, such as the tile of a row, are their only values: statements of different rows then ask one question."""
    return simplify(e, facts) if isinstance(e, FloorDiv | Mod) and not lookups_of(e) else rebuild(e, lambda x: _tiles_named(x, facts))


def _wanted(t: Term) -> Place:
    """The accumulators of a term, as what must have been multiplied."""
    return Place(t.node, t.place.buffer, t.place.index, t.place.tensor, t.place.element, t.place.points)
