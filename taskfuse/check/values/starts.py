"""An accumulator is set before its first term: to the initial value of its reduction, or by its first product; and never again."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import Node
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term, determined
from taskfuse.check.values.claims import Place
from taskfuse.check.values.cross_thread_reductions import Joined
from taskfuse.check.values.empty_parts import has_no_points, takes_no_term
from taskfuse.check.values.match import is_left_by_one, where_found
from taskfuse.check.values.neutral_terms import initial_of, partial_start, set_to
from taskfuse.check.values.questions import inside, known_at, proves
from taskfuse.check.values.solve import Open
from taskfuse.check.values.write_and_read import Found, WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import (
    TRUE,
    Const,
    Expr,
    Select,
    eq,
    ge,
    lt,
    not_,
    sym,
)
from taskfuse.kir.nodes import Compute, For
from taskfuse.kir.operands import Content
from taskfuse.kir.products import Wgmma
from taskfuse.kir.witness import Definition, Iterate, Reduce


class Starts:
    """The places where a kernel sets accumulators.

    Attributes:
        places: accumulator -> the statements that set it.

    Args:
        terms: accumulator -> the statements that take its terms.
    """

    def __init__(self, writes: Writes, terms: Mapping[str, list[Term]]) -> None:
        self.places: dict[str, list[Place]] = {}
        self._written = writes
        self._terms = terms

    def recent(self, first: Term) -> list[Place]:
        """The start of a term's accumulator after those of the copies before it."""
        others = [t.node.number for t in self._terms[first.place.buffer] if t.node.number < first.node.number]
        starts = [s for s in self.places.get(first.place.buffer, []) if s.node.number < first.node.number]
        if not starts:
            return []
        last = max(s.node.number for s in starts)
        front = max((n for n in others if n < last), default=-1)
        return [s for s in starts if s.node.number > front]

    def nothing_taken(self, want: Place, definition: Definition, constraints: Constraints, parts: Collection[Node], among: ValueTable | None = None) -> None:
        """The accumulators that are read belong to elements without terms, take none, and are set to the initial value of the reduction.

        Args:
            parts: the statements that join partial results of this reduction.
            among: the points of the read in question; ``None``: all.

        Raises:
            Open: no proof was found.
        """
        rule = definition.rule
        terms = self._terms.get(want.buffer, [])
        starts = [s for s in self.places.get(want.buffer, []) if s.node.number < want.node.number]
        rescaled = isinstance(rule, Reduce) and rule.rescaled is not None
        if not isinstance(rule, Reduce | Iterate) or rescaled or not starts or parts or not has_no_points(want, definition, constraints, among):
            raise Open("an accumulator is read that takes no terms" if terms else "no statement takes its terms", want.node)
        if not takes_no_term(want, terms, self._written.storages[want.buffer], constraints, among):
            raise Open("an accumulator is read whose element has no terms, and it may take some", want.node)
        for s in starts:
            self._value(s, rule, parts=False)
        self.set_before(starts, want, inside(want.element, definition.shape), "it is read", among)

    def check(self, want: Place, group: list[Term], scope: list[Node], constraints: Constraints, definition: Definition, joined: Joined | None) -> None:
        """The accumulator is set in this iteration of the loops around, before its first term and never again."""
        first, last = group[0], group[-1]
        starts = [s for s in self.recent(first) if [n for n in s.node.loops if n in scope] == scope]
        rule = definition.rule
        assert isinstance(rule, Reduce | Iterate)
        flags = [t.node.stmt.accumulate for t in group if isinstance(t.node.stmt, Wgmma)]
        fixed = determined(first, scope)
        own = [n for n in first.node.loops if n not in scope and isinstance(n.stmt, For) and n.stmt.var not in fixed]
        for s in self.places.get(first.place.buffer, []):
            if first.node.number < s.node.number < want.node.number or any(n in s.node.loops for n in own):
                raise Open("an accumulator is set again after its first term", s.node)
        if starts:
            if any(f is not TRUE for f in flags):
                raise Open("an accumulator that was set before is set again by its first product", first.node)
            if joined is not None and isinstance(rule, Reduce) and not is_same_number(initial_of(rule), partial_start(rule)):
                raise Open(f"it starts with {rule.init.value}, which no partial result has", first.node)
            for s in starts:
                self._value(s, rule, joined is not None)
            if any(s.node.number > first.node.number for s in starts):
                raise Open("an accumulator is set again after its first term", first.node)
            self.set_before(starts, first.place, inside(first.place.element, self._written.shape(first.place.tensor)), "its first term")
            return
        if not flags or len(flags) != len(group):
            raise Open("nothing sets an accumulator before its first term", first.node)
        loops = [n.stmt for n in own if isinstance(n.stmt, For)]
        around = known_at(first.place)
        f = flags[0]
        begin = around.given(*(eq(sym(s.var), s.start) for s in loops))
        if not (f is not TRUE and (isinstance(f, Const) or begin.ranges.refutes(f) or proves(begin, not_(f)))):
            raise Open("the first product adds to what its accumulator held before", first.node)
        for s in loops:
            if proves(around.given(ge(sym(s.var), s.start + s.step)), f):
                continue
            if not proves(around, ge(s.start + s.step, s.stop)):  # but for one trip at most: the bound of a loop may be a condition
                raise Open("a product of a later trip may set its accumulator anew", first.node)
        if any(g is not TRUE and not proves(known_at(t.place), g) for t, g in zip(group[1:], flags[1:], strict=True)):
            raise Open("a product that is not the first may set its accumulator anew", last.node)
        if not is_same_number(initial_of(rule), 0):
            raise Open(f"it starts with {rule.init.value}, and products set accumulators to 0", first.node)
        for s in loops:
            stop = s.stop.a if isinstance(s.stop, Select) and constraints.ranges.implies(s.stop.cond) else s.stop
            if not proves(constraints, lt(s.start, stop)):
                raise Open("no product may be taken at all, and nothing sets the accumulator", first.node)

    @staticmethod
    def _value(start: Place, rule: Reduce | Iterate, parts: bool) -> None:
        stmt = start.node.stmt
        value = set_to(stmt, rule.dtype) if isinstance(stmt, Compute) else None
        if value is None:
            raise Open("an accumulator does not start with a constant", start.node)
        wanted = partial_start(rule) if parts and isinstance(rule, Reduce) else initial_of(rule)
        if not is_same_number(value, wanted):
            raise Open(f"an accumulator starts with {value} in the place of {wanted}", start.node)

    def set_before(self, starts: list[Place], user: Place, given: Iterable[Expr], what: str, among: ValueTable | None = None) -> None:
        """Every accumulator that ``user`` uses has been set before it, at some of its points; ``None``: at all."""
        target = replace(user, element=(), content=Content.START)
        shared = {n.stmt.var: sym(n.stmt.var) for n in user.node.loops if isinstance(n.stmt, For)}

        def found(s: Place, constraints: Constraints, among: ValueTable | None) -> Found | None:
            common = {n.stmt.var for n in s.node.loops if isinstance(n.stmt, For) and n in user.node.loops}
            same = {name: e for name, e in shared.items() if name in common}
            return self._sets(replace(s, element=(), content=Content.START), target, same, constraints, among)

        if not is_left_by_one(reversed(starts), found, known_at(user).given(*given), among):
            raise Open(f"not every accumulator is set before {what}", user.node)

    def set_for_all(self, starts: list[Place], parts: list[Node], want: Place, given: Iterable[Expr]) -> None:
        """Every thread that joins an accumulator has set it, in every block, also those that take no term. Raises :class:`Open`."""
        setting = [replace(s, content=Content.START) for s in starts]
        asked: set[tuple[object, ...]] = set()
        for node in parts:
            written, read = ([a for a in side if a.buffer == want.buffer] for side in node.accesses)
            for a in read:
                if (a.index, node.block) not in asked:
                    asked.add((a.index, node.block))
                    self.set_before(setting, Place(node, a.buffer, a.index, want.tensor, ()), (), "its partial results are joined, by every thread and block")
            setting += [Place(node, a.buffer, a.index, want.tensor, (), content=Content.START) for a in written if a not in read]
        self.set_before(setting, want, given, "it is read")

    def _sets(self, claim: Place, want: Place, same: Mapping[str, Expr], constraints: Constraints, among: ValueTable | None) -> Found | None:
        """Whether a start sets the accumulators that are used."""
        storage = self._written.storages[claim.buffer]
        return where_found(WriteAndRead(Writing(claim, storage.memory, same), want, storage, (), None, constraints, among, past=False))
