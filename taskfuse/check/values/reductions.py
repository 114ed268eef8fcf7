"""A result that is read is that of accumulators which take its terms: which ones they are, when they do, and what joins them.

Terms are added to accumulators, which are registers: by one statement, or several copies of it, in loops over the reduced axes. Loops that also surround a
reader are one iteration for it. The accumulator is set before the first term. That the terms of the others, with those of the threads and blocks whose partial
results have been joined, are all of the element, once, is proved in :mod:`~taskfuse.check.values.term_coverage`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import combinations, product

import numpy as np

from taskfuse.check.bounded_variables import with_names
from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node, StatementBlock
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term, disjoint, is_determined, is_read, read_places, touches
from taskfuse.check.values.arms import in_concurrent_arm
from taskfuse.check.values.block_threads import BlockThreads
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.cross_thread_reductions import CrossThreadReductions, Joined
from taskfuse.check.values.iterations import own_accumulators
from taskfuse.check.values.joined_terms import taken_by, thread_atoms
from taskfuse.check.values.match import where_found
from taskfuse.check.values.questions import inside, known_at, proves
from taskfuse.check.values.rescaling import Rescaling
from taskfuse.check.values.runs import known_of
from taskfuse.check.values.scans import in_order
from taskfuse.check.values.solve import Open
from taskfuse.check.values.starts import Starts
from taskfuse.check.values.term_coverage import TermCoverage
from taskfuse.check.values.write_and_read import LIMIT, Found, WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing, is_about_common_loops, is_said_alike
from taskfuse.ir.scalar import (
    Const,
    Expr,
    Sym,
    conjuncts,
    const,
    eq,
    ge,
    gt,
    le,
    private,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir.nodes import For
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Definition, Iterate, Reduce

MOST_ACCUMULATORS = 4096
"""The most accumulators of a thread that are checked one by one."""


class Reductions:
    """The accumulators of a kernel.

    Attributes:
        terms: accumulator -> the statements that take its terms.
        starts: the statements that set it.
        coverage: the points whose terms it takes.
    """

    def __init__(self, writes: Writes, instructions: Instructions) -> None:
        self.writes = writes
        self.instructions = instructions
        self.terms: dict[str, list[Term]] = {}
        self.rescaling = Rescaling(writes)
        self.starts = Starts(writes, self.terms)
        self.coverage = TermCoverage(writes)
        self._parts: dict[str, list[Node]] = {}
        self._changes: dict[str, list[Place]] = {}
        self._known: dict[tuple[object, ...], Open | None] = {}

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
                self.coverage.check(group, scope, definition, constraints, joined, want)
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
            for access in (a for side in n.accesses for a in side):
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
