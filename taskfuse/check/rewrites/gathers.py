"""Elements that are found at integers of tensors, where the function of a found element stands for the found element of the function.

``find s[v0] at w of n`` is ``s[v]`` where ``w`` is inside ``-n..n``, with ``v`` either ``w`` or ``w + n``, and 0 elsewhere. So it is equal to a choice
between something and 0 if the choice is made where ``w`` is inside, and the first is equal to ``s[v]``, where all that is found at the same integers is at
the same ``v``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from taskfuse.check.rewrites.sides import At, Different, points
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.scalar import FALSE, TRUE, Expr, Sym, and_, const, eq, ge, gt, le, lt, ne, not_, or_, substitute
from taskfuse.kir.operands import Access, Immediate, IndexOf
from taskfuse.kir.walk import map_operand
from taskfuse.kir.witness import Apply, Definition, Find

COMPARISONS: Mapping[Elementwise, Callable[[Expr, Expr], Expr]] = MappingProxyType(
    {ELEMENTWISE["lt"]: lt, ELEMENTWISE["le"]: le, ELEMENTWISE["gt"]: gt, ELEMENTWISE["ge"]: ge, ELEMENTWISE["eq"]: eq, ELEMENTWISE["ne"]: ne}
)
CONNECTIVES: Mapping[Elementwise, Callable[..., Expr]] = MappingProxyType(
    {ELEMENTWISE["logical_and"]: and_, ELEMENTWISE["logical_or"]: or_, ELEMENTWISE["logical_not"]: not_}
)
"""Functions of conditions, with what they are of scalar expressions."""


class FoundPlace(NamedTuple):
    """Integers that are inside of their extents, and where that is.

    Attributes:
        values: the integers, as they were written.
        at: what each is, counted from 0.
    """

    values: tuple[At, ...]
    extents: tuple[Expr, ...]
    at: tuple[Sym, ...]


@dataclass(frozen=True, slots=True)
class ElementChoice:
    """One of two operands, by a condition that is an element itself."""

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
    """The element that ``rule``, which defines that of ``at``, finds if its integers are inside and are ``symbols``."""
    assert isinstance(at.operand, Access)
    point: dict[str, Expr] = {**points(at.operand.index), **{f"v{k}": v for k, v in enumerate(symbols)}}
    return At(at.side, map_operand(rule.source, lambda e: substitute(e, point)))


def condition_of(at: At, integer_of: Callable[[At], Expr | None]) -> Expr:
    """A condition as a scalar expression.

    Args:
        integer_of: the expression of an element that is an integer; ``None`` if it has none.

    Raises:
        Different: it is made of something else than comparisons of integers.
    """
    match at.operand, at.side.defined(at.operand):
        case Immediate(value=value, dtype=dtype), _ if dtype.is_bool:
            return TRUE if value else FALSE
        case Access(index=index), Definition(rule=Apply(op=op, operands=operands, dtype=dtype)):
            parts = [at.side.at(o, points(index)) for o in operands]
            if op in CONNECTIVES:
                return CONNECTIVES[op](*(condition_of(p, integer_of) for p in parts))
            if op in COMPARISONS and dtype.is_integer:
                sides = [_integer(p, integer_of) for p in parts]
                return COMPARISONS[op](*sides)
        case _:
            pass
    raise Different("a condition is no comparison of integers")


def _integer(at: At, integer_of: Callable[[At], Expr | None]) -> Expr:
    match at.operand:
        case IndexOf(value=value):
            return value
        case Immediate(value=value, dtype=dtype) if dtype.is_integer:
            return const(int(value))
        case _:
            found = integer_of(at)
            if found is None:
                raise Different("a condition is about another integer")
            return found
