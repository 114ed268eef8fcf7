"""Constant ranges of the integers that a tensor holds, by the ops that make them: an index of ``topk``, a remainder, a count along an axis.

Interval arithmetic over the graph. An input has all values of its dtype, and so has what might wrap, or comes of a function that has no row here. Where a
range is narrower than the dtype, ops that look at all bits, such as sorts, look at fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from taskfuse.dtypes import DType
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import FirstValid, Gather, IndexValue, Literal, MathExpr, Operand, Pointwise, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import TRUE, bounds
from taskfuse.ir.tensor import TensorView

Range = tuple[int, int]
"""The least and the greatest value."""


def _join(*ranges: Range) -> Range:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _corners(made: Callable[[int, int], int]) -> Callable[[Range, Range], Range]:
    """Of a function that is monotonic in each operand."""

    def found(a: Range, b: Range) -> Range:
        values = [made(x, y) for x in a for y in b]
        return min(values), max(values)

    return found


def _masked(a: Range, b: Range) -> Range | None:
    """Of the bits that are set in both: no more than those of one that is not negative."""
    highest = [high for low, high in (a, b) if low >= 0]
    return (0, min(highest)) if highest else None


def _shifted(a: Range, b: Range) -> Range | None:
    return _corners(lambda x, y: x >> y)(a, b) if b[0] >= 0 and b[1] < 64 else None


def _divided(a: Range, b: Range) -> Range | None:
    return _corners(lambda x, y: x // y)(a, b) if b[0] > 0 else None


def _remaining(a: Range, b: Range) -> Range | None:
    """Of a remainder that has the sign of its divisor."""
    return None if b[0] <= 0 else a if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _negative(a: Range) -> Range:
    return -a[1], -a[0]


def _same(a: Range) -> Range:
    return a


_OF_ONE: Final[Mapping[str, Callable[[Range], Range]]] = MappingProxyType({"copy": _same, "cast": _same, "neg": _negative})
_OF_TWO: Final[Mapping[str, Callable[[Range, Range], Range | None]]] = MappingProxyType(
    {
        "add": _corners(lambda x, y: x + y),
        "sub": _corners(lambda x, y: x - y),
        "mul": _corners(lambda x, y: x * y),
        "maximum": _corners(max),
        "minimum": _corners(min),
        "bitwise_and": _masked,
        "right_shift": _shifted,
        "floor_divide": _divided,
        "remainder": _remaining,
    }
)


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
            return None if table is None else _join(table, (0, 0))
        case FirstValid(operands=operands):
            return _any(fusion, expr, operands, known)
        case Pointwise(op=op, operands=(_, *operands)) if op.name == "where":
            return _any(fusion, expr, operands, known)
        case Pointwise(op=op, operands=operands):
            given = [r for o in operands if (r := _operand(fusion, expr, o, known)) is not None]
            if len(given) < len(operands):
                return None
            if op.name in _OF_ONE:
                return _OF_ONE[op.name](given[0])
            return _OF_TWO[op.name](given[0], given[1]) if op.name in _OF_TWO else None
        case _:
            return None


def _any(fusion: Fusion, expr: MathExpr, operands: Sequence[Operand], known: dict[TensorView, Range]) -> Range | None:
    """Of one of the operands."""
    ranges = [r for o in operands if (r := _operand(fusion, expr, o, known)) is not None]
    return _join(*ranges) if len(ranges) == len(operands) else None


def _operand(fusion: Fusion, expr: MathExpr, operand: Operand, known: dict[TensorView, Range]) -> Range | None:
    match operand:
        case Literal(value=int() as value):
            return int(value), int(value)
        case Read(tensor, _, valid) if tensor.dtype.is_integer or tensor.dtype.is_bool:
            found = _of(fusion, tensor, known)
            return found if valid is TRUE or isinstance(expr, FirstValid) else _join(found, (0, 0))
        case IndexValue(index=index):
            facts = fusion.facts()
            for k, a in enumerate(expr.output.root):
                facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
            low, high = bounds(index, facts)
            return None if low is None or high is None else (low, high)
        case _:
            return None
