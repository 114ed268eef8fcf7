"""Sums of which all terms but one are zero, such as those in the gradient of a loss of classes: that term, without a reduction.

An op that sends a value to a place of a row of zeros becomes a choice at each place. The sum over the row of such a choice, or of what is computed of it and
of values of the row, is the term at that place plus a zero. The zero is computed, too: a factor that is infinite or NaN makes NaN of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from taskfuse.dtypes import float32
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.expr import IndexValue, Literal, Operand, Pointwise, Read, ScalarRead, View
from taskfuse.ir.scalar import ONE, ZERO, Const
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import add, ge, logical_and, lt, where
from taskfuse.ops.build import define_pointwise

MOST = 64
"""Tensors between a sum and the choice, at most."""


def sum_of_one_term(x: TensorView, axis: int) -> TensorView | None:
    """The sum of ``x`` along an axis, which is kept with extent 1; ``None`` if more terms than one may differ from zero, or it is not known which."""
    extent = x.shape[axis]
    if not isinstance(extent, Const) or extent.value < 2 or not x.dtype.is_float or not isinstance(x.definition, Pointwise | View):
        return None
    row = _ChosenPlace()
    with x.fusion.call():
        chosen, other = row.at(x, axis, True), row.at(x, axis, False)
        if chosen is None or other is None or row.place is None or not _is_zero(other):
            return None
        is_inside = logical_and(ge(row.place, 0), lt(row.place, extent.value))
        return add(add(where(is_inside, chosen, 0.0), 0.0), other)  # the first sum is never -0.0


@dataclass(slots=True, eq=False)
class _ChosenPlace:
    """What tensors are at the chosen index of an axis, and at all others.

    Attributes:
        place: the chosen index, with extent 1 along the axis, once it is met.
    """

    place: TensorView | None = None
    _from: TensorView | None = None
    _known: dict[tuple[TensorView, int, bool], TensorView | None] = field(default_factory=dict[tuple[TensorView, int, bool], TensorView | None])

    def at(self, tv: TensorView, axis: int, is_chosen: bool) -> TensorView | None:
        """A tensor with extent 1 along the axis; ``None`` if its elements differ in more than whether their index is chosen."""
        key = tv, axis, is_chosen
        if key not in self._known:
            self._known[key] = None if len(self._known) > MOST else self._made(tv, axis, is_chosen)
        return self._known[key]

    def _made(self, tv: TensorView, axis: int, is_chosen: bool) -> TensorView | None:
        match tv.definition:
            case Pointwise(op=op, operands=operands) if op is ELEMENTWISE["eq"] and self._chooses(tv, operands, axis):
                return _defined(tv, axis, ELEMENTWISE["copy"], [Literal(is_chosen, tv.dtype)])
            case Pointwise(op=op, operands=[condition, *values]) if op is ELEMENTWISE["where"]:
                known = self._operand(condition, axis, is_chosen)
                if isinstance(known, Read) and (value := _constant(known.tensor)) is not None:
                    operand = self._operand(values[0 if value else 1], axis, is_chosen)
                    return None if operand is None else _defined(tv, axis, ELEMENTWISE["copy"], [operand])
                return self._applied(tv, axis, op, (condition, *values), is_chosen)
            case Pointwise(op=op, operands=operands):
                return self._applied(tv, axis, op, operands, is_chosen)
            case View(operand=operand):
                return self._applied(tv, axis, ELEMENTWISE["copy"], (operand,), is_chosen)
            case _:
                return None

    def _applied(self, tv: TensorView, axis: int, op: Elementwise, operands: Sequence[Operand], is_chosen: bool) -> TensorView | None:
        narrow = [self._operand(operand, axis, is_chosen) for operand in operands]
        made = [operand for operand in narrow if operand is not None]
        return _defined(tv, axis, op, made) if len(made) == len(narrow) else None

    def _chooses(self, tv: TensorView, operands: Sequence[Operand], axis: int) -> bool:
        """Whether a comparison is of the index along the axis with a value of the row, the same comparison wherever it is met."""
        reads = [o for o in operands if isinstance(o, Read)]
        if len(reads) != 1 or not any(isinstance(o, IndexValue) and o.index is iteration_symbol(axis) for o in operands):
            return False
        if self._from is None and (place := self._operand(reads[0], axis, False)) is not None:
            self._from, self.place = tv, _defined(tv, axis, ELEMENTWISE["copy"], [place], reads[0].tensor)
        return self._from is tv

    def _operand(self, operand: Operand, axis: int, is_chosen: bool) -> Operand | None:
        """The operand at the first index of the axis, of a tensor that has one index there."""
        symbol = iteration_symbol(axis)
        match operand:
            case Read(tensor=tensor, index=index):
                along = [d for d, e in enumerate(index) if str(symbol) in e.free]
                if not along:
                    return operand
                if len(along) > 1 or index[along[0]] is not symbol:
                    return None
                narrow = self.at(tensor, along[0], is_chosen)
                return None if narrow is None else Read(narrow, tuple(ZERO if d in along else e for d, e in enumerate(index)))
            case IndexValue(index=index):
                return None if str(symbol) in index.free else operand
            case Literal() | ScalarRead():
                return operand


def _defined(like: TensorView, axis: int, op: Elementwise, operands: Sequence[Operand], of: TensorView | None = None) -> TensorView:
    """A tensor with extent 1 along an axis of another one."""
    shape = tuple(ONE if d == axis else e for d, e in enumerate(like.shape))
    return define_pointwise(like.fusion, op, shape, operands, (like if of is None else of).dtype)


def _constant(tv: TensorView) -> bool | None:
    """The value of a condition that is the same everywhere."""
    match tv.definition:
        case Pointwise(op=op, operands=[Literal(value=value)]) if op is ELEMENTWISE["copy"]:
            return bool(value)
        case _:
            return None


def _is_zero(tv: TensorView) -> bool:
    """Whether a tensor of floats is zero or, by a factor that is infinite or NaN, NaN."""
    expr = tv.definition
    if not isinstance(expr, Pointwise) or not tv.dtype.is_float:
        return False
    zeros = [_is_zero(o.tensor) if isinstance(o, Read) else isinstance(o, Literal) and o.value == 0 for o in expr.operands]
    if expr.op is ELEMENTWISE["mul"]:
        return any(zeros)
    return all(zeros[1:] if expr.op.rule is DTypeRule.SELECT else zeros) and _keeps_zero(expr.op)


@cache
def _keeps_zero(op: Elementwise) -> bool:
    """Whether a function is zero where all its operands are."""
    with np.errstate(all="ignore"):
        return op.computes_in(float32) and bool(np.all(op.function(*[np.zeros(1, np.float32)] * op.arity) == 0))
