"""The positions of the greatest and the least element.

Two reductions: the extreme itself, then the least position that has it. Both are reductions like any other in a schedule (serial, across threads
and blocks, in two steps), and the first of equals is the least position, whatever the order. The first NaN is where the extreme is, as in NumPy.
"""

from __future__ import annotations

from taskfuse.dtypes import bool_, int64
from taskfuse.ir.axes import AxisKind, iteration_symbol
from taskfuse.ir.axes import axis as new_axis
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Read, Reduction
from taskfuse.ir.scalar import ZERO, Expr, ge, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import broadcast_read, check_tensor, define_pointwise, described, normalize_axis, shape_error
from taskfuse.ops.keywords import axial
from taskfuse.ops.reduce import count, reduce_axes
from taskfuse.ops.registry import OpKind, always, op
from taskfuse.ops.views import expand_dims

__all__ = ["argmax", "argmin"]


@op(OpKind.REDUCTION, always(int64))
@axial
def argmax(x: TensorView, axis: int | None = None, keepdims: bool = False) -> TensorView:
    """The index, int64, of the first of the greatest elements along ``axis``; of all elements in row-major order if ``None``. NaN is the greatest.

    Raises :class:`ShapeError` if ``axis`` is out of range, or its extent may be 0.
    """
    return _position("argmax", "maximum", x, axis, keepdims)


@op(OpKind.REDUCTION, always(int64))
@axial
def argmin(x: TensorView, axis: int | None = None, keepdims: bool = False) -> TensorView:
    """The index of the first of the least elements; otherwise as :func:`argmax`. NaN is the least."""
    return _position("argmin", "minimum", x, axis, keepdims)


def _position(op: str, combine: str, x: TensorView, axis: int | None, keepdims: bool) -> TensorView:
    check_tensor(op, x)
    axes = tuple(range(x.ndim)) if axis is None else (normalize_axis(op, axis, x.ndim, described(x)),)
    if not prove(ge(count(x, axes), 1), x.fusion.facts()):
        raise shape_error(op, f"{described(x)} may have no elements", "declare the extent with tf.dim(..., min=1)")
    with x.fusion.call():
        extreme = reduce_axes(x, axes, COMBINES[combine], x.dtype, keepdims=False)
        found = first_position(equal_to(x, extreme, axes), axes)
        return expand_dims(found, axes) if keepdims else found


def equal_to(x: TensorView, extreme: TensorView, axes: tuple[int, ...]) -> TensorView:
    """True where ``x`` is equal to its extreme over ``axes``: NaN if an element is NaN."""
    own, kept = broadcast_read(x, x.shape), Read(extreme, tuple(iteration_symbol(d) for d in range(x.ndim) if d not in axes))
    same = define_pointwise(x.fusion, ELEMENTWISE["eq"], x.shape, (own, kept), bool_)
    if not x.dtype.is_float:
        return same
    nan = define_pointwise(x.fusion, ELEMENTWISE["isnan"], x.shape, (own,), bool_)
    reads = (broadcast_read(same, x.shape), broadcast_read(nan, x.shape))
    return define_pointwise(x.fusion, ELEMENTWISE["logical_or"], x.shape, reads, bool_)


def first_position(chosen: TensorView, axes: tuple[int, ...], position: Expr | None = None) -> TensorView:
    """The least position at which ``chosen`` is true: an expression over its iteration symbols, by default that in row-major order over ``axes``."""
    location = caller()
    if position is None:
        position = ZERO
        for d in axes:
            position = position * chosen.shape[d] + iteration_symbol(d)
    least = COMBINES["minimum"]
    nowhere = Literal(least.neutral(int64), int64)
    operands = (broadcast_read(chosen, chosen.shape), IndexValue(position), nowhere)
    if not axes:
        return define_pointwise(chosen.fusion, ELEMENTWISE["where"], (), operands, int64)
    root = [new_axis(e, AxisKind.REDUCTION if d in axes else AxisKind.ITERATION) for d, e in enumerate(chosen.shape)]
    out = chosen.fusion.new_tensor(root, int64, location=location)
    return chosen.fusion.define(Reduction(out, least, ELEMENTWISE["where"], operands, nowhere, location))
