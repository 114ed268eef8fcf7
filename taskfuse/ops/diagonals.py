"""Matrices with a diagonal: diag, diag_embed, diagonal_scatter, eye, tri; the indices of triangles."""

from __future__ import annotations

from taskfuse.dtypes import DTypeLike, as_dtype, bool_, float32, float64, int64
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import IndexValue, Literal, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import IntLike, and_, eq, le, lt, prove, shape_text
from taskfuse.ir.tensor import TensorView
from taskfuse.ops import elementwise
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, define_pointwise, described, facts_help, normalize_axis, shape_error
from taskfuse.ops.create import Extent, arange, extent
from taskfuse.ops.elementwise import add, floor_divide, mul, remainder, sqrt, sub, where
from taskfuse.ops.rearrange import count, diagonal, diagonal_number, diagonal_of, moveaxis
from taskfuse.ops.registry import OpKind, always, op, same
from taskfuse.ops.select import define_select, stack

__all__ = ["diag", "diag_embed", "diagonal_scatter", "eye", "tri", "tril_indices", "triu_indices"]


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


@op(OpKind.COMPOSITE, same, numpy="")
def diagonal_scatter(x: TensorView, y: TensorView, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TensorView:
    """``x`` with ``y``, converted to its dtype, in place of its :func:`diagonal`.

    Raises :class:`ShapeError` if ``y`` has not the shape of that diagonal.
    """
    a, b, at, size = diagonal_of("diagonal_scatter", x, offset, axis1, axis2)
    check_tensor("diagonal_scatter", y)
    wanted = (*(e for d, e in enumerate(x.shape) if d not in (a, b)), size)
    facts = x.fusion.facts()
    if y.ndim != len(wanted) or not all(prove(eq(e, f), facts) for e, f in zip(y.shape, wanted, strict=True)):
        raise shape_error("diagonal_scatter", f"{described(y)} has not the shape {shape_text(wanted)} of the diagonal of {described(x)}", facts_help(x))
    lead = x.ndim - 2
    row, column = iteration_symbol(lead) - max(-at, 0), iteration_symbol(lead + 1) - max(at, 0)
    with common_fusion("diagonal_scatter", (x, y)).call():
        whole = moveaxis(x, [a, b], [-2, -1])
        inside = and_(eq(row, column), le(0, row), lt(row, size))
        given = Read(cast_tensor(y, x.dtype), (*map(iteration_symbol, range(lead)), row), inside)
        kept = Read(whole, tuple(map(iteration_symbol, range(x.ndim))))
        return moveaxis(define_select(x.fusion, "diagonal_scatter", whole.shape, (given, kept), x.dtype), [-2, -1], [a, b])


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


@op(OpKind.CREATION, always(int64), numpy="")
def tril_indices(rows: int, columns: int | None = None, k: int = 0) -> TensorView:
    """The rows and the columns of the elements of a matrix up to its diagonal ``k``, in row-major order: two rows of int64. ``columns`` is by default ``rows``.

    Raises :class:`ShapeError` unless there is such an element.
    """
    return _triangle_indices("tril_indices", rows, columns, k, is_lower=True)


@op(OpKind.CREATION, always(int64), numpy="")
def triu_indices(rows: int, columns: int | None = None, k: int = 0) -> TensorView:
    """The rows and the columns of the elements from the diagonal ``k`` on; otherwise as :func:`tril_indices`."""
    return _triangle_indices("triu_indices", rows, columns, k, is_lower=False)


def _triangle_indices(op: str, rows: int, columns: int | None, k: int, *, is_lower: bool) -> TensorView:
    """Elements of a triangle and their places in it. The upper triangle, read backwards, is the lower one of the matrix that is turned by 180 degrees."""
    m = count(op, "number of rows", rows)
    n = m if columns is None else count(op, "number of columns", columns)
    at = diagonal_number(op, k)
    last = at if is_lower else n - m - at  # the diagonal of the lower triangle
    first = max(-last, 0)  # its first row
    length = min(first + 1 + last, n)  # the elements of that row; each row below has one more, up to n
    growing = max(min(n - length, m - 1 - first), 0)  # so many times
    below = m - first - growing  # rows as long as the longest, and that one
    if first >= m or length < 1:
        raise shape_error(op, f"the triangle of a matrix [{m}, {n}] has no elements")
    short = growing * length + growing * (growing - 1) // 2
    size = short + below * (length + growing)
    with Fusion.current().call():
        place = arange(size) if is_lower else sub(size - 1, arange(size))
        row, column = floor_divide(sub(place, short), length + growing), remainder(sub(place, short), length + growing)
        if growing:  # row r of these begins at r * length + r * (r - 1) / 2; a root in float64 is off by less than 1
            root = sqrt(cast_tensor(add(mul(place, 8), (2 * length - 1) ** 2), float64))
            near = floor_divide(cast_tensor(sub(root, 2.0 * length - 1), int64), 2)
            near = sub(near, cast_tensor(elementwise.gt(_start(near, length), place), int64))
            near = add(near, cast_tensor(elementwise.le(_start(add(near, 1), length), place), int64))
            is_short = elementwise.lt(place, short)
            row = where(is_short, near, add(row, growing))
            column = where(is_short, sub(place, _start(near, length)), column)
        row = add(row, first)
        return stack([row, column] if is_lower else [sub(m - 1, row), sub(n - 1, column)])


def _start(row: TensorView, length: int) -> TensorView:
    """The place of the first element of a row, if row 0 has ``length`` and each row one more than that before it."""
    return add(mul(row, length), floor_divide(mul(row, sub(row, 1)), 2))
