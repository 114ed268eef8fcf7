"""Shares of the sums of tiles: which steps of k of which tile an item of work adds up, where blocks share tiles.

Tiles stand in *lines*, one tile after the other, each with its steps of k. Blocks cut a line into shares of equally many steps, so a share begins and ends
anywhere in a tile, and may hold parts of several tiles: the *items* of its block. One line of all tiles is stream-K (Osama et al., "Stream-K", PPoPP 2023),
one line for each tile is split-K.

**Every step of a tile belongs to one item of it.** Let a line have g tiles of s steps, and shares p steps. Step k of tile u of the line is number
``x = u*s + k`` of its steps, and belongs to block ``r = x//p`` of the line, since shares are the steps ``r*p`` to ``r*p + p``. Item e of a block is the e-th
tile from ``r*p//s`` on, from step ``max(r*p - u*s, 0)`` to ``min((r + 1)*p - u*s, s)``; these are the steps k with ``r*p <= x < (r + 1)*p`` of tile u. So
different blocks have different steps, an item of a block is of another tile than its other items, and tile u is item ``u - r*p//s`` of each block r from
``u*s//p``, which has its first step, on, while ``r*p < (u + 1)*s``. ∎
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.scalar import ZERO, Expr, IntLike, evaluate, lt, maximum, minimum, wrap


@dataclass(frozen=True, slots=True)
class Shares:
    """Items of work that share tiles.

    Attributes:
        tiles: of the result.
        steps: of k, of each tile.
        line: tiles of a line; it divides ``tiles``.
        share: steps of a block.
    """

    tiles: int
    steps: int
    line: int
    share: int

    def __post_init__(self) -> None:
        if min(self.tiles, self.steps, self.line, self.share) < 1 or self.tiles % self.line:
            raise ValueError(f"{self.tiles} tiles of {self.steps} steps in lines of {self.line}, shares of {self.share}")

    @property
    def of_line(self) -> int:
        """Blocks of a line."""
        return -(-self.line * self.steps // self.share)

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return self.tiles // self.line * self.of_line

    @property
    def items(self) -> int:
        """The most items of a block."""
        last = self.line * self.steps - 1
        return max(min((r + 1) * self.share - 1, last) // self.steps - r * self.share // self.steps + 1 for r in range(self.of_line))

    @property
    def longest(self) -> int:
        """The most steps of an item."""
        return min(self.share, self.steps)

    @property
    def parts(self) -> int:
        """The most items of a tile."""
        return max(((u + 1) * self.steps - 1) // self.share - u * self.steps // self.share + 1 for u in range(self.line))

    # -- of an item -------------------------------------------------------------------------------------------------------------------

    def tile(self, block: IntLike, item: IntLike) -> Expr:
        """The tile of an item; no tile of the line where :meth:`end` is no more than :meth:`first`."""
        line, block = self._in_line(wrap(block))
        return line * self.line + self._place(block, wrap(item))

    def first(self, block: IntLike, item: IntLike) -> Expr:
        """The first step of an item."""
        _, block = self._in_line(wrap(block))
        return maximum(block * self.share - self._place(block, wrap(item)) * self.steps, 0)

    def end(self, block: IntLike, item: IntLike) -> Expr:
        """One past its last step."""
        _, block = self._in_line(wrap(block))
        before = self._place(block, wrap(item)) * self.steps
        return minimum((block + 1) * self.share - before, self.line * self.steps - before, self.steps)

    def _in_line(self, block: Expr) -> tuple[Expr, Expr]:
        """The line of a block, and its number there."""
        return (ZERO, block) if self.line == self.tiles else (block // self.of_line, block % self.of_line)

    def _place(self, block: Expr, item: Expr) -> Expr:
        """The tile in its line, of an item of a block of that line."""
        return block * self.share // self.steps + item

    def of_block(self, block: int) -> list[tuple[int, int, int]]:
        """The items of a block, in its order: tile, first step, and one past the last step."""
        found = [tuple(int(evaluate(e(block, item), {})) for e in (self.tile, self.first, self.end)) for item in range(self.items)]
        return [(tile, first, end) for tile, first, end in found if end > first]

    def explain(self) -> str:
        """A description of the shares."""
        lines = [f"{self.tiles} tiles of {self.steps} steps on {self.blocks} blocks: {self.share} steps of a block, up to {self.parts} blocks of a tile"]
        for block in range(self.blocks):
            items = ", ".join(f"{first}..{end - 1} of tile {tile}" for tile, first, end in self.of_block(block))
            lines.append(f"block {block}: steps {items}")
        return "\n".join(lines)

    # -- of a tile --------------------------------------------------------------------------------------------------------------------

    def item_of(self, tile: IntLike, part: IntLike) -> tuple[Expr, Expr]:
        """The block and the item with a given part of a tile, in the order of k."""
        line, place = self._tile_in_line(wrap(tile))
        block = place * self.steps // self.share + part
        return line * self.of_line + block, place - block * self.share // self.steps

    def has_part(self, tile: IntLike, part: IntLike) -> Expr:
        """Whether a tile has a part with this number."""
        _, place = self._tile_in_line(wrap(tile))
        return lt((place * self.steps // self.share + part) * self.share, (place + 1) * self.steps)

    def _tile_in_line(self, tile: Expr) -> tuple[Expr, Expr]:
        """The line of a tile, and its place there."""
        return (ZERO, tile) if self.line == self.tiles else (tile // self.line, tile % self.line)
