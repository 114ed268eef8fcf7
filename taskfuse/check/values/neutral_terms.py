"""Terms that add nothing: from where on, along an axis of a reduction, the definition says that a term is what the reduction's combine leaves as it is.

A masked or ragged axis is as long as its longest row, and its terms past a row's end are neutral by definition: loops need not come to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from taskfuse.check.ranges import terms_of
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Compare, CompareOp, Expr, Sym, conjuncts, maximum, substitute
from taskfuse.kir.operands import Access, Immediate, Operand
from taskfuse.kir.witness import Apply, Definition, Pick, Reduce

_SAME = ("copy", "cast")
"""What gives a neutral element for one."""


def is_signed_zero(rule: Reduce) -> bool:
    """True if a sum begins with -0.0, to which 0.0, the neutral element of all others, is not neutral: their sum is 0.0."""
    neutral = rule.combine.neutral(rule.dtype)
    return rule.init.value == neutral and not is_same_number(rule.init.value, neutral)


def end_of_terms(definition: Definition, axis: int, definitions: Mapping[str, Definition]) -> Expr | None:
    """An expression over the indices of an element, from which on along a reduced axis the terms are neutral; ``None`` if there is none that is known."""
    rule = definition.rule
    if not isinstance(rule, Reduce):
        return None
    neutral = rule.combine.neutral(rule.dtype)
    if is_signed_zero(rule):
        return None
    is_product = rule.body.name == "mul" and neutral == 0  # of zeros: one of a zero and an infinity is not a number
    if rule.body.name not in _SAME and not is_product:
        return None
    ends = [_end(o, f"i{axis}", neutral, definitions) for o in rule.operands]
    known = [e for e in ends if e is not None]
    reduced = {f"i{k}" for k in range(len(definition.space))}.difference(*(e.free for e in definition.place))
    if not known or len(known) < len(ends) or any(not e.free.isdisjoint(reduced) for e in known):
        return None
    return maximum(*known)


def _end(operand: Operand, axis: str, neutral: float, definitions: Mapping[str, Definition]) -> Expr | None:
    """From where on along an axis an operand is neutral."""
    if not isinstance(operand, Access) or operand.buffer not in definitions:
        return None
    point = {f"i{k}": e for k, e in enumerate(operand.index)}
    definition = definitions[operand.buffer]
    if not definition.dtype.holds(neutral):
        return None
    match definition.rule:
        case Apply(op=op, operands=(inner,)) if op.name in _SAME and isinstance(inner, Access):
            moved = Access(inner.buffer, tuple(substitute(e, point) for e in inner.index))
            return _end(moved, axis, neutral, definitions)
        case Pick(cases=cases):
            ends: list[Expr] = []
            for case in cases:
                if isinstance(case.operand, Immediate) and is_same_number(case.operand.value, neutral):
                    continue
                found = next(_bounds(substitute(case.cond, point), axis), None)
                if found is None:
                    return None
                ends.append(found)
            return maximum(*ends) if ends else None
        case _:
            return None


def _bounds(condition: Expr, axis: str) -> Iterator[Expr]:
    """Ends of an axis past which a condition does not hold."""
    for part in conjuncts(condition):
        if not isinstance(part, Compare) or part.op not in (CompareOp.LT, CompareOp.LE):
            continue
        room = part.b - part.a + (1 if part.op is CompareOp.LE else 0)  # > 0 where it holds
        for term, k in terms_of(room)[0]:
            rest = room + term
            if k == -1 and isinstance(term, Sym) and term.name == axis and axis not in rest.free:
                yield rest
