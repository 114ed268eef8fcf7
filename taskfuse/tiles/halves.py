"""Tiles of a square result, one half first, for ``tv.rasterize``: if only one triangle has work, blocks that take items round-robin share it evenly.

CUTLASS's grouped Rank2K scheduler numbers the tiles of a triangle row by row, and takes a square root to find the row of a number
(:func:`taskfuse.tiles.triangle`). Here the triangle is folded instead: row i of t rows has i + 1 tiles, so the last row and the first one together have as many
as the second to last and the second one. Such pairs are the rows of a rectangle, in which a number gives row and column as quotient and remainder: exact
integers for any number, constant or not, without a root.

If tiles are not square, ``r`` of them side by side, or one above the other, form a square macro tile, and macro tiles form the triangle. A grid that is
not a multiple of them is padded: numbers of tiles outside it are items without a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from taskfuse.ir.axes import WORK
from taskfuse.ir.scalar import Expr, lt, select, sym
from taskfuse.ir.signatures import checked_first
from taskfuse.tiles.orders import unravel
from taskfuse.tiles.triangles import Half, ratio


@dataclass(frozen=True, slots=True)
class Halves:
    """The macro tiles of one triangle, its diagonal among them, then those of the other.

    Attributes:
        first: the half that comes first.
        rows: tiles of a macro tile one above the other.
        columns: tiles of a macro tile side by side. One of the two is 1.
    """

    first: Half
    rows: int = 1
    columns: int = 1

    def items(self, extents: Sequence[Expr]) -> Expr:
        """The number of items, including those without a tile."""
        *batch, rows, columns = extents
        return prod(batch, start=self._in_one(rows, columns))

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``i0``: batch axes outermost, then rows and columns of tiles.

        Raises:
            ValueError: there are fewer than two axes.
        """
        if len(extents) < 2:
            raise ValueError(f"rows and columns of tiles are two axes, not {len(extents)}")
        *batch, rows, columns = extents
        *leading, work = unravel(sym(WORK), [*batch, self._in_one(rows, columns)]) if batch else (sym(WORK),)
        each = self.rows * self.columns
        tile, place, side = work // each, work % each, self._side(rows, columns)
        in_first = side * (side + 1) // 2
        row, column = _folded(tile, side)
        less, more = _folded(tile - in_first, side - 1)  # mirrored, and without a diagonal
        is_first = lt(tile, in_first)
        row, column = select(is_first, row, more), select(is_first, column, less + 1)
        if self.first is Half.UPPER:
            row, column = column, row
        return (*leading, row * self.rows + (place if self.rows > 1 else 0), column * self.columns + (place if self.columns > 1 else 0))

    def _side(self, rows: Expr, columns: Expr) -> Expr:
        """Rows of macro tiles, and as many columns."""
        return columns if self.rows > 1 else rows

    def _in_one(self, rows: Expr, columns: Expr) -> Expr:
        """Numbers of the tiles of one matrix."""
        side = self._side(rows, columns)
        return side * side * (self.rows * self.columns)


def _folded(number: Expr, side: Expr) -> tuple[Expr, Expr]:
    """Row and column of a tile of the lower triangle of ``side`` rows."""
    odd = side % 2
    width = side + 1 - odd  # of the last row and the first one; of an odd number of rows, the last one alone is as long
    pair, place = number // width, number % width
    longer = side - pair
    in_longer = lt(place, longer)
    return select(in_longer, longer - 1, pair - odd), select(in_longer, place, place - longer)


@checked_first
def halves(first: Half = Half.LOWER, tile: tuple[int, int] = (1, 1)) -> Halves:
    """The tiles of one triangle of a square result first, then those of the other.

    Args:
        first: the half that comes first: the one with work.
        tile: rows and columns of elements of a tile; one divides the other. Only their ratio counts.

    Raises:
        ValueError: neither extent of a tile divides the other.
    """
    macro = ratio(tile)
    return Halves(first, rows=macro if tile[0] < tile[1] else 1, columns=macro if tile[0] > tile[1] else 1)
