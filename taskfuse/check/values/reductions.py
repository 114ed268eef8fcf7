"""A reduction is covered: each read of its result finds every term, once.

Terms are added to accumulators, which are registers: by one statement, or several copies of it, in loops over the reduced axes. Loops that also surround a
reader are one iteration for it. The others, with the threads and blocks whose partial results have been joined, must visit every point of the
reduction's domain that belongs to the element, once. A point past the end of an axis must add nothing. The accumulator is set before the first term.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.bounded_variables import with_names
from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import BLOCK_NAMES, THREADS, Node, StatementBlock
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term, determined, disjoint, is_determined, is_read, read_places, touches
from taskfuse.check.values.arms import in_concurrent_arm
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.cross_thread_reductions import CrossThreadReductions, Joined
from taskfuse.check.values.iterations import own_accumulators
from taskfuse.check.values.joined_terms import in_blocks, members_of, one_element, row_spans, taken_by, thread_atoms
from taskfuse.check.values.match import where_found
from taskfuse.check.values.neutral_terms import end_of_terms, start_of_terms
from taskfuse.check.values.questions import inside, known_at, proves
from taskfuse.check.values.rescaling import Rescaling
from taskfuse.check.values.residues import residues
from taskfuse.check.values.runs import Span, Visits, known_of, runs
from taskfuse.check.values.scans import in_order
from taskfuse.check.values.solve import Open
from taskfuse.check.values.starts import Starts
from taskfuse.check.values.write_and_read import LIMIT, Found, WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing, is_about_common_loops, is_said_alike
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
    gt,
    is_boolean,
    le,
    lookups_of,
    maximum,
    minimum,
    not_,
    private,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir import accesses
from taskfuse.kir.nodes import For
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Definition, Iterate, Reduce

Ints = NDArray[np.int64]
MOST_ACCUMULATORS = 4096
"""The most accumulators of a thread that are checked one by one."""


class Reductions:
    """The accumulators of a kernel.

    Attributes:
        terms: accumulator -> the statements that take its terms.
        starts: the statements that set it.
    """

    def __init__(self, writes: Writes, instructions: Instructions) -> None:
        self.writes = writes
        self.instructions = instructions
        self.terms: dict[str, list[Term]] = {}
        self.overhangs: set[Node] = set()
        self.rescaling = Rescaling(writes)
        self.starts = Starts(writes, self.terms)
        self._parts: dict[str, list[Node]] = {}
        self._changes: dict[str, list[Place]] = {}
        self._known: dict[tuple[object, ...], Open | None] = {}
        self._near: dict[tuple[frozenset[object], frozenset[Expr]], Facts] = {}

    def enter(self, node: Node, holds: Holds) -> None:
        """Add a statement that starts, adds to, or joins accumulators."""
        stmt = node.stmt
        changed = self.instructions.written(node, holds)
        self._changes.setdefault(changed.buffer, []).append(changed)
        match holds.content:
            case Content.START:
                place = self.instructions.written(node, holds)
                self.starts.places.setdefault(place.buffer, []).append(place)
            case Content.TERM:
                definition = self.writes.definitions[holds.tensor]
                point = {f"i{k}": e for k, e in enumerate(holds.index)}
                place = self.instructions.written(node, replace(holds, index=tuple(substitute(e, point) for e in definition.place)))
                if any(not isinstance(e, Sym) for e in definition.place):  # parts of an axis, which what is known of its loops may decide
                    setting = [start.node for start in self.starts.places.get(place.buffer, [])[-1:]]
                    started = [c for n in setting for c in n.conditions if is_about_common_loops(c, n, node)]
                    within = {f"tile.{k}": (0, n - 1) for k, n in enumerate(holds.tile)}
                    place = replace(place, element=tuple(_decided(e, node, started, within) for e in place.element))
                whole = self.instructions.written(node, holds)
                mine = {name for name, _ in place.points}
                tiles = tuple((f"tile.{k}", n) for k, n in enumerate(holds.tile) if any(f"tile.{k}" in e.free for e in whole.element))
                if any(name in e.free for name, _ in tiles for e in place.element if name not in mine):
                    raise Open("an accumulator takes terms of several elements", node)
                place = replace(place, given=inside(whole.element, definition.space))
                self.terms.setdefault(place.buffer, []).append(Term(node, place, whole.element, tuple(t for t in tiles if t[0] not in mine)))
            case Content.PART:
                self._parts.setdefault(holds.tensor, []).append(node)
            case Content.RESCALED:
                definition = self.writes.definitions[holds.tensor]
                point = {f"i{k}": e for k, e in enumerate(holds.index)}
                place = self.instructions.written(node, replace(holds, index=tuple(substitute(e, point) for e in definition.place)))
                self.rescaling.enter(Term(node, place, holds.index, ()))
            case _:
                raise AssertionError(stmt)

    # -- a result that is read ------------------------------------------------------------------------------------------------------

    def complete(self, want: Place, given: Iterable[Expr] = ()) -> None:
        """The accumulators that are read contain the wanted elements, complete. Raises :class:`Open`."""
        want, given = self._in_own_words(want, tuple(given))
        definition = self.writes.definitions[want.tensor]
        constraints = known_at(want).given(*given).given(*inside(want.element, definition.shape))
        if constraints.empty:
            return
        terms = self.terms.get(want.buffer, [])
        if not terms:
            self._unchanged(want, [s.node for s in self.starts.places.get(want.buffer, [])])
            self.starts.nothing_taken(want, definition, constraints, self._parts.get(want.tensor, []))
            return
        if any(t.place.tensor != want.tensor for t in terms):
            raise Open(f"{want.buffer} takes terms of another tensor than {want.tensor}", terms[0].node)
        terms = self._since(terms, want)
        groups: dict[tuple[object, ...], list[Term]] = {}
        for t in terms:
            groups.setdefault((t.place.index, t.place.points, t.place.element), []).append(t)
        among: ValueTable | None = None
        hits: list[list[Term]] = []
        for group in groups.values():
            found = self._match(group[-1].place, want, constraints, among)
            if found is None:
                continue
            if found.under:
                raise Open("whether an accumulator has taken terms depends on more than its place", group[0].node)
            hits.append(group)
            if found.rest is None:
                break
            among = found.rest
        else:
            self._unchanged(want, [s.node for s in self.starts.places.get(want.buffer, [])])
            self.starts.nothing_taken(want, definition, constraints, self._parts.get(want.tensor, []), among)
        for group in hits:
            self._unchanged(want, [t.node for t in group])
            for t in group:
                if not is_said_alike(t.node, want.node, (*t.place.index, *t.place.element, *t.point), self.writes.storages[want.buffer].memory):
                    raise Open("which terms it takes is said by a cursor, which may move before the read", t.node)
        given = (*given, *inside(want.element, definition.shape))
        joined = [self._group(want, group, definition, constraints) for group in hits]
        starts = {s.node: s for group in hits for s in self.starts.recent(group[0])}
        setting = sorted(starts.values(), key=lambda s: s.node.number)
        if any(joined):
            last = max(group[0].node.number for group in hits)
            parts = [n for n in self._parts[want.tensor] if last < n.number < want.node.number]
            self.starts.set_for_all(setting or [replace(group[0].place, given=()) for group in hits], parts, want, given)  # or first products
        elif setting:  # also those that take no term
            self.starts.set_before(setting, want, given, "it is read")
        self._apart(groups, hits)

    def _in_own_words(self, want: Place, given: tuple[Expr, ...]) -> tuple[Place, tuple[Expr, ...]]:
        """A reader, and conditions there, with other names for its loops that have the name of another loop, of what takes terms or joins them.

        A loop of an accumulator that is read at the same place has the same value in both.
        """
        mine = {n.stmt.var: n for n in want.node.loops if isinstance(n.stmt, For)}
        if not mine:
            return want, given
        users = [(t.node, {e for e, w in zip(t.place.index, want.index, strict=False) if e is w}) for t in self.terms.get(want.buffer, ())]
        users += [(n, set[Expr]()) for n in self._parts.get(want.tensor, ())]
        loops = ((n.stmt.var, n, alike) for node, alike in users for n in node.loops if isinstance(n.stmt, For))
        names = {name: private(f"{name}.read") for name, n, alike in loops if name in mine and mine[name] is not n and sym(name) not in alike}
        if not names:
            return want, given
        root, around = (n.block.context.constraints for n in (want.node.path[0], want.node))
        known = root.given(*(with_names(a, names) for a in around.assumptions))
        index, element, said = (tuple(substitute(e, names) for e in of) for of in (want.index, want.element, given))
        return replace(want, index=index, element=element, known=known), said

    def _unchanged(self, want: Place, made: Collection[Node]) -> None:
        """A reader in a loop finds in each iteration what some statements in front of the loop made: nothing in the loop, and behind the reader, changes it."""
        again = [n for n in want.node.loops if not any(n in m.loops for m in made)]
        for change in self._changes.get(want.buffer, ()) if again else ():
            if any(n in change.node.loops for n in again) and not disjoint(change, want):
                raise Open("an accumulator is changed in a loop in which it is read", change.node, want.node)

    def _since(self, terms: list[Term], want: Place) -> list[Term]:
        """The terms before a reader that are taken after the accumulator was last set. Copies of a loop use it one after another."""
        before = [t for t in terms if t.node.number < want.node.number]
        starts = [s.node.number for s in self.starts.places.get(want.buffer, []) if s.node.number < want.node.number]
        after = [t for t in before if not starts or t.node.number > max(starts)]
        return after or before

    @staticmethod
    def _apart(groups: Mapping[tuple[object, ...], list[Term]], hits: list[list[Term]]) -> None:
        """No accumulator takes terms in two groups: their registers differ."""
        lists = list(groups.values())
        for i, a in enumerate(lists):
            for b in lists[i + 1 :]:
                one, two = a[0].place, b[0].place
                if not any(a is h for h in hits) and not any(b is h for h in hits):
                    continue
                if not disjoint(one, two):
                    raise Open("an accumulator takes terms in different places", a[0].node, b[0].node)

    def _match(self, claim: Place, want: Place, constraints: Constraints, among: ValueTable | None) -> Found | None:
        shared = {n.stmt.var: sym(n.stmt.var) for n in claim.node.loops if isinstance(n.stmt, For) and n in want.node.loops}
        shape = self.writes.shape(want.tensor)
        storage = self.writes.storages[want.buffer]
        return where_found(WriteAndRead(Writing(claim, storage.memory, shared), want, storage, shape, None, constraints, among, past=False, bare=True))

    def _group(self, want: Place, group: list[Term], definition: Definition, constraints: Constraints) -> bool:
        """The result that is read contains all terms of a group of accumulators, once. True if partial results have been joined."""
        scope = [n for n in group[0].node.loops if n in want.node.loops]
        if any([n for n in t.node.loops if n in want.node.loops] != scope for t in group):
            raise Open("its terms are taken in different loops", *(t.node for t in group[:2]))
        starts = self.starts.recent(group[0])
        inside_all = [n for n in group[0].node.loops if all(n in x.node.loops for x in (*starts, *group))] if starts else []
        again = [n for n in inside_all if n not in scope]
        for n in again:  # each iteration begins anew; the last one is read
            if not n.runs() and not is_determined(n, group[0]):
                raise Open("it may take no term at all", n)
            if not is_determined(n, group[0]):
                first = self._in_first(n, want)
                if first is not None:
                    constraints = constraints.given(first)
                    continue
                for t in group:
                    self._in_all(n, t)
        shared, scope = scope, [n for n in group[0].node.loops if n in scope or n in again]
        joined = self._joined(want, group)
        last = max((s.node.number for s in self.starts.places.get(want.buffer, []) if s.node.number < want.node.number), default=-1)
        key = (tuple(map(id, group)), tuple(shared), tuple(scope), definition.tensor, constraints, last, want.index, want.node if joined is not None else None)
        if key not in self._known:
            try:
                own_accumulators(group[0], shared, starts)
                self.starts.check(want, group, scope, constraints, definition, joined)
                self._cover(group, scope, definition, constraints, joined, want)
                if isinstance(definition.rule, Iterate):
                    self._in_order(group, scope, definition.rule)
                if isinstance(definition.rule, Reduce):
                    anew = [n for n in scope if n in shared or not is_determined(n, group[0])]
                    self.rescaling.check(group, anew, definition, definition.rule, self._parts.get(definition.tensor, []))
                self._known[key] = None
            except Open as error:
                self._known[key] = error.again()
        error = self._known[key]
        if error is not None:
            raise error.again()
        return joined is not None

    def _in_order(self, group: list[Term], scope: list[Node], rule: Iterate) -> None:
        """The steps of a fold are taken by one statement, one after another."""
        if len(group) > 1:
            raise Open("steps of a fold are taken in several places", *(t.node for t in group[:2]))
        (term,) = group
        if term.points:
            raise Open("an instruction takes several steps of a fold at once", term.node)
        in_order(term.node, [n for n in term.node.loops if n not in scope], term.point, rule.axis, term.place.index, some=True)

    def _in_first(self, loop: Node, want: Place) -> Expr | None:
        """That it is the first iteration of a loop, if no other one takes a term, joins, or sets an accumulator that takes terms: what it leaves is read behind
        the loop."""
        stmt, rule = loop.stmt, self.writes.definitions[want.tensor].rule
        assert isinstance(stmt, For)
        if not isinstance(rule, Reduce) or rule.rescaled is not None:
            return None
        taking = [t.place for t in self.terms[want.buffer] if loop in t.node.loops]
        inside_loop = {p.node: p.points for p in taking} | {n: () for n in self._parts.get(want.tensor, []) if loop in n.loops}
        first, later = le(sym(stmt.var), stmt.start), gt(sym(stmt.var), stmt.start)

        def in_first(node: Node, points: Mapping[str, int]) -> bool:
            return proves(known_of(node, points).given(*node.conditions), first)

        alone = all(in_first(n, dict(points)) for n, points in inside_loop.items())
        for s in self.starts.places.get(want.buffer, []) if alone else ():
            if loop in s.node.loops and not in_first(s.node, dict(s.points)):
                others = replace(s, given=(*s.given, later))
                alone = alone and all(disjoint(others, t) for t in taking)
        return eq(sym(stmt.var), stmt.start) if alone else None

    @staticmethod
    def _in_all(loop: Node, t: Term) -> None:
        """A term is taken in the last iteration of a loop that begins anew, as in all others: no condition asks which one it is."""
        stmt = loop.stmt
        assert isinstance(stmt, For)
        around = known_of(t.node, dict(t.points))
        for c in t.node.conditions:
            for part in conjuncts(c):
                if stmt.var in part.free and not proves(around, part):
                    raise Open(f"its terms may not be taken in the last iteration: under {part}", t.node)

    # -- the terms ------------------------------------------------------------------------------------------------------------------

    def _cover(self, group: list[Term], scope: list[Node], definition: Definition, constraints: Constraints, joined: Joined | None, want: Place) -> None:
        choice = self._choice(group, scope, constraints, want)
        for case in () if choice is None else (choice, not_(choice)):
            within = constraints.given(case)
            taken = [t for t in group if not_(case) not in _parts(t)]
            if not within.empty and not taken:
                raise Open(f"an accumulator takes no terms under {case}", want.node)
            if not within.empty:
                self._cover(taken, scope, definition, within, joined, want)
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
            assumptions = [i for i in constraints.assumptions if i.free.isdisjoint(others) or (isinstance(i, Expr) and _is_of_all(i, group))]
            constraints = constraints.about(const(0))[0].given(*assumptions)
            blocks = {name: (const(0), grid[name]) for name in joined.blocks}
            rows = [*members_of(joined, group, axes, want)]
            one_element(joined, group, constraints)
        digits = any(not isinstance(e, Sym) for e in definition.place)  # the element says digits of an axis, which may lead past its end

        def beyond(row: Mapping[str, Ints] | None, *, everywhere: bool, plain: bool, strong: bool, late: bool) -> bool:
            """Whether terms lie past the end: of all points, or only of those that satisfy the conditions around the terms.

            Args:
                plain: the points as loops say them: what conditions say of their symbols is not put in.
                strong: ends are simplified by all that is known of the element.
                late: loops may leave out neutral terms in front.
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
                exists = (*(inside(t.point, space) if everywhere else ()), *self._read(t, definition))
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
                lambda everywhere, plain, strong, late, row=row: beyond(row, everywhere=everywhere, plain=plain, strong=strong, late=late),
                digits,
                bool(self._ends(definition, axes)),
                bool(self._neutral_starts(definition, axes)),
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
    def _first_said(beyond: Callable[[bool, bool, bool, bool], bool], digits: bool, ends: bool, starts: bool) -> bool:
        """What is found in the first of several equivalent ways of saying which points are visited, and where axes end. Raises the first :class:`Open`."""
        first: Open | None = None
        for late, strong in product((False, True) if starts else (False,), (False, True) if ends else (False,)):
            for plain, everywhere in ((False, True), (False, False), (True, True), (True, False)):
                if everywhere or plain or digits:
                    try:
                        return beyond(everywhere, plain, strong, late)
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

    def _read(self, t: Term, definition: Definition) -> list[Expr]:
        """What holds of the element that a term belongs to, if anybody reads it, as it is and as it is at the term; nothing else is asked of elements."""
        at = {f"i{k}": e for k, e in enumerate(t.point)}
        said = self.writes.read_elements.conditions(definition.tensor, [substitute(e, at) for e in definition.place])
        return [*said, *(simplify(c, t.node.context.facts) for c in said)]

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

    # -- threads and blocks ---------------------------------------------------------------------------------------------------------

    def _joined(self, want: Place, group: list[Term]) -> Joined | None:
        first = group[0]
        every = self._parts.get(want.tensor, [])
        start = max((s.node.number for s in self.starts.places.get(want.buffer, []) if s.node.number < first.node.number), default=first.node.number)
        early = next((n for n in every if start < n.number < group[-1].node.number and touches(n, group[-1].place)), None)
        if early is not None:
            raise Open("partial results are joined before the last term is taken", early, group[-1].node)
        parts = [n for n in every if first.node.number < n.number < want.node.number]
        if not parts:
            return None
        if isinstance(self.writes.definitions[want.tensor].rule, Iterate):
            raise Open("states of a fold are joined", *parts)
        self._behind_terms(parts, group, want)
        self._in_one_order(parts)
        tree = self.writes.tree
        definition = self.writes.definitions[want.tensor]
        storages = dict(self.writes.storages)
        threads = BlockThreads.of(tree.kernel, parts, storages)
        others = frozenset(self.terms.keys() | self.starts.places.keys()) - {want.buffer}
        around = known_at(want).given(*inside(want.element, definition.shape))
        joined_threads = CrossThreadReductions(definition, want.buffer, others, storages, threads, around)
        scope = [n for n in first.node.loops if n in want.node.loops]
        block = scope[-1].blocks[0] if scope else tree.root
        holders = {n for p in parts for n in p.path}
        nodes = [n for n in block.nodes if n in holders]
        again = next((n for n in want.node.loops if n not in scope and n in holders), None)
        if again is not None:
            raise Open("partial results are joined in a loop that reads them", again)
        free = [e for e in want.index if not isinstance(e, Const)]
        said = (e for t in group for e in taken_by(t, range(len(t.point))))
        takers = np.logical_or.reduce([threads.chosen(t.node.conditions) for t in group])
        joined_threads.take([threads.values(a) for a in sorted({a for e in said for a in thread_atoms(e, threads.index.keys())}, key=str)], takers)
        joined_threads.run(iter(nodes), block.context.conditions, first.node, want.node)
        if free:
            self._check_joined(want, joined_threads)
            read = read_places(want)
            places = sorted(i for b, i in joined_threads.registers if b == want.buffer and is_read(want, i) and (read is None or i in read))
            results = [joined_threads.result(index, want.node, (eq(e, i) for e, i in zip(want.index, index, strict=True))) for index in places]
            if not results or any((r.members != results[0].members).any() or (r.blocks, r.spans) != (results[0].blocks, results[0].spans) for r in results):
                raise Open("accumulators of a thread are joined in different ways", want.node)
            return results[0]
        return joined_threads.result(tuple(e.value for e in want.index if isinstance(e, Const)), want.node)

    def _behind_terms(self, parts: list[Node], group: list[Term], want: Place) -> None:
        """Where partial results are joined in a loop that takes terms, and does not begin anew in each iteration, no later iteration takes more."""
        starts = self.starts.recent(group[0])
        for n in parts:
            for loop in n.loops:
                stmt = loop.stmt
                if loop in want.node.loops or not any(loop in t.node.loops for t in group) or (starts and all(loop in s.node.loops for s in starts)):
                    continue
                assert isinstance(stmt, For)
                if not proves(n.context.constraints, ge(sym(stmt.var) + stmt.step, stmt.stop)):
                    raise Open("partial results are joined in an iteration behind which others take terms", n, group[-1].node)

    def _in_one_order(self, parts: Collection[Node]) -> None:
        """Steps in arms that threads take at the same time use no storage together, so that the steps are executed in the order of the text."""
        users: dict[str, dict[StatementBlock, Node]] = {}
        for n in parts:
            for access in (a for side in accesses(n.stmt) for a in side):
                users.setdefault(access.buffer, {}).setdefault(n.block, n)
        for buffer, nodes in users.items():
            for a, b in combinations(nodes.values(), 2):
                if in_concurrent_arm(a, b, self.writes.storages[buffer].memory):
                    raise Open(f"partial results are joined through {buffer} in two arms, in no known order", a, b)

    @staticmethod
    def _check_joined(want: Place, joined_threads: CrossThreadReductions) -> None:
        """All accumulators that may be read have been joined."""
        ranges = known_at(want).ranges
        spans = [ranges.of(e) for e in want.index]
        size = 1
        for lo, hi in spans:
            size *= LIMIT if lo is None or hi is None else hi - lo + 1
        if size > MOST_ACCUMULATORS:
            raise Open("which accumulator is read is not known", want.node)
        for index in product(*(range(lo or 0, (hi or 0) + 1) for lo, hi in spans)):
            if (want.buffer, index) not in joined_threads.registers:
                raise Open(f"accumulator {list(index)} is read, and has not been joined", want.node)


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


def _decided(e: Expr, node: Node, started: Collection[Expr], within: Mapping[str, tuple[int, int]]) -> Expr:
    """An axis of a term's element, by what is known of the loops around and of where its accumulator is set; or by all conditions, where that leaves it a
    part of another number.

    Whether or not a term is taken, the accumulator is of one element: conditions would have those that take none be of another one.

    Args:
        started: the conditions under which the accumulator is set.
        within: least and greatest values of the indices inside of a tile.
    """
    constraints = node.context.constraints
    loops = constraints.about(const(0))[0].given(*(a for a in constraints.assumptions if not isinstance(a, Expr) or a in started))
    plain = simplify(e, loops.facts.with_ranges(within))
    return plain if all(isinstance(t, Sym) for t, _ in terms_of(plain)[0]) else simplify(e, constraints.facts.with_ranges(within))


def _parts(t: Term) -> list[Expr]:
    """The conditions around a term, one by one."""
    return [part for c in t.node.conditions for part in conjuncts(c)]


def _is_of_all(condition: Expr, group: Sequence[Term]) -> bool:
    """True for a condition on threads, which holds where the result is read, if it holds wherever terms are taken: of whichever thread these are."""
    return condition.free <= THREADS and all(proves(t.node.context.constraints, condition) for t in group)


def _holds_for_all(condition: Expr, row: Mapping[str, Ints] | None) -> bool:
    """True if a condition on threads holds for all those of a row; without rows, it is one under which the result is read."""
    if row is None:
        return True
    return condition.free <= row.keys() and bool(np.all(evaluate(condition, row)))
