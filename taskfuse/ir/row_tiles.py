"""Tiles of ragged rows: groups of rows that lie one after the other, cut into tiles that begin at the first row of each group.

Offsets ``t`` of G groups rise from 0 to M rows. With tiles of d rows, group g has the tiles w from ``t[g]//d + g`` on, as many as it needs: it has
``t[g + 1]//d + g + 1 - (t[g]//d + g)`` numbers for them, which is what it needs, or one more. So the tiles of all groups have the numbers 0 to
M//d + G - 1, whatever the offsets are, and the group of a number is found in the offsets alone (:class:`taskfuse.ir.scalar.UpperBound`).

Maps in both directions stay inside for any offsets, so that no promise of a caller decides whether an access leaves its tensor.

A tile near the end of the rows begins so far in front of its first row that it lies within the M rows: it holds rows that belong to others, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.scalar import Expr, Sym, and_, element, le, lt, maximum, minimum, upper_bound


@dataclass(frozen=True, slots=True)
class RowTiles:
    """The tiles of ragged rows.

    Attributes:
        offsets: the table's name.
        groups: G.
        rows: M.
        size: rows of a tile, at most M.
    """

    offsets: Sym
    groups: Expr
    rows: Expr
    size: int

    @property
    def count(self) -> Expr:
        """How many numbers tiles have."""
        return self.rows // self.size + self.groups

    def offset(self, group: Expr) -> Expr:
        """The first row of a group; for the number of groups, the number of rows."""
        return element(self.offsets, group, self.groups + 1, 0, self.rows)

    def number(self, group: Expr) -> Expr:
        """The number of the first tile of a group."""
        return self.offset(group) // self.size + group

    def group(self, tile: Expr) -> Expr:
        """The group of a tile."""
        return upper_bound(self.offsets, self.groups + 1, 0, self.rows, tile, divisor=self.size, step=1)

    def first(self, tile: Expr) -> Expr:
        """The first row that belongs to a tile."""
        group = self.group(tile)
        return (tile - group) * self.size + self.offset(group) % self.size

    def end(self, tile: Expr) -> Expr:
        """One past the last row of a tile: no more than :meth:`first` if it has none."""
        return minimum(self.first(tile) + self.size, self.offset(self.group(tile) + 1))

    def start(self, tile: Expr) -> Expr:
        """The first row that a tile holds."""
        return self._held(self.first(tile))

    def tile(self, row: Expr) -> Expr:
        """The tile that a row belongs to; some tile whatever the offsets are."""
        group = self.group_of(row)
        return maximum(0, minimum(self.number(group) + (row - self.offset(group)) // self.size, self.count - 1))

    def place(self, row: Expr) -> Expr:
        """The place of a row in the tile that it belongs to; some place whatever the offsets are."""
        begin = self.offset(self.group_of(row))
        return maximum(0, minimum(row - self._held(begin + (row - begin) // self.size * self.size), self.size - 1))

    def group_of(self, row: Expr) -> Expr:
        """The group that a row belongs to."""
        return upper_bound(self.offsets, self.groups + 1, 0, self.rows, row)

    def belongs(self, row: Expr, tile: Expr) -> Expr:
        """Whether a row belongs to a tile."""
        return and_(le(self.first(tile), row), lt(row, self.end(tile)))

    def _held(self, first: Expr) -> Expr:
        return maximum(0, minimum(first, self.rows - self.size))
