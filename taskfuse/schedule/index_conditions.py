"""Conditions on indices: booleans computed from indices alone, as index expressions. And integers, as operands of other functions.

``where(j <= i, s, -inf)`` computes a boolean for each element. As a condition on indices the choice needs no data: it is known
for whole tiles, and so is its end. ``cast(j - i, float32)`` converts an integer of 64 bits; as a function of the index it converts what a kernel computes
in 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from taskfuse.dtypes import int64
from taskfuse.ir.expr import FirstValid, IndexValue, Literal, Operand, Pointwise, Read, View, at_point, operand_dtype
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.index_values import index_value
from taskfuse.ir.scalar import TRUE, Expr, and_, eq, ge, gt, le, lt, ne, not_, or_, simplify

COMPARISONS: Mapping[str, Callable[..., Expr]] = MappingProxyType({"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne})
LOGIC: Mapping[str, Callable[..., Expr]] = MappingProxyType(
    {"copy": simplify, "logical_and": and_, "logical_or": or_, "logical_not": not_, "bitwise_and": and_, "bitwise_or": or_, "bitwise_not": not_}
)
"""Functions of booleans; the operators of Python are the bitwise ones."""


def condition_of(fusion: Fusion, operand: Operand) -> Expr | None:
    """A boolean operand as a condition on its index; ``None`` if it depends on elements, or on integers that wrap."""
    if not isinstance(operand, Read) or operand.valid is not TRUE:
        return None
    expr = fusion.definition(operand.tensor)
    point = {f"i{k}": e for k, e in enumerate(operand.index)}
    if isinstance(expr, View):
        return condition_of(fusion, at_point(expr.operand, point))
    if not isinstance(expr, Pointwise):
        return None
    made = COMPARISONS if expr.op.name in COMPARISONS else LOGIC
    if expr.op.name not in made or (made is LOGIC and any(isinstance(o, Read) and o.tensor.dtype is not operand.tensor.dtype for o in expr.operands)):
        return None
    operands = [at_point(o, point) for o in expr.operands]
    found = [index_value(fusion, o, fusion.facts()) if made is COMPARISONS else condition_of(fusion, o) for o in operands]
    known = [e for e in found if e is not None]
    return made[expr.op.name](*known) if len(known) == len(found) else None


def of_indices(fusion: Fusion, expr: Pointwise) -> Pointwise:
    """A function with another dtype of integers that depend on indices alone, as a function of these; any other expression unchanged."""
    if expr.output.dtype.is_integer:
        return expr
    facts = fusion.facts()
    values = [index_value(fusion, o, facts) if isinstance(o, Read) and o.tensor.dtype is int64 else None for o in expr.operands]
    operands = tuple(o if e is None else IndexValue(e) for o, e in zip(expr.operands, values, strict=True))
    return expr if all(e is None for e in values) else replace(expr, operands=operands)


def as_choice(fusion: Fusion, expr: Pointwise) -> Pointwise | FirstValid:
    """``where`` by a condition on indices as a choice between its operands; any other expression unchanged."""
    if expr.op.name != "where":
        return expr
    boolean, yes, no = expr.operands
    condition = condition_of(fusion, boolean)
    for c, chosen, other in ((condition, yes, no), (None if condition is None else not_(condition), no, yes)):
        is_last = isinstance(other, Literal) or (isinstance(other, Read) and other.valid is TRUE)
        if (
            c is not None
            and isinstance(chosen, Read)
            and chosen.valid is TRUE
            and is_last
            and operand_dtype(chosen) is expr.output.dtype is operand_dtype(other)
        ):
            return FirstValid(expr.output, "where", (Read(chosen.tensor, chosen.index, c), other), expr.location)
    return expr
