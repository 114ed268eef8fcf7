"""Constant ranges of the integers that a tensor holds, by the ops that make them: an index of ``topk``, a remainder, a count along an axis.

Interval arithmetic over the graph. An input has all values of its dtype, and so has what might wrap, or comes of a function whose row says nothing. Where a
range is narrower than the dtype, ops that look at all bits, such as sorts, look at fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DType
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise_function import DTypeRule, Range, RangeRule
from taskfuse.ir.expr import FirstValid, Gather, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, View
from taskfuse.ir.function_ranges import join
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, bounds
from taskfuse.ir.tensor import TensorView


def value_range(tv: TensorView) -> Range:
    """The least and the greatest integer that ``tv``, of bools or integers, may hold."""
    known: dict[TensorView, Range] = {}
    return _of(tv.fusion, tv, known)


def _whole(dtype: DType) -> Range:
    return (0, 1) if dtype.is_bool else (int(dtype.min_value), int(dtype.max_value))


def _of(fusion: Fusion, tv: TensorView, known: dict[TensorView, Range]) -> Range:
    if tv not in known:
        whole = _whole(tv.dtype)
        expr = fusion.definition(tv)
        found = None if expr is None else _made(fusion, expr, known)
        known[tv] = whole if found is None or found[0] < whole[0] or found[1] > whole[1] else found
    return known[tv]


def _made(fusion: Fusion, expr: MathExpr, known: dict[TensorView, Range]) -> Range | None:
    """Of the values of an expression, before they might wrap; ``None``: any."""
    match expr:
        case View(operand=operand):
            return _operand(fusion, expr, operand, known)
        case Gather(operands=operands):  # a place outside gives 0
            table = _operand(fusion, expr, operands[0], known)
            return None if table is None else join(table, (0, 0))
        case FirstValid(operands=operands):
            return _all(fusion, expr, operands, known, join)
        case Pointwise(op=op, operands=operands) if op.ranges is not None:
            return _all(fusion, expr, operands[1:] if op.rule is DTypeRule.SELECT else operands, known, op.ranges)
        case _:
            return None


def _all(fusion: Fusion, expr: MathExpr, operands: Sequence[Operand], known: dict[TensorView, Range], made: RangeRule) -> Range | None:
    """What a rule makes of the ranges of all operands."""
    ranges = [r for o in operands if (r := _operand(fusion, expr, o, known)) is not None]
    return made(*ranges) if len(ranges) == len(operands) else None


def _operand(fusion: Fusion, expr: MathExpr, operand: Operand, known: dict[TensorView, Range]) -> Range | None:
    match operand:
        case Literal(value=int() as value):
            return int(value), int(value)
        case Read(tensor, _, valid) if tensor.dtype.is_integer or tensor.dtype.is_bool:
            found = _of(fusion, tensor, known)
            return found if valid is TRUE or isinstance(expr, FirstValid) else join(found, (0, 0))
        case IndexValue(index=index):
            facts = fusion.facts()
            for k, a in enumerate(expr.output.root):
                facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
            low, high = bounds(index, facts)
            return None if low is None or high is None else (low, high)
        case _:
            return None
