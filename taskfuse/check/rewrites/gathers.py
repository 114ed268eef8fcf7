"""Gathered elements: a function of a gathered element equals the gathered element of the function.

``find s[v0] at w of n`` is ``s[v]`` where ``w`` is inside ``-n..n``, with ``v`` either ``w`` or ``w + n``, and 0 elsewhere. So it is equal to a choice
between something and 0 if the choice is made where ``w`` is inside, and the first is equal to ``s[v]``, where all that is found at the same integers is at
the same ``v``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from taskfuse.check.rewrites.sides import At, points
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.scalar import Expr, Sym, substitute
from taskfuse.kir.operands import Access
from taskfuse.kir.walk import map_operand
from taskfuse.kir.witness import Apply, Definition, Find


class FoundPlace(NamedTuple):
    """Integers inside their extents, and the condition for that.

    Attributes:
        values: the integers, as in the original.
        at: each integer, counted from 0.
    """

    values: tuple[At, ...]
    extents: tuple[Expr, ...]
    at: tuple[Sym, ...]


@dataclass(frozen=True, slots=True)
class ElementChoice:
    """One of two operands, by a condition that is itself an element."""

    cond: At
    value: At
    other: At


def choice_of(at: At) -> ElementChoice | None:
    """An element that is one of two others of its dtype; ``None`` for any other."""
    d = at.side.defined(at.operand)
    match d:
        case Definition(rule=Apply(op=op, operands=(cond, value, other), dtype=dtype)) if op.rule is DTypeRule.SELECT and isinstance(at.operand, Access):
            made = ElementChoice(*(at.side.at(o, points(at.operand.index)) for o in (cond, value, other)))
            return made if at.side.keeps(made.value.operand, dtype, d.dtype) else None
        case _:
            return None


def found_element(at: At, rule: Find, symbols: tuple[Expr, ...]) -> At:
    """The element that ``rule``, the definition of ``at``, gathers if its integers are inside and equal ``symbols``."""
    assert isinstance(at.operand, Access)
    point: dict[str, Expr] = {**points(at.operand.index), **{f"v{k}": v for k, v in enumerate(symbols)}}
    return At(at.side, map_operand(rule.source, lambda e: substitute(e, point)))
