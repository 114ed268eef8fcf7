"""Choices: which case of a definition holds where a case of a statement does, and whether one case always does."""

from __future__ import annotations

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import Node
from taskfuse.check.values.questions import proves
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, conjuncts, lt, not_
from taskfuse.kir.operands import Operand
from taskfuse.kir.witness import Pick


def case_that_holds(node: Node, rule: Pick, conditions: list[Expr], here: Constraints, given: set[Expr]) -> Operand:
    """The operand of the case of a definition that holds where ``given`` does. Raises :class:`Open`.

    Args:
        conditions: those of the cases, at the element at hand.
        here: what is known there.
    """
    for case, condition in zip(rule.cases, conditions, strict=True):
        if all(c in given or proves(here, c) for c in conjuncts(condition)):
            return case.operand
        if not_(condition) not in given and not proves(here, not_(condition)) and not any(proves(here, not_(c)) for c in conjuncts(condition)):
            break
    raise Open("the case of its definition that holds is unknown", node)


def one_holds(constraints: Constraints, conditions: list[Expr]) -> bool:
    """True only if one of some conditions holds: it is a contradiction that each has a conjunct that fails."""
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
