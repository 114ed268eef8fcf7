"""Ragged axes: rows of different lengths stored one after another, and the same rows padded to one length.

The offsets are a table (:func:`~taskfuse.ops.create.table`): row ``g`` is elements ``offsets[g]`` to ``offsets[g + 1]`` of the first axis. A table of
lengths has offsets as well (:mod:`taskfuse.ir.offsets`).
"""

from __future__ import annotations

from taskfuse.dtypes import result_type
from taskfuse.errors import FusionError, shown
from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.expr import FirstValid, Read
from taskfuse.ir.offsets import offsets_name
from taskfuse.ir.scalar import ZERO, Expr, IntLike, Sym, element, lt, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import check_tensor, common_fusion, described, dtype_error, literal, shape_error
from taskfuse.ops.create import Extent, extent
from taskfuse.ops.registry import OpKind, op, same

__all__ = ["jagged_to_padded_dense"]


def offsets_of(table: TensorView) -> tuple[Sym, Expr]:
    """The name and the number of offsets: of the elements of a table, or of the groups of which it has the lengths."""
    name, size = (offsets_name(table.name), table.shape[0] + 1) if table.fusion.tables[table].lengths else (table.name, table.shape[0])
    return sym(name), size


def offset_of(table: TensorView, index: IntLike) -> Expr:
    """An offset, in its range."""
    known, (name, size) = table.fusion.tables[table], offsets_of(table)
    return element(name, index, size, known.low, known.high)


@op(OpKind.ASSEMBLY, same, torch="_jagged_to_padded_dense_forward", numpy="")
def jagged_to_padded_dense(values: TensorView, offsets: TensorView, max_length: Extent, padding_value: bool | int | float = 0) -> TensorView:
    """Rows of different lengths, ``values[total, ...]``, padded to ``[rows, max_length, ...]``.

    Args:
        values: the rows, one after another along the first axis.
        offsets: a table of ``rows + 1`` positions in that axis, from 0 to its extent; or of the lengths of the rows, declared with ``lengths=True``.
        max_length: elements of a row in the result; longer rows are truncated.
        padding_value: the value of the elements past the end of a row.

    Raises:
        FusionError: ``offsets`` is not a table.
        ShapeError: ``values`` is 0-d, or an offset may lie outside its first axis.
        DTypeError: ``padding_value`` is not a value of the dtype of ``values``.
    """
    check_tensor("jagged_to_padded_dense", values)
    check_tensor("jagged_to_padded_dense", offsets)
    if padding_value and result_type(values.dtype, padding_value) is not values.dtype:
        raise dtype_error("jagged_to_padded_dense", f"{shown(padding_value)} is not a value of {values.dtype.name}", "cast the tensor first")
    fusion = common_fusion("jagged_to_padded_dense", (values, offsets))
    rows = _rows("jagged_to_padded_dense", values, offsets)
    length = extent("jagged_to_padded_dense", fusion, max_length)
    shape = (rows, length, *values.shape[1:])
    points = [iteration_symbol(k) for k in range(len(shape))]
    start, end = offset_of(offsets, points[0]), offset_of(offsets, points[0] + 1)
    found = Read(values, (start + points[1], *points[2:]), lt(points[1], end - start))
    location = caller()
    out = fusion.new_tensor([axis(e) for e in shape], values.dtype, location=location)
    return fusion.define(FirstValid(out, "jagged_to_padded_dense", (found, literal("jagged_to_padded_dense", padding_value, values.dtype)), location))


def _rows(op: str, values: TensorView, offsets: TensorView) -> Expr:
    """The number of rows. Checks that the offsets are positions in the first axis of ``values``."""
    known = offsets.fusion.tables.get(offsets)
    if known is None:
        raise FusionError(fusion=offsets.fusion.name, reason=f"{described(offsets)} is not a table", help="declare it with tf.table(...)", location=caller())
    if not values.ndim:
        raise shape_error(op, f"{described(values)} is 0-d", "give rows, one after another")
    if known.low is not ZERO or known.high is not values.shape[0]:
        reason = f"offsets between {known.low} and {known.high} for an axis of {values.shape[0]}"
        raise shape_error(op, reason, "declare the table with low=0 and high= that extent")
    return offsets_of(offsets)[1] - 1
