"""Tiles of a square result without readers on one side of a diagonal: which tiles multiply, and how many of them each block gets.

Loops over the terms of a tile without readers do not run (:mod:`taskfuse.lowering.neutral_tails`), so such a tile costs only its epilogue. If blocks take
all tiles round-robin, they get unequal numbers of the others, unless these come first (``tf.tiles.halves``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np

from taskfuse.ir.axes import WORK
from taskfuse.ir.contraction import MatrixAxes
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Compare, CompareOp, Const, conjuncts, const, evaluate, simplify, sym
from taskfuse.lowering.neutral_tails import condition_of_reads
from taskfuse.schedulers.contraction import MatrixProduct
from taskfuse.schedulers.epilogue import logical_places
from taskfuse.tiles import Half, grouped, halves


class DealtTiles(NamedTuple):
    """The distribution of the tiles of a result to blocks.

    Attributes:
        used: tiles that multiply.
        most: the most of them that a block gets.
        others: the most tiles that do not multiply that a block gets.
    """

    used: int
    most: int
    others: int


@dataclass(frozen=True, slots=True)
class HalfTiles:
    """A square result of which one triangle is read.

    Attributes:
        half: the triangle.
        offset: of its diagonal: elements of a lower triangle have columns up to their row plus this, those of an upper one rows up to their column plus this.
        side: rows, and columns.
        batch: results.
    """

    half: Half
    offset: int
    side: int
    batch: int = 1

    def dealt(self, tile: tuple[int, int], group: int, blocks: int, first: Half | None) -> DealtTiles:
        """How the tiles are dealt in turns.

        Args:
            tile: rows and columns of a tile.
            group: rows of tiles in a group.
            blocks: of the grid.
            first: the triangle whose tiles come first, in place of groups.
        """
        return _dealt(self, tile, group, blocks, first)


def find(fusion: Fusion, product: MatrixProduct, batch: int) -> HalfTiles | None:
    """The triangle of a product that is read; ``None`` if all of it is, or nothing, it is not square, or its extents are not known."""
    if product.blocks is not None or product.reductions:
        return None
    found = {_of_one(fusion, axes, batch) for axes in (product.axes, *(other.axes for other in product.beside))}
    return found.pop() if len(found) == 1 else None


def _of_one(fusion: Fusion, axes: MatrixAxes, batch: int) -> HalfTiles | None:
    """The triangle of one contraction."""
    rows, columns = axes.extent(axes.m), axes.extent(axes.n)
    condition = condition_of_reads(fusion, axes.result) if isinstance(rows, Const) and rows is columns else None
    if condition is None or not isinstance(rows, Const):
        return None
    places = logical_places(axes.result)
    row, column = (sym(f"i{places[p]}") for p in (axes.m, axes.n))
    for part in conjuncts(condition):
        if isinstance(part, Compare) and part.op in (CompareOp.LT, CompareOp.LE):
            room = part.b - part.a - (part.op is CompareOp.LT)
            for half, distance in ((Half.LOWER, row - column), (Half.UPPER, column - row)):
                offset = simplify(room - distance, fusion.facts())
                if isinstance(offset, Const) and -rows.value < offset.value < rows.value - 1:
                    return HalfTiles(half, offset.value, rows.value, batch)
    return None


@lru_cache(maxsize=1024)
def _dealt(tiles: HalfTiles, tile: tuple[int, int], group: int, blocks: int, first: Half | None) -> DealtTiles:
    rows, columns = (ceil(tiles.side / extent) for extent in tile)
    extents = const(tiles.batch), const(rows), const(columns)
    order = grouped(group) if first is None else halves(first, tile)
    count = tiles.batch * rows * columns if first is None else int(evaluate(halves(first, tile).items(extents), {}))
    work = np.arange(count)
    _, row, column = (np.broadcast_to(evaluate(e, {WORK: work}), work.shape) for e in order.maps(extents))
    exists = (row < rows) & (column < columns)
    lower, ends = (row, column) if tiles.half is Half.UPPER else (column, row)  # where a tile begins along one axis, and ends along the other
    begin, end = (tile[0], tile[1]) if tiles.half is Half.UPPER else (tile[1], tile[0])
    is_used = exists & (lower * begin - np.minimum((ends + 1) * end, tiles.side) + 1 <= tiles.offset)
    used, others = (np.bincount(work[which] % blocks, minlength=blocks) for which in (is_used, exists & ~is_used))
    return DealtTiles(int(is_used.sum()), int(used.max()), int(others.max()))
