"""Chains of 16-bit functions in float32: intermediate values are not rounded; the result of the chain is rounded once."""

from __future__ import annotations

from taskfuse.dtypes import DType, float32
from taskfuse.ir.expr import Leaf, Literal, MathExpr, Pointwise, Reduction, rebuilt
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.signatures import checked_first
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion


@checked_first
def widened(fusion: Fusion) -> Fusion:
    """A copy that computes chains of functions of 16-bit floats in float32, with one rounding at their end, and constants in float32.

    A tensor keeps its dtype if it is an input or a result, if a cast makes it, or if an op other than functions and sums reads it, such as a product
    of matrices or a view. ``evaluate`` of the copy is the reference for what ``tf.compile(..., numerics="wide")`` computes.
    """
    new, _ = copy_fusion(fusion)
    for tv in new.tensors():
        if _is_between(new, tv):
            tv.dtype = float32
    for expr in new.exprs():
        if isinstance(expr, Pointwise) and any(isinstance(o, Literal) and _is_short(o.dtype) for o in expr.operands):
            new.define(rebuilt(expr, lambda read: read, leaf=_wide))
    new.restate()
    return new


def _is_short(dtype: DType) -> bool:
    return dtype.is_float and dtype.itemsize == 2


def _is_between(fusion: Fusion, tv: TensorView) -> bool:
    """True for a 16-bit tensor that a function computes and only functions and sums read."""
    uses = fusion.uses(tv)
    if not _is_short(tv.dtype) or among(tv, fusion.outputs) or not uses:
        return False
    return _is_function(fusion.definition(tv)) and all(isinstance(e, Pointwise) or (isinstance(e, Reduction) and len(e.operands) == 1) for e in uses)


def _is_function(expr: MathExpr | None) -> bool:
    return isinstance(expr, Pointwise) and expr.op.name != "cast"


def _wide(leaf: Leaf) -> Leaf:
    return Literal(leaf.value, float32) if isinstance(leaf, Literal) and _is_short(leaf.dtype) else leaf
