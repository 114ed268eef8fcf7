"""Products of ragged groups: of rows, one matrix for each group, or of terms."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.dtypes import DTypeLike, float32
from taskfuse.errors import FusionError
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import ONE, ZERO, Const, ge, prove, wrap
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.ops.build import check_tensor, common_fusion, described, shape_error
from taskfuse.ops.jagged import jagged_to_padded_dense, offsets_of
from taskfuse.ops.linalg import matmul
from taskfuse.ops.registry import OpKind, op, promoted
from taskfuse.ops.scaled import scaled_product
from taskfuse.ops.views import permute, view

__all__ = ["grouped_matmul"]

TILE = 128
"""Rows of a tile: those of two warpgroups."""
FEW_ROWS = 64
"""Rows of a tile if groups have at most as many on average: those of one warpgroup."""


@op(OpKind.PRODUCT, promoted, torch="_grouped_mm", numpy="")
def grouped_matmul(
    a: TensorView,
    b: TensorView,
    offsets: TensorView | None = None,
    dtype: DTypeLike | None = None,
    *,
    lengths: TensorView | None = None,
    tile: int | None = None,
    scale_a: TensorView | None = None,
    scale_b: TensorView | None = None,
) -> TensorView:
    """Products of groups of rows, or of terms, which ``offsets`` delimit along one axis; groups may be empty.

    - ``a [M, K]``, ``b [G, K, N]``: rows ``offsets[g]`` to ``offsets[g + 1]`` of ``a`` times matrix g of ``b``. ``[M, N]``
    - ``a [M, K]``, ``b [K, N]``: the sum of the terms ``offsets[g]`` to ``offsets[g + 1]`` for each group g. ``[G, M, N]``

    Groups of rows are a batch of products of tiles of rows (:mod:`taskfuse.ir.row_tiles`), whose number does not depend on the offsets: one kernel serves
    all of them. Products and sums are those of :func:`matmul`.

    Args:
        a: the rows, group by group; or all columns of the groups, side by side.
        b: the matrices; or all rows of the groups.
        offsets: a table of G + 1 positions in M, declared with ``high=M, rising=True``; or in K, declared with ``high=K``.
        dtype: of the result; by default the promoted dtype, float32 with scales.
        lengths: in place of ``offsets``, a table of the lengths of the G groups, declared with ``lengths=True`` and the same ``high``.
        tile: rows of a tile of groups of rows; by default 128, or 64 if groups have at most 64 on average.
        scale_a, scale_b: for groups of rows, scales of the elements, as in :func:`scaled_matmul`: ``[]``, or for rows of ``a`` ``[M, 1]`` or
            ``[M, K/128]``, and for each matrix a scale as of ``b`` there, such as ``[G, 1, N]`` or ``[G, K/128, ceil(N/128)]``.

    Raises:
        FusionError: ``offsets`` is not a table, ``lengths`` not one of lengths, or both or neither are given.
        ShapeError: the shapes do not fit, the offsets belong to another axis, or there may be fewer rows than in a tile and their number is not constant.
        DTypeError: as :func:`matmul`, or :func:`scaled_matmul`.
    """
    name = "grouped_matmul"
    scales = [scale for scale in (scale_a, scale_b) if scale is not None]
    cuts = offsets if lengths is None else lengths
    check_tensor(name, a)
    if cuts is None or (offsets is not None and lengths is not None):
        reason = f"{'neither' if offsets is None else 'both'} offsets {'nor' if offsets is None else 'and'} lengths of groups are given"
        raise FusionError(fusion=a.fusion.name, reason=reason, help="give one of offsets= and lengths=", location=caller())
    for tv in (b, cuts, *scales):
        check_tensor(name, tv)
    fusion = common_fusion(name, (a, b, cuts, *scales))
    if a.ndim != 2 or b.ndim not in (2, 3) or a.shape[1] is not b.shape[-2]:
        raise shape_error(name, f"{described(a)} and {described(b)} are not rows [M, K] and matrices [G, K, N], nor matrices [M, K] and [K, N]")
    known = fusion.tables.get(cuts)
    if known is None or known.lengths is not (lengths is cuts):
        reason = f"{described(cuts)} is not a table of {'offsets' if lengths is None else 'lengths'}"
        help = f"declare it with tf.table(..., {'rising' if lengths is None else 'lengths'}=True)"
        raise FusionError(fusion=fusion.name, reason=reason, help=help, location=caller())
    if len(scales) == 1:
        raise shape_error(name, "only one factor has a scale", "give both: tf.ones(()) changes nothing")
    if scales and b.ndim == 2:
        raise shape_error(name, "groups of terms do not take scales", "multiply the factors, or scale the result")
    with fusion.call():
        return _by_rows(a, b, cuts, dtype, tile, scales) if b.ndim == 3 else _by_terms(a, b, cuts, dtype)


def _by_terms(a: TensorView, b: TensorView, offsets: TensorView, dtype: DTypeLike | None) -> TensorView:
    """The groups of terms, each padded with zeros; loops over terms end with each group."""
    terms = a.shape[1]
    left, right = (jagged_to_padded_dense(x, offsets, terms) for x in (permute(a, (1, 0)), b))
    return matmul(permute(left, (0, 2, 1)), right, dtype)


def _by_rows(a: TensorView, b: TensorView, offsets: TensorView, dtype: DTypeLike | None, tile: int | None, scales: Sequence[TensorView]) -> TensorView:
    name, fusion, known = "grouped_matmul", a.fusion, a.fusion.tables[offsets]
    rows, groups = a.shape[0], b.shape[0]
    cut, count = offsets_of(offsets)
    if not (known.rises or known.lengths) or known.low is not ZERO or known.high is not rows or count is not groups + 1:
        wanted = f"{groups}, {rows}, lengths" if known.lengths else f"{groups + 1}, {rows}, rising"
        reason = f"{described(offsets)}, a table of {known}, does not divide {rows} rows into {groups} groups"
        raise shape_error(name, reason, f"declare it with tf.table(name, {wanted}=True)")
    if not prove(ge(groups, 1), fusion.facts()):
        raise shape_error(name, f"{described(b)} may have 0 matrices", "declare their number with tf.dim(..., min=1)")
    i, j, k = map(iteration_symbol, range(3))
    if not scales and (groups is ONE or rows is ONE):  # one matrix for all rows: the only one, or that of the only row
        only = ZERO if groups is ONE else RowTiles(cut, groups, rows, 1).group_of(ZERO)
        return matmul(a, view(b, "of_rows", b.shape[1:], (only, i, j)), dtype)
    if tile is None:
        few = not scales and isinstance(rows, Const) and isinstance(groups, Const) and rows.value <= FEW_ROWS * groups.value
        tile = FEW_ROWS if few else TILE
    if tile < 1:
        raise shape_error(name, f"a tile of {tile} rows", "use a positive number")
    size = tile
    if not prove(ge(rows, tile), fusion.facts()):
        if not isinstance(rows, Const) or rows.value < 1:
            raise shape_error(name, f"{described(a)} may have fewer than {tile} rows", f"declare their number with tf.dim(..., min={tile})")
        size = rows.value
    tiles = RowTiles(cut, groups, rows, size)
    factor = view(a, "row_tiles", (tiles.count, wrap(size), a.shape[1]), (tiles.start(i) + j, k))
    matrix = view(b, "of_tiles", (tiles.count, *b.shape[1:]), (tiles.group(i), j, k))
    if scales:
        scale_a, scale_b = scales
        if scale_a.ndim and (scale_a.ndim != 2 or scale_a.shape[0] is not rows):
            raise shape_error(name, f"{described(scale_a)} is not a scale of the rows of {described(a)}", "it is [], [M, 1] or [M, K/128]")
        if scale_b.ndim and (scale_b.ndim != 3 or scale_b.shape[0] is not groups):
            raise shape_error(name, f"{described(scale_b)} is not a scale of the matrices {described(b)}", "it is [], or [G, ...]: one for each matrix")
        if scale_a.ndim:
            scale_a = view(scale_a, "row_tiles", (tiles.count, wrap(size), scale_a.shape[1]), (tiles.start(i) + j, k))
        if scale_b.ndim:
            scale_b = view(scale_b, "of_tiles", (tiles.count, *scale_b.shape[1:]), (tiles.group(i), j, k))
        product = scaled_product(name, factor, matrix, scale_a, scale_b, float32 if dtype is None else dtype)
    else:
        product = matmul(factor, matrix, dtype)
    return view(product, "rows_of_tiles", (rows, b.shape[2]), (tiles.tile(i), tiles.place(i), j))
