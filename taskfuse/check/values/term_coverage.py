"""The terms that accumulators take cover the reduction: every point of the domain that belongs to the element, once.

Loops around a term that do not also surround the reader, points of an instruction, and the threads and blocks whose partial results have been joined are
symbols of a point. The points of all their values are those of a box, along each reduced axis up to where terms end. The box says nothing of other
elements' points, so where an index of the element is a digit of an axis, points of which it is another digit are left out. A point past the end of an axis
must add nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import product

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import BLOCK_NAMES, THREADS, Node
from taskfuse.check.values.accumulators import Term, determined
from taskfuse.check.values.claims import Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.cross_thread_reductions import Joined
from taskfuse.check.values.joined_terms import in_blocks, members_of, one_element, row_spans
from taskfuse.check.values.neutral_terms import end_of_terms, start_of_terms
from taskfuse.check.values.questions import inside, proves
from taskfuse.check.values.residues import residues
from taskfuse.check.values.runs import Span, Visits, known_of, runs
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.scalar import (
    Const,
    Expr,
    Facts,
    Select,
    Sym,
    conjuncts,
    const,
    eq,
    evaluate,
    ge,
    is_boolean,
    le,
    lookups_of,
    maximum,
    minimum,
    not_,
    simplify,
    substitute,
)
from taskfuse.kir.nodes import For
from taskfuse.kir.witness import Definition, Reduce

Ints = NDArray[np.int64]


class TermCoverage:
    """The points of reductions that accumulators take terms of.

    Attributes:
        overhangs: the statements that may take terms past the end of an axis.
    """

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self.overhangs: set[Node] = set()
        self._near: dict[tuple[frozenset[object], frozenset[Expr]], Facts] = {}

    def check(self, group: list[Term], scope: list[Node], definition: Definition, constraints: Constraints, joined: Joined | None, want: Place) -> None:
        """A result that is read contains all terms of its element, once.

        Args:
            group: what adds terms to the accumulators that are read.
            scope: the loops of which one iteration takes the terms.
            constraints: those at the reader.
            joined: the threads and blocks whose partial results the reader finds joined; ``None``: no other than its own.

        Raises:
            Open: no proof was found.
        """
        choice = self._choice(group, scope, constraints, want)
        for case in () if choice is None else (choice, not_(choice)):
            within = constraints.given(case)
            taken = [t for t in group if not_(case) not in _parts(t)]
            if not within.empty and not taken:
                raise Open(f"an accumulator takes no terms under {case}", want.node)
            if not within.empty:
                self.check(taken, scope, definition, within, joined, want)
        if choice is not None:
            return
        space = definition.space
        kept = {e.name for e in definition.place if isinstance(e, Sym)}
        axes = [k for k in range(len(space)) if f"i{k}" not in kept]
        own = determined(group[0], scope)
        said = determined(group[0], [n for n in scope if n in want.node.loops])
        at = {e.name: w for e, w in zip(group[0].place.index, want.index, strict=True) if isinstance(e, Sym) and e.name in said}
        listed: AbstractSet[str] = THREADS if joined is None else joined.threads.index.keys()
        blocks: dict[str, Span] = {}
        grid = dict(zip(BLOCK_NAMES, self.writes.tree.kernel.grid, strict=True))
        rows: list[Mapping[str, Ints] | None] = [None]
        if joined is not None:  # of whichever thread and block
            others = listed | joined.blocks.keys()
            rows = [*members_of(joined, group, axes, want)]
            assumptions = [i for i in constraints.assumptions if i.free.isdisjoint(others) or (isinstance(i, Expr) and _is_of_members(i, rows))]
            constraints = constraints.about(const(0))[0].given(*assumptions)
            blocks = {name: (const(0), grid[name]) for name in joined.blocks}
            one_element(joined, group, constraints)
        digits = any(not isinstance(e, Sym) for e in definition.place)  # the element says digits of an axis, which may lead past its end

        def beyond(row: Mapping[str, Ints] | None, *, everywhere: bool, plain: bool, strong: bool, late: bool, alike: bool) -> bool:
            """Whether terms lie past the end: of all points, or only of those that satisfy the conditions around the terms.

            Args:
                plain: the points as loops say them: what conditions say of their symbols is not put in.
                strong: ends are simplified by all that is known of the element.
                late: loops may leave out neutral terms in front.
                alike: what holds of an element that is read is also said as it is at the term.
            """
            visits: list[Visits] = []
            along: dict[str, Span] = {}
            if joined is not None and row is not None and joined.threads.along and joined.threads.along not in row:
                along = {joined.threads.along: (const(0), joined.threads.extent)}
            last = [substitute(e, joined.blocks) if joined is not None else e for e in group[-1].point]
            element = {k: last[k] for k in range(len(space)) if k not in axes}
            there = constraints.given(*inside(element.values(), (space[k] for k in element)))
            ends = self._with_terms(definition, axes, {f"i{k}": e for k, e in element.items()}, there, group[-1].node.context.facts, strong=strong)
            extents: list[Expr] = []
            shorter: dict[int, Expr] | None = None
            for t in group:
                loops = [n for n in t.node.loops if n not in scope and isinstance(n.stmt, For) and n.stmt.var not in own]
                exists = (*(inside(t.point, space) if everywhere else ()), *self._read(t, definition, alike=alike))
                spans, conditions = runs(
                    t.node, loops, blocks | along, {name: n for name, n in t.points}, exists, self._held(t, constraints, joined, at), spared=plain
                )
                values = list(t.point)
                if joined is not None:
                    spans, conditions = in_blocks(joined, spans, conditions, grid, constraints)
                    values = [substitute(e, joined.blocks) for e in values]
                near = known_of(t.node, dict(t.points)) if plain else t.node.context.constraints
                known = near.facts if joined is None else _with_ranges_of(values, near.facts, constraints.facts)
                begun = self._begun(t, definition, axes, values, known, there, spans.keys() | (row or {}).keys(), late=late)
                values = [simplify(e - simplify(begun[k], t.node.context.facts), known) if k in begun else e for k, e in enumerate(values)]
                left = {k: simplify(maximum(ends.get(k, space[k]) - start, 0), there.facts) for k, start in begun.items()}
                if shorter is not None and left != shorter:
                    raise Open("its copies begin at different points", t.node)
                shorter = left
                point, extents = residues(definition, axes, values, known, ends | left, there.facts)
                if digits:
                    conditions += self._belongs(t, definition, values, (spans.keys(), row or {}), joined, constraints)
                conditions = [c for c in conditions if not c.free <= listed or not _holds_for_all(c, row)]
                visits.append(Visits(t.node, tuple(point), spans | row_spans(row), tuple(conditions), t.node.context.ranges, row or None))
            return covered(visits, tuple(extents), there)

        for row in rows:
            overhang = self._first_said(
                lambda everywhere, plain, strong, late, alike, row=row: beyond(row, everywhere=everywhere, plain=plain, strong=strong, late=late, alike=alike),
                digits,
                bool(self._ends(definition, axes)),
                bool(self._neutral_starts(definition, axes)),
                any(self._read(t, definition, alike=False) for t in group),
            )
            if overhang or digits:
                self.overhangs.update(t.node for t in group)

    @staticmethod
    def _belongs(
        t: Term,
        definition: Definition,
        values: list[Expr],
        running: tuple[AbstractSet[str], Mapping[str, Ints]],
        joined: Joined | None,
        constraints: Constraints,
    ) -> Iterator[Expr]:
        """The conditions under which points of a term are of its element, of which some indices are digits: it says nothing of the digits of other points.

        Points of other elements are never taken, so without this they would stand for points that are not taken, with the same other digits.

        Args:
            running: the symbols that differ from point to point, and the threads whose terms are joined, which are of one element (:func:`members_of`). Others
                have one value for the element and its reader.
            constraints: those at the reader.
        """
        loops, threads = running
        wanted = [substitute(e, joined.blocks) if joined is not None else e for e in t.place.element]
        around = known_of(t.node, dict(t.points)).given(*inside(wanted, definition.shape))
        facts = around.facts if joined is None else _with_ranges_of(values, around.facts, constraints.facts)
        at = {f"i{k}": e for k, e in enumerate(values)}
        for e, index in zip(definition.place, wanted, strict=True):
            if isinstance(e, Sym):
                continue
            belongs = eq(simplify(substitute(e, at), facts), index)
            if belongs.free.isdisjoint(loops | threads.keys()) and (proves(around, belongs) or proves(constraints, belongs)):
                continue
            if not index.free.isdisjoint(loops - threads.keys()):
                raise Open(f"a term is of an element that differs within its loops: {index}", t.node)
            yield simplify(belongs, facts)

    @staticmethod
    def _first_said(beyond: Callable[[bool, bool, bool, bool, bool], bool], digits: bool, ends: bool, starts: bool, read: bool) -> bool:
        """What is found in the first of several equivalent ways of saying which points are visited, and where axes end. Raises the first :class:`Open`."""
        first: Open | None = None
        points = [(plain, everywhere) for plain in (False, True) for everywhere in (True, False) if everywhere or plain or digits]
        ways = product((False, True)[: 1 + starts], (False, True)[: 1 + ends], points, (False, True)[: 1 + read])
        for late, strong, (plain, everywhere), alike in ways:
            try:
                return beyond(everywhere, plain, strong, late, alike)
            except Open as error:
                first = first or error.again()
        assert first is not None
        raise first

    def _choice(self, group: list[Term], scope: list[Node], constraints: Constraints, want: Place) -> Expr | None:
        """A condition under which some terms are taken, and others under its negation, where neither is known to hold: each is a case of its own.

        It has the same value where the terms are taken and where the result is read, as it depends on the loops around both alone.
        """
        if len(group) < 2:
            return None
        shared = {n.stmt.var for n in scope if isinstance(n.stmt, For) and n in want.node.loops}
        same = shared | {dim.name for dim in self.writes.tree.kernel.extents}
        listed = {part for t in group for part in _parts(t)}
        choices = (p for t in group for p in _parts(t) if p.free <= same and not p.free.isdisjoint(shared) and not_(p) in listed)
        return next((p for p in choices if not proves(constraints, p) and not proves(constraints, not_(p))), None)

    def _read(self, t: Term, definition: Definition, *, alike: bool) -> list[Expr]:
        """What holds of the element that a term belongs to, if anybody reads it, as it is and, if ``alike``, as it is at the term; nothing else is asked of
        elements."""
        at = {f"i{k}": e for k, e in enumerate(t.point)}
        said = self.writes.read_elements.conditions(definition.tensor, [substitute(e, at) for e in definition.place])
        return [*said, *(simplify(c, t.node.context.facts) for c in said if alike)]

    def _ends(self, definition: Definition, axes: list[int]) -> dict[int, Expr]:
        """Where terms end along reduced axes, for those that say it, over the indices of the element."""
        given = dict(definition.rule.ends) if isinstance(definition.rule, Reduce) else {}
        ends = {k: given.get(k, end_of_terms(definition, k, self.writes.definitions)) for k in axes}
        return {k: end for k, end in ends.items() if end is not None}

    def _neutral_starts(self, definition: Definition, axes: list[int]) -> dict[int, Expr]:
        """Up to where terms are neutral along reduced axes, for those without a start of their own, over the indices of the element."""
        if any(not isinstance(e, Sym) for e in definition.place):  # the element says digits of an axis, which count from its first index
            return {}
        given = dict(definition.rule.starts) if isinstance(definition.rule, Reduce) else {}
        starts = {k: start_of_terms(definition, k, self.writes.definitions) for k in axes if k not in given}
        return {k: start for k, start in starts.items() if start is not None}

    def _begun(
        self,
        t: Term,
        definition: Definition,
        axes: list[int],
        values: Sequence[Expr],
        known: Facts,
        there: Constraints,
        running: AbstractSet[str],
        *,
        late: bool,
    ) -> dict[int, Expr]:
        """Where the terms of an element are taken to start, for axes along which that is not the first index: points count from there.

        It is where the definition says. If it says nothing, terms that are neutral may be left out: then it is where the loops begin, and all terms before are
        neutral.

        Args:
            running: the symbols that differ from point to point.
            late: leave out neutral terms.
        """
        element = {f"i{k}": e for k, e in enumerate(values) if k not in axes}
        given = dict(definition.rule.starts) if isinstance(definition.rule, Reduce) else {}
        facts = _with_ranges_of(element.values(), t.node.context.facts, there.facts)  # an element without a term has a start, too
        found = {k: simplify(maximum(substitute(e, element), 0), facts) for k, e in given.items()}
        for k, start in self._neutral_starts(definition, axes).items() if late else ():
            first = simplify(substitute(values[k], dict.fromkeys(running, const(0))), known)
            if not proves(there, ge(first, 0)) or not proves(there, le(first, maximum(substitute(start, element), 0))):
                raise Open(f"terms in front of the first one taken along axis {k} may count", t.node)
            found[k] = first
        return found

    def _with_terms(
        self, definition: Definition, axes: list[int], element: Mapping[str, Expr], constraints: Constraints, facts: Facts, *, strong: bool
    ) -> dict[int, Expr]:
        """The extents of the reduced axes as far as terms may be other than neutral, for one element; of those that end before the axis does.

        Args:
            facts: those wherever a term of the element is taken. An element without a term has ends, too, so only the ranges of its own indices count.
            strong: simplify what is inside of ends by all that is known of the element, not only of their symbols.
        """
        found: dict[int, Expr] = {}
        for k, end in self._ends(definition, axes).items():
            end, extent = substitute(end, element), definition.space[k]
            if strong:
                end = simplify(end, _with_ranges_of(element.values(), facts, constraints.facts))
                found[k] = simplify(minimum(extent, maximum(end, 0)), constraints.facts)
                continue
            end = simplify(end, self._nearby(end, facts, constraints.facts))
            end = end if proves(constraints, ge(end, 0)) else maximum(end, 0)
            found[k] = end if proves(constraints, le(end, extent)) else minimum(extent, end)
        return found

    def _nearby(self, e: Expr, facts: Facts, before: Facts) -> Facts:
        """What is known of the symbols of an expression alone: their ranges, and conditions on no others; without tables, of which these say little.

        The same object wherever that is the same.
        """
        waiting = set(e.free)
        found: dict[str, tuple[Expr | None, Expr | None]] = {}
        while waiting:
            name = waiting.pop()
            span = before.ranges.get(name, facts.ranges.get(name))
            if span is not None and name not in found:
                found[name] = span
                waiting |= {other for bound in span if bound is not None for other in bound.free}
        conditions = [c for c in before.known if c.free <= found.keys() and not lookups_of(c)]
        key = frozenset(found.items()), frozenset(conditions)
        known = self._near.get(key)
        if known is None:
            known = self.writes.tree.declared.constraints.facts.with_ranges(found)
            for c in sorted(conditions, key=str):
                known = known.with_assumption(c)
            self._near[key] = known
        return known

    def _held(self, t: Term, constraints: Constraints, joined: Joined | None, at: Mapping[str, Expr]) -> list[Expr]:
        """The conditions around a term, and those under which its loops have iterations, that hold where its result is read.

        Conditions of terms that are joined are checked thread by thread.

        Args:
            at: the loops whose variables the accumulator's place says, by what they are where it is read.
        """
        stops = [n.stmt.stop for n in t.node.loops if isinstance(n.stmt, For)]
        found: list[Expr] = []
        while stops:
            stop = stops.pop()
            if isinstance(stop, Select):
                found += (part for part in conjuncts(stop.cond) if proves(constraints, substitute(part, at)))
                stops.append(stop.a)
            elif is_boolean(stop) and not isinstance(stop, Const):  # one iteration where the condition holds
                found += (part for part in conjuncts(stop) if proves(constraints, substitute(part, at)))
        for c in t.node.conditions:
            for part in conjuncts(c):
                holds = proves(constraints, substitute(part, at))
                if joined is None and part.free <= THREADS and not holds:
                    around = known_of(t.node, dict(t.points)).given(*inside(t.point, self.writes.definitions[t.place.tensor].space))
                    if not proves(around, part):
                        raise Open(f"terms are taken under {part}, and read under other conditions", t.node)
                if holds or (joined is None and part.free <= THREADS):
                    found.append(part)
        return found


def _with_ranges_of(expressions: Iterable[Expr], facts: Facts, before: Facts) -> Facts:
    """Some facts, and from others the ranges of the symbols of some expressions, with the ranges of the symbols in these."""
    waiting = {name for e in expressions for name in e.free}
    found: dict[str, tuple[Expr | None, Expr | None]] = {}
    while waiting:
        name = waiting.pop()
        if name in facts.ranges and name not in before.ranges and name not in found:
            found[name] = facts.ranges[name]
            waiting |= {other for bound in found[name] if bound is not None for other in bound.free}
    return before.with_ranges(found) if found else before


def _parts(t: Term) -> list[Expr]:
    """The conditions around a term, one by one."""
    return [part for c in t.node.conditions for part in conjuncts(c)]


def _is_of_members(condition: Expr, rows: Sequence[Mapping[str, Ints] | None]) -> bool:
    """True if a condition that holds where the result is read is one on threads, and holds for all those that are joined: whichever the reader is."""
    return all(row is not None and _holds_for_all(condition, row) for row in rows)


def _holds_for_all(condition: Expr, row: Mapping[str, Ints] | None) -> bool:
    """True if a condition on threads holds for all those of a row; without rows, it is one under which the result is read."""
    if row is None:
        return True
    return condition.free <= row.keys() and bool(np.all(evaluate(condition, row)))
