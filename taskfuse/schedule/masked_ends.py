"""Where a mask ends the terms of a reduction: the index along an axis from which they are neutral.

Past its end a mask replaces an element by a constant, ``s[i, j] if j <= i, otherwise -inf``, and functions of constants are constants. Other
numbers are only known to be finite: -inf minus a number is -inf, 0 times a number is 0, and so is 0 divided by a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from taskfuse.dtypes import DType, bool_, float64
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.expr import FirstValid, Literal, Operand, Pointwise, Read, Reduction, View, at_point, is_same_number
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import And, Compare, CompareOp, Expr, Max, Min, Or, maximum, minimum, not_, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import refusal
from taskfuse.schedule.index_conditions import condition_of

ABSORBING = {"add": (math.inf, -math.inf), "sub": (math.inf, -math.inf), "mul": (0.0,)}
"""Operands that determine the result for any finite other operand."""
ADDED = {name: values for name, values in ABSORBING.items() if name != "mul"}
"""Those in sums and differences: they determine the result unless the other operand is NaN or the opposite infinity."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The value of an operand from some index on.

    Attributes:
        value: a constant; ``None``: some number.
        end: the index, over the other symbols; ``None``: everywhere.
    """

    value: float | None = None
    end: Expr | None = None


def masked_end(fusion: Fusion, expr: Reduction, axis: int) -> Expr | None:
    """The index along an axis from which the terms of a reduction are neutral, if unmasked values are finite; ``None``: unknown."""
    return _end(fusion, expr, expr.terms, axis)


def masked_start(fusion: Fusion, expr: Reduction, axis: int) -> Expr | None:
    """The index along an axis before which the terms of a reduction are neutral, as :func:`masked_end`: the end of the axis in reverse order."""
    extent = expr.output.root[axis].extent
    backwards: dict[str, Expr] = {f"i{axis}": extent - 1 - sym(f"i{axis}")}
    end = _end(fusion, expr, tuple(at_point(o, backwards) for o in expr.terms), axis)
    return None if end is None else counted_from_front(end, extent)


def counted_from_front(end: Expr, extent: Expr) -> Expr:
    """The first index before the end of an axis in reverse order, in the order of the axis."""
    match end:
        case Max(args):
            return minimum(*(counted_from_front(e, extent) for e in args))
        case Min(args):
            return maximum(*(counted_from_front(e, extent) for e in args))
        case _:
            return extent - end


def _end(fusion: Fusion, expr: Reduction, terms: Sequence[Operand], axis: int) -> Expr | None:
    walk = _EndSearch(fusion, f"i{axis}")
    behind = [walk.behind(o) for o in terms]
    found = _applied(expr.body, behind, ABSORBING)
    neutral = expr.combine.neutral(expr.output.dtype)
    return found.end if found.value is not None and is_same_number(found.value + 0.0, neutral + 0.0) else None


def constant_end(fusion: Fusion, operand: Operand, axis: str, value: float) -> Expr | None:
    """The index from which an operand is a constant along the axis of an index symbol; ``None``: unknown.

    Numbers that are the same along the axis are taken not to be the infinity, or NaN, that is added to them with the other sign. No others are.
    """
    found = _EndSearch(fusion, axis, is_strict=True).behind(operand)
    return found.end if found.value is not None and is_same_number(found.value + 0.0, value + 0.0) else None


class _EndSearch:
    """Operands without their masks, each element looked at once: elementwise tensors may be read by several of the tensors that they lead to.

    Args:
        axis: the index symbol.
        is_strict: a number that varies along the axis may be infinite, or NaN.
    """

    def __init__(self, fusion: Fusion, axis: str, *, is_strict: bool = False) -> None:
        self._fusion = fusion
        self._axis = axis
        self._is_strict = is_strict
        self._known: dict[tuple[TensorView, tuple[Expr, ...]], Behind] = {}

    def behind(self, operand: Operand) -> Behind:
        """The value of an operand from some index on."""
        if isinstance(operand, Literal):
            return Behind(float(operand.value))
        if not isinstance(operand, Read):
            return Behind()
        key = operand.tensor, operand.index
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._of(operand)
        return known

    def _of(self, operand: Read) -> Behind:
        axis, point = self._axis, {f"i{k}": e for k, e in enumerate(operand.index)}
        match self._fusion.definition(operand.tensor):
            case View(operand=inner):
                return self.behind(at_point(inner, point))
            case Pointwise() if (condition := condition_of(self._fusion, operand)) is not None:
                ends = ((value, _end_of(c, axis)) for value, c in ((0.0, condition), (1.0, not_(condition))))
                return next((Behind(value, end) for value, end in ends if end is not None), Behind())
            case Pointwise(op=op, operands=operands):
                behind = [self.behind(at_point(o, point)) for o in operands]
                numbers = [o for o, b in zip(operands, behind, strict=True) if b.value is None]
                if self._is_strict and op.name in ABSORBING and not all(_is_same(at_point(o, point), axis) for o in numbers):
                    return Behind()
                found = _applied(op, behind, ABSORBING if not self._is_strict else ADDED)
                return found if found.value is None or _is_element(found.value, operand.tensor.dtype) else Behind()
            case FirstValid(operands=operands):
                return _masked(operands, point, axis)
            case _:
                return Behind()


def _is_element(value: float, dtype: DType) -> bool:
    """True for a constant that a tensor may have; of booleans, 0 and 1."""
    return (dtype is bool_ and value in (0.0, 1.0)) or dtype.holds(value)


def _is_same(operand: Operand, axis: str) -> bool:
    """True for an operand that is the same all along an axis."""
    return not isinstance(operand, Read) or all(axis not in e.free for e in operand.index)


def _masked(operands: tuple[Operand, ...], point: dict[str, Expr], axis: str) -> Behind:
    """A choice between elements that end, and a constant behind them."""
    ends: list[Expr] = []
    for o in operands:
        if isinstance(o, Literal):
            return Behind(float(o.value), maximum(*ends)) if ends else Behind()
        end = _end_of(substitute(o.valid, point), axis) if isinstance(o, Read) else None
        if end is None:
            return Behind()
        ends.append(end)
    return Behind()


def _applied(op: Elementwise, operands: list[Behind], absorbing: Mapping[str, tuple[float, ...]]) -> Behind:
    """A function of operands of which some are constants from some index on."""
    if op.name == "where" and operands[0].value is not None:
        chosen = operands[1] if operands[0].value else operands[2]
        return _joined(chosen.value, [operands[0], chosen])
    if op.name == "where" and operands[1].value is not None and operands[1].value == operands[2].value:
        return _joined(operands[1].value, operands[1:])
    values = [b.value for b in operands if b.value is not None]
    if op.name == "mul" and "mul" in absorbing and values == [0.0, 0.0]:  # one factor of 0 suffices
        ends = [b.end for b in operands if b.end is not None]
        return Behind(0.0, minimum(*ends) if len(ends) == len(operands) else None)
    if len(values) == len(operands):
        if refusal(op, float64):  # of integers and booleans
            return Behind()
        with np.errstate(all="ignore"):
            made = float(np.asarray(op.function(*(np.float64(v) for v in values))))
        return Behind() if math.isnan(made) else _joined(made, operands)
    decisive = [b for b in operands if b.value is not None and b.value in absorbing.get(op.name, ())]
    if op.name == "div" and "mul" in absorbing and operands[0].value == 0 and operands[1].value is None:
        return operands[0]
    if len(operands) != 2 or len(decisive) != 1:
        return Behind()
    (one,) = decisive
    assert one.value is not None
    is_negated = op.name == "sub" and one is operands[1]
    return Behind(-one.value if is_negated else one.value, one.end)


def _joined(value: float | None, of: list[Behind]) -> Behind:
    ends = [b.end for b in of if b.end is not None]
    return Behind() if value is None else Behind(value, maximum(*ends) if ends else None)


def _end_of(condition: Expr, axis: str) -> Expr | None:
    """The first end of an axis past which a condition does not hold; ``None``: none is known."""
    if isinstance(condition, Or):
        ends = [_end_of(part, axis) for part in condition.args]
        known = [e for e in ends if e is not None]
        return maximum(*known) if len(known) == len(ends) else None
    parts = condition.args if isinstance(condition, And) else ()
    found = [*ends_of(condition, axis), *(e for part in parts if isinstance(part, Or) and (e := _end_of(part, axis)) is not None)]
    return minimum(*found) if found else None


def ends_of(condition: Expr, axis: str) -> Iterator[Expr]:
    """Ends of an axis past which a condition does not hold."""
    for part in condition.args if isinstance(condition, And) else (condition,):
        if isinstance(part, Compare) and part.op in (CompareOp.LT, CompareOp.LE):
            room = part.b - part.a + (1 if part.op is CompareOp.LE else 0)  # > 0 where it holds
            rest = room + sym(axis)
            if axis in room.free and axis not in rest.free:
                yield rest
