"""Neutral terms: the index along a reduced axis from which on the definition's terms are neutral elements of the combining function.

A masked or ragged axis is as long as its longest row, and its terms past a row's end are neutral by definition: loops need not come to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from taskfuse.check.ranges import terms_of
from taskfuse.check.values.terms import number
from taskfuse.dtypes import DType
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Compare, CompareOp, Expr, Sym, conjuncts, maximum, minimum, substitute
from taskfuse.kir.nodes import Compute
from taskfuse.kir.operands import Access, Immediate, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Iterate, Pick, Reduce

_SAME = ("copy", "cast")
"""The functions that map a neutral element to one."""


def neutral_of(rule: Reduce | Accumulate) -> int | float:
    """The neutral element of a reduction or a scan."""
    return number(rule.combine.neutral(rule.dtype), rule.dtype)


def initial_of(rule: Reduce | Iterate) -> int | float:
    """The initial value of a reduction or a fold, in its compute dtype."""
    return number(rule.init.value, rule.init.dtype, rule.dtype)


def is_signed_zero(rule: Reduce) -> bool:
    """True if a sum begins with -0.0, to which 0.0, the neutral element of all others, is not neutral: their sum is 0.0."""
    initial, neutral = initial_of(rule), neutral_of(rule)
    return initial == neutral and not is_same_number(initial, neutral)


def partial_start(rule: Reduce) -> int | float:
    """The initial value of each of several partial results: the neutral element, or the reduction's initial value if it may be combined any number of times."""
    return initial_of(rule) if rule.combine.idempotent else neutral_of(rule)


def set_to(stmt: Compute, dtype: DType) -> int | float | None:
    """The number in an accumulator of a dtype after a statement that sets it to a constant; ``None`` if the statement does not."""
    match stmt.operands:
        case (Immediate(value=value, dtype=given),) if stmt.op.name == "copy":
            return number(value, given, stmt.dtype, dtype)
        case _:
            return None


def end_of_terms(definition: Definition, axis: int, definitions: Mapping[str, Definition]) -> Expr | None:
    """An expression over the indices of an element, from which on along a reduced axis the terms are neutral; ``None`` if unknown."""
    return _bound_of_terms(definition, axis, definitions, END)


def start_of_terms(definition: Definition, axis: int, definitions: Mapping[str, Definition]) -> Expr | None:
    """The same of the first index with a term that may not be neutral."""
    return _bound_of_terms(definition, axis, definitions, START)


@dataclass(frozen=True, slots=True)
class _Side:
    """The start or the end of terms along an axis.

    Attributes:
        sign: of the axis in a bound: 1 if it is greater than what bounds it.
        narrowed, widened: the bound where all of several conditions hold, or one of them.
    """

    sign: int
    narrowed: Callable[..., Expr]
    widened: Callable[..., Expr]


START, END = _Side(1, maximum, minimum), _Side(-1, minimum, maximum)


def _bound_of_terms(definition: Definition, axis: int, definitions: Mapping[str, Definition], side: _Side) -> Expr | None:
    rule = definition.rule
    if not isinstance(rule, Reduce) or rule.rescaled is not None:  # a sum is also rescaled where its terms are neutral
        return None
    neutral = neutral_of(rule)
    if is_signed_zero(rule):
        return None
    is_product = rule.body.name == "mul" and neutral == 0  # of zeros: one of a zero and an infinity is not a number
    if rule.body.name not in _SAME and not is_product:
        return None
    bounds = [_bound(o, f"i{axis}", Neutral(neutral, (rule.dtype,)), definitions, side) for o in rule.operands]
    known = [e for e in bounds if e is not None]
    reduced = {f"i{k}" for k in range(len(definition.space))}.difference(*(e.free for e in definition.place))
    if not known or len(known) < len(bounds) or any(not e.free.isdisjoint(reduced) for e in known):
        return None
    return side.widened(*known)


@dataclass(frozen=True, slots=True)
class Neutral:
    """The neutral element of a reduction.

    Attributes:
        dtypes: the dtypes to which a constant is converted before it is a term, the last one first.
    """

    value: int | float
    dtypes: tuple[DType, ...]

    def made_of(self, constant: int | float | bool) -> bool:
        """True if a constant becomes the neutral element as a term: 8-bit floats have no infinity, and 8-bit integers a small range."""
        return is_same_number(number(constant, *reversed(self.dtypes)), self.value)

    def through(self, *dtypes: DType) -> Neutral:
        """The neutral element for constants that are first converted to some dtypes, the last one first."""
        return Neutral(self.value, (*self.dtypes, *dtypes))


def _bound(operand: Operand, axis: str, neutral: Neutral, definitions: Mapping[str, Definition], side: _Side) -> Expr | None:
    """From where on along an axis an operand is neutral, or up to where."""
    if not isinstance(operand, Access) or operand.buffer not in definitions:
        return None
    point = {f"i{k}": e for k, e in enumerate(operand.index)}
    definition = definitions[operand.buffer]
    match definition.rule:
        case Apply(op=op, operands=(inner,), dtype=dtype) if op.name in _SAME and isinstance(inner, Access):
            moved = Access(inner.buffer, tuple(substitute(e, point) for e in inner.index))
            return _bound(moved, axis, neutral.through(definition.dtype, dtype), definitions, side)
        case Pick(cases=cases):
            found: list[Expr] = []
            for case in cases:
                if isinstance(case.operand, Immediate) and neutral.through(definition.dtype, case.operand.dtype).made_of(case.operand.value):
                    continue
                bounds = [*_bounds(substitute(case.cond, point), axis, side)]
                if isinstance(case.operand, Access):
                    moved = Access(case.operand.buffer, tuple(substitute(e, point) for e in case.operand.index))
                    inner = _bound(moved, axis, neutral.through(definition.dtype), definitions, side)
                    bounds += [] if inner is None else [inner]
                if not bounds:
                    return None
                found.append(side.narrowed(*bounds))
            return side.widened(*found) if found else None
        case _:
            return None


def _bounds(condition: Expr, axis: str, side: _Side) -> Iterator[Expr]:
    """Ends of an axis past which a condition does not hold, or starts before which it does not."""
    for part in conjuncts(condition):
        if not isinstance(part, Compare) or part.op not in (CompareOp.LT, CompareOp.LE):
            continue
        room = part.b - part.a + (1 if part.op is CompareOp.LE else 0)  # > 0 where it holds
        for term, k in terms_of(room)[0]:
            rest = room - term * k
            if k == side.sign and isinstance(term, Sym) and term.name == axis and axis not in rest.free:
                yield rest if side is END else 1 - rest
