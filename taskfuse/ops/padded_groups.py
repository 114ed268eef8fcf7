"""Products of groups of rows with padding between them, one matrix for each group: rows of padding become zeros.

The layouts are those of DeepGEMM (``deep_gemm/common/types.cuh``): masked, contiguous with a group for each row, and contiguous with the ends of groups. Each
is a batch of products whose results are read only where a row belongs to a group, so loops over terms do not run in tiles that consist of padding.
"""

from __future__ import annotations

from taskfuse.dtypes import DType, DTypeLike, as_dtype, result_type
from taskfuse.errors import FusionError
from taskfuse.ir.axes import axis, iteration_point
from taskfuse.ir.expr import FirstValid, Read
from taskfuse.ir.scalar import ZERO, Expr, and_, ceildiv, element, ge, is_multiple, le, lt, maximum, prove, sym, upper_bound, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import cast_tensor, check_tensor, common_fusion, described, literal, shape_error
from taskfuse.ops.linalg import matmul
from taskfuse.ops.registry import OpKind, op, promoted
from taskfuse.ops.views import reshape, view

__all__ = ["grouped_matmul_aligned", "grouped_matmul_masked", "grouped_matmul_tiled"]

TILE = 128
"""Rows of a tile in DeepGEMM's layouts."""


@op(OpKind.PRODUCT, promoted, torch="", numpy="")
def grouped_matmul_masked(a: TensorView, b: TensorView, counts: TensorView, dtype: DTypeLike | None = None) -> TensorView:
    """The first ``counts[g]`` rows of matrix g of ``a [G, M, K]`` times matrix g of ``b [G, K, N]``, and zeros in the other rows: ``[G, M, N]``.

    Args:
        a: a block of rows for each group.
        b: the matrices.
        counts: a table of the number of rows of each group, declared with ``high=M``.
        dtype: of the result; by default the promoted dtype.

    Raises:
        FusionError: ``counts`` is not a table.
        ShapeError: the shapes do not fit, or the table of counts does not match the rows.
        DTypeError: as :func:`matmul`.
    """
    name = "grouped_matmul_masked"
    _check(name, a, b, counts, 3)
    if a.shape[0] is not b.shape[0] or counts.shape[0] is not a.shape[0]:
        raise shape_error(name, f"{described(a)}, {described(b)} and {described(counts)} differ in the number of groups")
    number = element(sym(counts.name), sym("i0"), counts.shape[0], *_range(name, counts, a.shape[1]))
    with a.fusion.call():
        return _kept(name, matmul(a, b, _sums(a, b, dtype)), lt(sym("i1"), number), _result(a, b, dtype))


@op(OpKind.PRODUCT, promoted, torch="", numpy="")
def grouped_matmul_tiled(a: TensorView, b: TensorView, groups: TensorView, dtype: DTypeLike | None = None, *, tile: int = TILE) -> TensorView:
    """Each row of ``a [M, K]`` times the matrix of its tile in ``b [G, K, N]``, chosen by the group of the tile's first row: ``[M, N]``.

    A row of group -1 is padding, and so are all rows of a tile that begins with one: their results are zeros.

    Args:
        a: the rows; all rows of a tile belong to the group of its first row.
        b: the matrices.
        groups: a table of the group of each row, declared with ``low=-1, high=G - 1``.
        dtype: of the result; by default the promoted dtype.
        tile: rows of a tile. It divides M.

    Raises:
        FusionError: ``groups`` is not a table.
        ShapeError: the shapes do not fit, M is not provably a multiple of ``tile``, or the table of groups does not match the matrices.
        DTypeError: as :func:`matmul`.
    """
    name = "grouped_matmul_tiled"
    _check(name, a, b, groups, 2)
    if groups.shape[0] is not a.shape[0]:
        raise shape_error(name, f"{described(groups)} does not have one element per row of {described(a)}")
    low, high = _range(name, groups, b.shape[0] - 1, wrap(-1))

    def of(row: Expr) -> Expr:
        return element(sym(groups.name), row, groups.shape[0], low, high)

    first = sym("i0") * tile
    belongs = and_(le(0, of(first)), le(0, of(first + sym("i1"))))
    return _by_tiles(name, a, b, maximum(of(first), 0), belongs, dtype, tile)


@op(OpKind.PRODUCT, promoted, torch="", numpy="")
def grouped_matmul_aligned(a: TensorView, b: TensorView, ends: TensorView, dtype: DTypeLike | None = None, *, tile: int = TILE) -> TensorView:
    """Rows of ``a [M, K]`` times matrix g of ``b [G, K, N]``, if they are between ``ends[g]``, rounded up to a multiple of ``tile``, and ``ends[g + 1]``.

    So each group begins a tile, and the rows between its end and the next tile are padding: their results are zeros. ``[M, N]``

    Args:
        a: the rows, group by group.
        b: the matrices.
        ends: a table of 0 and then the end of each group, G + 1 positions in the rows of ``a``, declared with ``high=M``. If they
            decrease, the group of a tile is unspecified.
        dtype: of the result; by default the promoted dtype.
        tile: divides the number of the first row of each group, and M.

    Raises:
        FusionError: ``ends`` is not a table.
        ShapeError: the shapes do not fit, M is not provably a multiple of ``tile``, or the table of ends does not match the rows.
        DTypeError: as :func:`matmul`.
    """
    name = "grouped_matmul_aligned"
    _check(name, a, b, ends, 2)
    if ends.shape[0] is not b.shape[0] + 1:
        raise shape_error(name, f"{described(ends)} does not hold 0 and the end of each group of {described(b)}", f"declare a table of {b.shape[0] + 1}")
    low, high = _range(name, ends, a.shape[0])
    first = sym("i0") * tile
    group = upper_bound(sym(ends.name), ends.shape[0], low, high, first)

    def end(group: Expr) -> Expr:
        return element(sym(ends.name), group, ends.shape[0], low, high)

    belongs = and_(le(ceildiv(end(group), tile), sym("i0")), lt(first + sym("i1"), end(group + 1)))
    return _by_tiles(name, a, b, group, belongs, dtype, tile)


def _check(name: str, a: TensorView, b: TensorView, table: TensorView, rank: int) -> None:
    for tv in (a, b, table):
        check_tensor(name, tv)
    fusion = common_fusion(name, (a, b, table))
    if a.ndim != rank or b.ndim != 3 or a.shape[-1] is not b.shape[1]:
        raise shape_error(name, f"{described(a)} and {described(b)} are not rows {'[M, K]' if rank == 2 else '[G, M, K]'} and matrices [G, K, N]")
    if table not in fusion.tables:
        raise FusionError(fusion=fusion.name, reason=f"{described(table)} is not a table", help="declare it with tf.table(...)", location=caller())
    if not prove(ge(b.shape[0], 1), fusion.facts()):
        raise shape_error(name, f"{described(b)} may have 0 matrices", "declare their number with tf.dim(..., min=1)")


def _range(name: str, table: TensorView, high: Expr, low: Expr = ZERO) -> tuple[Expr, Expr]:
    known = table.fusion.tables[table]
    if known.low is not low or known.high is not high:
        raise shape_error(name, f"{described(table)} is a table of {known}, not of {low}..{high}", f"declare it with low={low}, high={high}")
    return low, high


def _by_tiles(name: str, a: TensorView, b: TensorView, group: Expr, belongs: Expr, dtype: DTypeLike | None, tile: int) -> TensorView:
    """Tiles of rows times the matrix of their group, which is a function of the tile."""
    fusion, rows = a.fusion, a.shape[0]
    if tile < 1 or not is_multiple(rows, tile, fusion.facts()):
        raise shape_error(
            name, f"the number of rows of {described(a)} is not provably a multiple of {tile}", f"declare their number with tf.dim(..., multiple_of={tile})"
        )
    with fusion.call():
        factor = reshape(a, [rows // tile, tile, a.shape[1]])
        matrix = view(b, "of_tiles", (rows // tile, *b.shape[1:]), (group, sym("i1"), sym("i2")))
        return reshape(_kept(name, matmul(factor, matrix, _sums(a, b, dtype)), belongs, _result(a, b, dtype)), [rows, b.shape[2]])


def _result(a: TensorView, b: TensorView, dtype: DTypeLike | None) -> DType:
    return result_type(a.dtype, b.dtype) if dtype is None else as_dtype(dtype)


def _sums(a: TensorView, b: TensorView, dtype: DTypeLike | None) -> DType:
    """The dtype of the sums: the choice between one and zero comes before all else, so that sums that nobody takes need not be made."""
    return _result(a, b, dtype).compute


def _kept(name: str, product: TensorView, belongs: Expr, dtype: DType) -> TensorView:
    """The product where a condition over its axes holds, elsewhere 0."""
    location = caller()
    out = product.fusion.new_tensor([axis(e) for e in product.shape], product.dtype, location=location)
    found = Read(product, iteration_point(product.ndim), belongs)
    return cast_tensor(product.fusion.define(FirstValid(out, name, (found, literal(name, 0, product.dtype)), location)), dtype)
