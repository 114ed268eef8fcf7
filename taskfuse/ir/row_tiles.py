"""Tiles of ragged rows: groups of consecutive rows, cut into tiles that begin at the first row of each group.

Offsets ``t`` of G groups rise from 0 to M rows. With tiles of d rows, ``t[g]//d`` rises from 0 to ``Q = M//d``. Group g has ``t[g + 1]//d - t[g]//d`` whole
tiles: those numbered ``t[g]//d`` up to ``t[g + 1]//d``, so a search in the offsets finds the group of a tile
(:class:`taskfuse.ir.scalar.UpperBound`). The rest of its rows, less than a tile and possibly none, is tile ``Q + g``. So the tiles of
all groups are numbered 0 to Q + G - 1, whatever the offsets are, and only the last G may be empty.

The maps in both directions stay in bounds for any offsets, so no promise of a caller decides whether an access leaves its tensor.

A tile near the end of the rows begins before its first own row so that it lies within the M rows: it contains rows that belong to other tiles, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.scalar import Expr, Sym, and_, element, le, lt, maximum, minimum, select, upper_bound


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
    def whole(self) -> Expr:
        """Q: the number of the first rest tile."""
        return self.rows // self.size

    @property
    def count(self) -> Expr:
        """The number of tile numbers."""
        return self.whole + self.groups

    def offset(self, group: Expr) -> Expr:
        """The first row of a group; for the number of groups, the number of rows."""
        return element(self.offsets, group, self.groups + 1, 0, self.rows)

    def number(self, group: Expr) -> Expr:
        """The number of the first whole tile of a group; for the number of groups, Q."""
        return self.offset(group) // self.size

    def group(self, tile: Expr) -> Expr:
        """The group of a tile: for whole tiles, the result of the search; the rest tile Q + g belongs to group g."""
        found = upper_bound(self.offsets, self.groups + 1, 0, self.rows, tile, divisor=self.size)
        behind = tile - self.whole
        return minimum(found, maximum(0, behind, behind * -self.groups))  # of a whole tile, G or more

    def first(self, tile: Expr) -> Expr:
        """The first row that belongs to a tile."""
        group = self.group(tile)
        return minimum(tile, self.number(group + 1)) * self.size + self.offset(group) % self.size

    def end(self, tile: Expr) -> Expr:
        """One past the last row of a tile: at most :meth:`first` if it is empty."""
        return minimum(self.first(tile) + self.size, self.offset(self.group(tile) + 1))

    def start(self, tile: Expr) -> Expr:
        """The first row in the box of a tile."""
        return self._held(self.first(tile))

    def tile(self, row: Expr) -> Expr:
        """The tile that a row belongs to; in range whatever the offsets are."""
        group = self.group_of(row)
        counted = self.number(group) + (row - self.offset(group)) // self.size
        return maximum(0, minimum(select(lt(counted, self.number(group + 1)), counted, self.whole + group), self.count - 1))

    def place(self, row: Expr) -> Expr:
        """The position of a row in its tile; in range whatever the offsets are."""
        begin = self.offset(self.group_of(row))
        return maximum(0, minimum(row - self._held(begin + (row - begin) // self.size * self.size), self.size - 1))

    def group_of(self, row: Expr) -> Expr:
        """The group that a row belongs to."""
        return upper_bound(self.offsets, self.groups + 1, 0, self.rows, row)

    def belongs(self, row: Expr, tile: Expr) -> Expr:
        """Whether a row belongs to a tile."""
        return and_(le(self.first(tile), row), lt(row, self.end(tile)))

    def _held(self, first: Expr) -> Expr:
        return minimum(first, self.rows - self.size)
