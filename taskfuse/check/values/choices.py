"""Choices: each case of a statement is the case of the definition that holds wherever it does; zeros are written where elements do not exist."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import ClaimedWrite, Place
from taskfuse.check.values.operands import COPY, CheckedOperands, element_of
from taskfuse.check.values.questions import inside, known_at, proves
from taskfuse.check.values.solve import Open
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import TRUE, Expr, and_, conjuncts, lookups_of, lt, not_, simplify, substitute
from taskfuse.kir.nodes import AsyncCopy, Choose, TmaLoad
from taskfuse.kir.operands import Access, ChoiceCase, Immediate, Operand
from taskfuse.kir.witness import Apply, Pick


class CheckedChoices:
    """The writes of a kernel that choose among operands, or whose definitions do. Methods raise :class:`Open` if a write is not proved right."""

    def __init__(self, operands: CheckedOperands) -> None:
        self.operands = operands
        self.instructions = operands.instructions
        self.writes = operands.writes

    def padded(self, w: ClaimedWrite, stmt: Choose, rule: Apply, exists: tuple[Expr, ...]) -> None:
        """A copy, with zeros for elements that do not exist."""
        match stmt.cases:
            case (ChoiceCase(cond=cond, operand=operand), ChoiceCase(cond=other, operand=zero)) if rule.op is COPY and other is TRUE and is_zero(zero):
                around = w.node.context.constraints.given(*exists)
                if not all(proves(around, c) for c in conjuncts(cond)):
                    raise Open(f"it writes a zero where {cond} fails, and elements exist there", w.node)
                self.operands.match_one(w.node, operand, rule.operands[0], w.holds.index, (*exists, cond))
            case _:
                raise Open("its cases are not those of a copy with zeros past the end", w.node)

    def picked(self, w: ClaimedWrite, rule: Pick, exists: tuple[Expr, ...]) -> None:
        """Each case is the case of the definition that holds wherever it does."""
        stmt = w.node.stmt
        if isinstance(stmt, AsyncCopy):
            self._copied_or_zero(w, stmt, rule)
            return
        if isinstance(stmt, TmaLoad):
            self._first_case(w, rule)
            return
        if not isinstance(stmt, Choose):
            raise Open("it is not a choice", w.node)
        point = {f"i{k}": e for k, e in enumerate(w.holds.index)}
        conditions = [substitute(c.cond, point) for c in rule.cases]
        around = w.node.context.constraints.given(*exists)
        before: list[Expr] = []
        for case in stmt.cases:
            mine = (*before, *conjuncts(case.cond))
            here = around.given(*mine)
            before.append(not_(case.cond))
            if here.empty or proves(around.given(*before[:-1]), not_(case.cond)):
                continue
            self.operands.match_one(w.node, case.operand, case_that_holds(w.node, rule, conditions, around, mine), w.holds.index, (*exists, *mine))
            if all(proves(around.given(*before[:-1]), c) for c in conjuncts(case.cond)):
                break  # so that none behind it is chosen
        if not one_holds(w.node.context.constraints, [c.cond for c in stmt.cases]):
            raise Open("in some place no case of its choice may hold", w.node)

    def _copied_or_zero(self, w: ClaimedWrite, stmt: AsyncCopy, rule: Pick) -> None:
        """A copy of the elements of one case, with zeros where it does not hold."""
        own, around = self._own(w)
        held = conjuncts(stmt.valid)
        source = self._source(own, rule, around, held)
        if not isinstance(source, Access):
            raise Open(f"it is a copy, and {w.holds.tensor} is a constant there", w.node)
        for k, c in enumerate(held):
            failing = (*held[:k], not_(c))
            here = around.given(*failing)
            if not here.empty and not proves(around.given(*held[:k]), c) and not is_plus_zero(self._source(own, rule, around, failing)):
                raise Open(f"it writes a zero where {stmt.valid} fails, and elements exist there", w.node)
        want = self.instructions.vector(w.node, stmt.source, stmt.width, source.buffer, element_of(source, w.holds))
        self.operands.read(want, (*held, *inside(want.element, self.writes.shape(source.buffer))), past=False)

    def _own(self, w: ClaimedWrite) -> tuple[Place, Constraints]:
        """The written place in elements of the claimed tensor itself, whose definition applies, not of a tensor that contains it as a part."""
        own = self.instructions.written(w.node, w.holds)
        return own, known_at(own).given(*inside(own.element, self.writes.shape(own.tensor)))

    @staticmethod
    def _source(own: Place, rule: Pick, around: Constraints, given: Sequence[Expr]) -> Operand:
        """The operand of the case that holds where some conditions do."""
        point = {f"i{k}": e for k, e in enumerate(own.element)}
        conditions = [substitute(c.cond, point) for c in rule.cases]
        return case_that_holds(own.node, rule, conditions, around, given)

    def _first_case(self, w: ClaimedWrite, rule: Pick) -> None:
        """A bulk copy brings what the first case of the definition says, which holds for all elements of the box that exist.

        Where that element is before the first or past the end of the tensor that is copied, the engine writes 0, which must be the other case.
        """
        match rule.cases:
            case (ChoiceCase(cond=cond, operand=Access() as source), ChoiceCase(cond=other, operand=zero)) if other is TRUE and is_plus_zero(zero):
                pass
            case _:
                raise Open("its tensor is not a part of another one, and zeros", w.node)
        own, around = self._own(w)
        point = {f"i{k}": e for k, e in enumerate(own.element)}
        there = inside(source.index, self.writes.shape(source.buffer))
        within = around.given(*(substitute(c, point) for c in there))
        for c in conjuncts(cond):
            if c not in there and not proves(within, substitute(c, point)):
                raise Open(f"it copies whole boxes, and {w.holds.tensor} is zero where {substitute(c, point)} fails", w.node)
        self.operands.copied(w, source, (), past=False)


def case_that_holds(node: Node, rule: Pick, conditions: list[Expr], around: Constraints, given: Sequence[Expr]) -> Operand:
    """The operand of the case of a definition that holds where ``given`` does. Raises :class:`Open`.

    Args:
        conditions: those of the cases, at the element in question.
        around: the facts there, whether or not ``given`` holds.
    """
    here, held = around.given(*given), {*given}
    for case, condition in zip(rule.cases, conditions, strict=True):
        parts = conjuncts(condition)
        if all(c in held or proves(here, c) for c in parts):
            return case.operand
        if _are_denied(parts, held):
            continue
        if any(map(lookups_of, parts)):
            held |= {_in_one_form(c, around) for c in given}
            here = here.given(*(c for c in held if c not in given))
            parts = [c if c in held else _in_one_form(c, around) for c in parts]
            if all(c in held or proves(here, c) for c in parts):
                return case.operand
        if not _fails(parts, here, held):
            break
    raise Open("the case of its definition that holds is unknown", node)


def _in_one_form(condition: Expr, around: Constraints) -> Expr:
    """A condition on elements of tables, which are known to be equal if they are one expression: conjunct by conjunct, or alternative by alternative."""
    if not lookups_of(condition):
        return condition
    return not_(and_(*(not_(simplify(not_(c), around.facts)) for c in conjuncts(not_(condition)))))


def _fails(parts: Sequence[Expr], here: Constraints, given: set[Expr]) -> bool:
    """True if some of ``parts`` are known to fail together: one of them does, or what is given is that not all of several hold."""
    return _are_denied(parts, given) or any(proves(here, not_(c)) for c in parts) or proves(here, not_(and_(*parts)))


def _are_denied(parts: Sequence[Expr], given: set[Expr]) -> bool:
    """True if what is given is that not all of several of ``parts`` hold."""
    return any({*conjuncts(not_(g))} <= {*parts} for g in given)


def one_holds(constraints: Constraints, conditions: list[Expr]) -> bool:
    """True only if one of some conditions holds: that each has a failing conjunct is a contradiction."""
    if constraints.empty:
        return True
    if not conditions:
        return proves(constraints, lt(0, 0))
    first, *rest = conditions
    for part in conjuncts(first):
        if not proves(constraints, part) and not one_holds(constraints.given(not_(part)), rest):
            return False
        constraints = constraints.given(part)
    return True


def is_plus_zero(operand: Operand) -> bool:
    """True for the bits that copies write for elements that do not exist."""
    return isinstance(operand, Immediate) and is_same_number(operand.value, 0)


def is_zero(operand: Operand) -> bool:
    """True for 0.0, -0.0 and the integer 0."""
    return isinstance(operand, Immediate) and not operand.value
