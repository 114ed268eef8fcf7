"""Matrices with a diagonal: diag, diag_embed, eye, tri."""

from __future__ import annotations

from taskfuse.dtypes import DTypeLike, as_dtype, bool_, float32
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import IntLike, and_, eq, le, lt
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import cast_tensor, check_tensor, define_pointwise, described, normalize_axis, shape_error
from taskfuse.ops.create import Extent, extent
from taskfuse.ops.rearrange import diagonal, moveaxis
from taskfuse.ops.registry import OpKind, always, op, same
from taskfuse.ops.select import define_select

__all__ = ["diag", "diag_embed", "eye", "tri"]


@op(OpKind.COMPOSITE, same, numpy="")
def diag_embed(x: TensorView, offset: int = 0, axis1: int = -2, axis2: int = -1) -> TensorView:
    """Matrices whose diagonal ``offset`` is the last dimension of ``x``, with 0 elsewhere, in dimensions ``axis1`` and ``axis2`` of the result."""
    check_tensor("diag_embed", x)
    if not x.ndim:
        raise shape_error("diag_embed", f"{described(x)} has no dimensions", "give a vector")
    a, b = (normalize_axis("diag_embed", d, x.ndim + 1, f"the {x.ndim + 1}-d result of {described(x)}") for d in (axis1, axis2))
    if a == b:
        raise shape_error("diag_embed", f"axis1 and axis2 of {described(x)} are the same axis", "give two dimensions")
    lead = x.ndim - 1
    down, right = max(-offset, 0), max(offset, 0)
    size = x.shape[-1]
    row, column = iteration_symbol(lead), iteration_symbol(lead + 1)
    with x.fusion.call():
        index = (*map(iteration_symbol, range(lead)), row - down)
        inside = and_(eq(row - down, column - right), le(0, row - down), lt(row - down, size))
        shape = (*x.shape[:-1], size + (down + right), size + (down + right))
        made = define_select(x.fusion, "diag_embed", shape, (Read(x, index, inside), Literal(_zero(x), x.dtype)), x.dtype)
        return moveaxis(made, [-2, -1], [a, b])


def _zero(x: TensorView) -> bool | int | float:
    return False if x.dtype.is_bool else 0.0 if x.dtype.is_float else 0


@op(OpKind.COMPOSITE, same)
def diag(x: TensorView, k: int = 0) -> TensorView:
    """For a vector, the matrix with it as diagonal ``k`` and 0 elsewhere; for a matrix, that diagonal: a view."""
    check_tensor("diag", x)
    if x.ndim not in (1, 2):
        raise shape_error("diag", f"{described(x)} is neither a vector nor a matrix", "use tf.diagonal or tf.diag_embed")
    return diag_embed(x, k) if x.ndim == 1 else diagonal(x, k)


def _where(op: str, comparison: str, rows: Extent, columns: Extent | None, k: IntLike, dtype: DTypeLike) -> TensorView:
    fusion = Fusion.current()
    shape = (extent(op, fusion, rows), extent(op, fusion, rows if columns is None else columns))
    with fusion.call():
        operands = (IndexValue(iteration_symbol(0) + k), IndexValue(iteration_symbol(1)))
        return cast_tensor(define_pointwise(fusion, ELEMENTWISE[comparison], shape, operands, bool_), as_dtype(dtype))


@op(OpKind.CREATION, always(float32))
def eye(rows: Extent, columns: Extent | None = None, k: IntLike = 0, dtype: DTypeLike = float32) -> TensorView:
    """A matrix of the current fusion with ones on the diagonal ``k`` and zeros elsewhere; square unless ``columns`` is given."""
    return _where("eye", "eq", rows, columns, k, dtype)


@op(OpKind.CREATION, always(float32), torch="")
def tri(rows: Extent, columns: Extent | None = None, k: IntLike = 0, dtype: DTypeLike = float32) -> TensorView:
    """A matrix of the current fusion with ones up to the diagonal ``k`` and zeros above it; square unless ``columns`` is given."""
    return _where("tri", "ge", rows, columns, k, dtype)
