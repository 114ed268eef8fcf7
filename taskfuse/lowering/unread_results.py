"""Loops over reduced axes that run no further where nobody reads what they sum up.

A choice reads a result only where its condition holds: the rows of a product that are padding are zeros, whatever the product would be there. A loop whose
results all belong to elements that no choice takes ends at once. The condition that one of them is taken is a function of extents, of block indices, of
loops around it and of elements of tables, in all roles the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from taskfuse.ir.axes import iteration_point
from taskfuse.ir.expr import FirstValid, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Compare, CompareOp, Expr, Facts, and_, conjuncts, ge, integers_of, le, lt, prove, simplify, substitute, sym
from taskfuse.ir.storage import resolve, storage_uses
from taskfuse.ir.tensor import TensorView


def condition_of_reads(fusion: Fusion, tv: TensorView) -> Expr | None:
    """A condition over the symbols of ``tv``'s own logical axes, without which nobody reads an element; ``None``: there is none."""
    found: set[Expr] = set()
    if tv.is_output:
        return None
    for use in storage_uses(fusion, tv):
        if not isinstance(use, FirstValid):
            return None
        for operand in use.operands:
            read = resolve(fusion, operand) if isinstance(operand, Read) else None
            if read is not None and read.tensor is tv:
                if read.index != iteration_point(tv.ndim):
                    return None
                found.add(read.valid)
    return next(iter(found)) if len(found) == 1 else None


def somewhere(condition: Expr, known: Collection[str], facts: Facts) -> Expr:
    """A condition over the symbols ``known`` and the extents that holds if ``condition`` does for some values of its other symbols, in their ranges."""
    found = (c for part in conjuncts(condition) for c in _relaxed(part, known, facts))
    return and_(*found)


def _relaxed(condition: Expr, known: Collection[str], facts: Facts) -> Iterator[Expr]:
    """What is left of a comparison whose unknown symbols have the values at which it holds first."""
    if integers_of(condition) <= set(known):
        yield condition
        return
    if not isinstance(condition, Compare) or condition.op not in (CompareOp.LT, CompareOp.LE):
        return
    room = condition.b - condition.a
    for name in sorted(integers_of(room) - set(known)):
        low, high = facts.ranges.get(name, (None, None))
        step = simplify(substitute(room, {name: sym(name) + 1}) - room, facts)
        best = low if prove(le(step, 0), facts) else high if prove(ge(step, 0), facts) else None
        if best is None:
            return
        room = simplify(substitute(room, {name: best}), facts)
    if integers_of(room) <= set(known):
        yield lt(0, room) if condition.op is CompareOp.LT else le(0, room)
