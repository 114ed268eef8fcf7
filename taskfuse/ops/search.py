"""Indices that depend on data: the position of a number among sorted ones, its bin, the elements that are not 0."""

from __future__ import annotations

import math

from taskfuse.dtypes import bool_, int64
from taskfuse.ir.axes import iteration_symbol, value_symbol
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal
from taskfuse.ir.scalar import ZERO, IntLike, le, prove
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import (
    broadcast_read,
    cast_tensor,
    check_tensor,
    common_fusion,
    define_pointwise,
    described,
    dtype_error,
    elementwise,
    shape_error,
    typed,
)
from taskfuse.ops.create import extent
from taskfuse.ops.gather import define_gather
from taskfuse.ops.order_keys import index_values
from taskfuse.ops.rearrange import count
from taskfuse.ops.reduce import reduce_axes
from taskfuse.ops.registry import OpKind, always, floating_only, op
from taskfuse.ops.scan import cumsum
from taskfuse.ops.scatter import bincount, scatter_add
from taskfuse.ops.select import stack
from taskfuse.ops.views import expand_dims, reshape

__all__ = ["bucketize", "histc", "isin", "nonzero", "searchsorted"]

_LONGEST = 31


@op(OpKind.GATHER, always(int64))
def searchsorted(table: TensorView, values: TensorView, right: bool = False) -> TensorView:
    """Where each of ``values`` belongs in the sorted last dimension of ``table``: how many of its elements are less, or with ``right`` less or equal; int64.

    A 1-d table is that of all values; otherwise the other dimensions are those of the values. NaN belongs at the end. Each value bisects: a read at a
    computed index for each doubling of the greatest extent that the table may have (``tf.dim(..., max=)``).

    Raises:
        ShapeError: if the table is 0-d, or has other dimensions than the values.
    """
    check_tensor("searchsorted", table)
    check_tensor("searchsorted", values)
    fusion = common_fusion("searchsorted", (table, values))
    lead = table.ndim - 1
    if lead < 0 or (lead and table.shape[:-1] != values.shape[:-1]):
        reason = f"{described(table)} is neither one table nor one per row of {described(values)}"
        raise shape_error("searchsorted", reason, "give a 1-d table, or one for each row")
    n, shape = table.shape[-1], values.shape
    bits = next((b for b in range(_LONGEST) if prove(le(n, (1 << b) - 1), fusion.facts())), _LONGEST)
    with fusion.call():
        found = index_values(values, ZERO, int64)
        for step in reversed([1 << b for b in range(bits)]):
            tried = elementwise("add", found, step)
            index = [*map(iteration_symbol, range(lead)), value_symbol(0)]
            last = elementwise("sub", tried, 1)
            element = define_gather(table, shape, index, [(broadcast_read(last, shape), n)])
            is_before = elementwise("logical_not", elementwise("gt" if right else "ge", element, values))
            found = elementwise("where", elementwise("logical_and", elementwise("le", tried, n), is_before), tried, found)
        return found


@op(OpKind.GATHER, always(int64), numpy="")
def bucketize(x: TensorView, boundaries: TensorView, right: bool = False) -> TensorView:
    """The index of the interval of sorted ``boundaries`` that holds each element of ``x``: :func:`searchsorted` in one table."""
    check_tensor("bucketize", x)
    if check_tensor("bucketize", boundaries).ndim != 1:
        raise shape_error("bucketize", f"{described(boundaries)} is not 1-d", "use tf.searchsorted for a table of each row")
    return searchsorted(boundaries, x, right)


@op(OpKind.REDUCTION, always(bool_))
def isin(x: TensorView, values: TensorView) -> TensorView:
    """True where an element of ``x`` equals one of ``values``, by comparison with all of them."""
    for tv in (x, values):
        check_tensor("isin", tv)
    with common_fusion("isin", (x, values)).call():
        return reduce_axes(elementwise("eq", expand_dims(x, x.ndim), reshape(values, [-1])), (x.ndim,), COMBINES["logical_or"], bool_, keepdims=False)


@op(OpKind.SCATTER, floating_only, numpy="")
def histc(x: TensorView, bins: int, min: float, max: float) -> TensorView:
    """How many elements lie in each of ``bins`` equal parts of [min, max], in the dtype of ``x``, as ``torch.histc``; others are ignored.

    Raises :class:`ShapeError` unless ``min < max``, and :class:`DTypeError` unless ``x`` is a float.
    """
    check_tensor("histc", x)
    number = count("histc", "number of bins", bins, 1)
    if not x.dtype.is_float:
        raise dtype_error("histc", f"{typed(x)} is not a float", "cast to a float first, or use tf.bincount")
    if not (min < max and math.isfinite(max - min)):
        raise shape_error("histc", f"the range [{min}, {max}] is empty", "give min < max; tf.min(x) and tf.max(x) depend on data")
    with x.fusion.call():
        wide = cast_tensor(reshape(x, [-1]), x.dtype.compute)
        inside = elementwise("logical_and", elementwise("ge", wide, float(min)), elementwise("le", wide, float(max)))
        place = elementwise("div", elementwise("mul", elementwise("sub", wide, float(min)), float(number)), float(max) - float(min))
        at = elementwise("minimum", cast_tensor(elementwise("where", inside, place, -1.0), int64), number - 1)
        return cast_tensor(bincount(elementwise("where", inside, at, -1), number), x.dtype)


@op(OpKind.SCATTER, always(int64), torch="", numpy="")
def nonzero(x: TensorView, size: IntLike | str, fill: int = -1) -> TensorView:
    """The indices of the first ``size`` elements that are not 0, in row-major order: ``[size, dimensions]``, int64; the remaining rows hold ``fill``.

    NumPy and torch return as many rows as there are such elements: with ``jnp.nonzero``, ``size`` is stated as it is here. Their number is ``tf.sum(x != 0)``.

    Raises :class:`ShapeError` if ``x`` is 0-d, or ``size`` is not an extent.
    """
    check_tensor("nonzero", x)
    if not x.ndim:
        raise shape_error("nonzero", f"{described(x)} has no indices", "reshape it to one dimension")
    rows = extent("nonzero", x.fusion, size)
    with x.fusion.call():
        mask = cast_tensor(reshape(x, [-1]), bool_)
        before = elementwise("sub", cumsum(cast_tensor(mask, int64), 0), 1)
        place = elementwise("where", mask, before, rows)
        start = define_pointwise(x.fusion, ELEMENTWISE["copy"], (rows,), (Literal(0, int64),), int64)
        marked = index_values(place, iteration_symbol(0) + 1, int64)
        found = elementwise("sub", scatter_add(start, 0, place, marked), 1)
        missing = elementwise("lt", found, 0)
        columns: list[TensorView] = []
        rest = found
        for e in reversed(x.shape):
            columns.append(elementwise("where", missing, fill, elementwise("remainder", rest, e)))
            rest = elementwise("floor_divide", rest, e)
        return stack(columns[::-1], 1)
