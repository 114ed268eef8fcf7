"""Folds: a state that takes one step for each index of a dimension, in order; its last value is the result.

Floats below 32 bits are folded in float32, and the result is cast once. Steps cannot be reordered, so one thread runs the loop over that dimension,
unless ``tv.split_fold`` knows how sequences of steps compose; sums and other reductions have functions of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taskfuse.dtypes import DType, bool_, result_type
from taskfuse.errors import shown
from taskfuse.ir.axes import AxisKind
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.expr import Fold
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import (
    broadcast_read,
    broadcast_shape,
    cast_tensor,
    check_tensor,
    common_fusion,
    dtype_error,
    literal,
    normalize_axis,
    refusal,
    result_dtype,
    shape_error,
)
from taskfuse.ops.keywords import axial
from taskfuse.ops.registry import OPS, OpKind, op, promoted

__all__ = ["decayed_sum", "fold"]


@op(OpKind.SCAN, promoted, torch="", numpy="")
@axial
def fold(step: str | Callable[..., object], *operands: TensorView, axis: int = -1, init: object = 0) -> TensorView:
    """The last of ``state = step(state, *operands)`` for each index along ``axis`` in order, starting with ``state = init``.

    The operands broadcast; the result has their shape without ``axis``, and their promoted dtype.

    Args:
        step: an elementwise function of one operand more, whose result has the dtype of its operands, or its name: ``tf.maximum``; ``"fma"`` is
            ``state * x + y``.
        init: the state before the first step, and the result if there are no steps.

    Raises:
        DTypeError: the function does not take the operands' dtype, or gives another one; ``init`` is not a number of it.
        ShapeError: there is no such function, it takes another number of operands, or ``axis`` is out of range.
    """
    if callable(step):
        step = next((name for name, known in OPS.items() if known.function is step), repr(step))
    row = ELEMENTWISE.get(step)
    if row is None:
        help = "the functions are listed in docs/ops.md; tf.associative_scan takes functions of one's own"
        raise shape_error("fold", f"{shown(step)} is not an elementwise function, or the name of one", help)
    if row.arity != len(operands) + 1:
        takes = f"takes {row.arity} operand{'s' if row.arity != 1 else ''}, of which the state is the first"
        raise shape_error("fold", f"{shown(step)} {takes}; {len(operands)} others are given", "give one tensor for each operand but the state")
    tensors = [check_tensor("fold", x) for x in operands]
    fusion = common_fusion("fold", tensors) if tensors else None
    if fusion is None:
        raise shape_error("fold", f"{shown(step)} takes the state alone, so the number of steps is unknown", "give it a tensor")
    wanted = result_type(*(x.dtype for x in tensors))
    wide = wanted.compute
    if row.rule is DTypeRule.SELECT:
        raise dtype_error("fold", f"the state would be the condition of {shown(step)}", "choose between elements before the fold")
    if not isinstance(init, bool | int | float):
        raise dtype_error("fold", f"init= is {shown(init)}, not a number", "a state starts at one number for all elements")
    refused = refusal(row, wide)
    if refused is not None or result_dtype(row, wide) is not wide:
        reason, help = refused or (
            f"{shown(step)} of {wide} gives {result_dtype(row, wide)}, which cannot be the state of the next step",
            "take another function",
        )
        raise dtype_error("fold", reason, help)
    shape = broadcast_shape("fold", tensors)
    place = normalize_axis("fold", axis, len(shape), "the operands")
    start = literal("fold", init, wide)
    location = caller()
    with fusion.call():
        root = [new_axis(e, AxisKind.REDUCTION if d == place else AxisKind.ITERATION) for d, e in enumerate(shape)]
        out = fusion.new_tensor(root, wide, location=location)
        made = fusion.define(Fold(out, row, tuple(broadcast_read(x, shape) for x in tensors), place, start, location))
        return cast_tensor(made, wanted)


def _numeric(dtypes: Sequence[DType]) -> DType | None:
    """The promoted dtype, if it is not bool."""
    found = result_type(*dtypes)
    return None if found is bool_ else found


@op(OpKind.SCAN, _numeric, torch="", numpy="")
@axial
def decayed_sum(x: TensorView, decay: TensorView, axis: int = -1, init: int | float = 0) -> TensorView:
    """The last of ``s = s * decay + x`` along ``axis``, starting with ``s = init``: the state of a linear recurrence after its last input.

    Softmax in one walk rescales its sum so (Milakov and Gimelshein, arXiv:1805.02867), and so do linear attention and state-space models. Otherwise as
    :func:`fold`.
    """
    return fold("fma", decay, x, axis=axis, init=init)
