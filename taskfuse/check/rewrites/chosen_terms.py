"""Gathered elements as sums of which one term is chosen.

``find s[v0] at w of n`` is ``s[v]`` where ``w`` is inside ``-n..n``, with ``v`` either ``w`` or ``w + n``, and 0 elsewhere. So it is equal to the sum over
``j < n`` of a choice between something and 0 if the choice is made where ``j`` equals an integer that is ``v`` where ``w`` is inside, and no ``j`` elsewhere,
and the first is equal to ``s[v]`` where ``j`` is ``v``: all other terms are 0. Where the integer is a choice itself, as between ``w`` and ``w + n``, its cases
are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from taskfuse.check.rewrites.gathers import ElementChoice, choice_of
from taskfuse.check.rewrites.sides import CONVERSIONS, At, Different, condition_of, follows, points
from taskfuse.dtypes import DType, contains, int64
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Expr, Facts, Sym, const, ge, le, not_
from taskfuse.kir.operands import Access, Immediate, IndexOf
from taskfuse.kir.witness import Apply, Definition, Reduce

IntegerOf = Callable[[At], Expr | None]
"""The expression of an element that is an integer; ``None`` if it has none."""


def term_of(at: At, d: Definition, rule: Reduce, j: Expr, extent: Expr) -> ElementChoice:
    """The term of a sum over one axis, at ``j``: one of two operands, of which the second is 0.

    Raises:
        Different: it is no such sum.
    """
    assert isinstance(at.operand, Access)
    point: dict[str, Expr] = {}
    for e, there in zip(d.place, at.operand.index, strict=True):
        if not isinstance(e, Sym) or e.name in point:
            raise Different("the axes of a sum of choices are made of others")
        point[e.name] = there
    left = [k for k in range(len(d.space)) if f"i{k}" not in point]
    is_sum = rule.combine is COMBINES["add"] and rule.body in CONVERSIONS and is_same_number(rule.init.value, 0) and rule.rescaled is None
    if not is_sum or rule.starts or rule.ends or len(left) != 1 or d.space[left[0]] is not extent or not contains(rule.dtype, d.dtype):
        raise Different("it is no sum over the elements that are gathered")
    term = at.side.at(rule.operands[0], {**point, f"i{left[0]}": j})
    chosen = choice_of(term)
    if chosen is None or at.side.dtype(term.operand) is not d.dtype or not _is_zero(chosen.other):
        raise Different("a term is no choice between something and 0")
    return chosen


def _is_zero(at: At) -> bool:
    return isinstance(at.operand, Immediate) and is_same_number(at.operand.value, 0)


def compared_with(cond: At, j: Sym, integer_of: IntegerOf, facts: Facts) -> Iterator[tuple[Expr, Facts]]:
    """The integer that a condition compares an index with, in each of its cases.

    Raises:
        Different: it is no such condition, or the integer is not known.
    """
    match cond.side.defined(cond.operand):
        case Definition(rule=Apply(op=op, operands=operands, dtype=dtype)) if op is ELEMENTWISE["eq"] and dtype.is_integer and isinstance(cond.operand, Access):
            parts = [cond.side.at(o, points(cond.operand.index)) for o in operands]
            others = [p for p in parts if not (isinstance(p.operand, IndexOf) and p.operand.value is j)]
            fits = _is_whole(dtype) or follows(le(j, const(int(dtype.max_value))), facts)
            if len(others) == 1 and fits and contains(dtype, cond.side.dtype(others[0].operand)):
                yield from _cases(others[0], integer_of, facts)
                return
        case _:
            pass
    raise Different("a term is chosen by another condition than of its index")


def _cases(at: At, integer_of: IntegerOf, facts: Facts) -> Iterator[tuple[Expr, Facts]]:
    """The values of an integer, each with the facts of its case."""
    at = at.side.seen(at, facts)
    found = integer_of(at)
    if found is not None:
        yield found, facts
        return
    match at.operand, at.side.defined(at.operand):
        case Immediate(value=value, dtype=dtype), _ if dtype.is_integer:
            yield const(int(value)), facts
        case IndexOf(value=value), _:
            yield value, facts
        case Access(index=index), Definition(rule=Apply(op=op, operands=operands, dtype=dtype), dtype=result) if dtype.is_integer and result.is_integer:
            parts = [at.side.at(o, points(index)) for o in operands]
            if op.rule is DTypeRule.SELECT:
                condition = condition_of(parts[0], lambda p: _only(p, integer_of, facts))
                for value, case in ((parts[1], condition), (parts[2], not_(condition))):
                    if not follows(not_(case), facts):
                        yield from _fitting(_cases(value, integer_of, facts.with_assumption(case)), result)
            elif op in CONVERSIONS:
                yield from _fitting(_cases(parts[0], integer_of, facts), result)
            elif op is ELEMENTWISE["add"]:
                sums = ((a + b, inside) for a, here in _cases(parts[0], integer_of, facts) for b, inside in _cases(parts[1], integer_of, here))
                yield from _fitting(sums, result)
            else:
                raise Different(f"an integer is computed by {op.name}")
        case _:
            raise Different("a term is chosen by an integer that is not known")


def _only(at: At, integer_of: IntegerOf, facts: Facts) -> Expr | None:
    """The value of an integer that has one case."""
    if not at.side.dtype(at.operand).is_integer:
        return None
    try:
        cases = list(_cases(at, integer_of, facts))
    except Different:
        return None
    return cases[0][0] if len(cases) == 1 else None


def _is_whole(dtype: DType) -> bool:
    """True for the type of indices, whose values are assumed not to wrap."""
    return dtype is int64


def _fitting(cases: Iterator[tuple[Expr, Facts]], dtype: DType) -> Iterator[tuple[Expr, Facts]]:
    """Integers that a type holds.

    Raises:
        Different: nothing shows that one does.
    """
    for value, facts in cases:
        if not _is_whole(dtype) and not all(follows(c, facts) for c in (ge(value, const(int(dtype.min_value))), le(value, const(int(dtype.max_value))))):
            raise Different("an integer may wrap")
        yield value, facts
