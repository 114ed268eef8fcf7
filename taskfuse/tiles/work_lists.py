"""The tiles of several problems as one list, assigned to blocks round-robin: block b takes the items b, b + blocks, and so on.

This is the assignment of CUTLASS's grouped kernels. Problems stand one after another in the list; a block finds the problem of an item from the items at
which problems begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from taskfuse.errors import CallError, shown
from taskfuse.ir.signatures import checked_first
from taskfuse.location import caller
from taskfuse.tiles.triangles import Half, triangular

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Problem:
    """A matrix product of ``m`` x ``n`` sums of ``k`` products, ``batch`` times.

    Attributes:
        half: the triangle of a square result that is computed; ``None``: all of it.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    half: Half | None = None

    def __post_init__(self) -> None:
        if min(self.m, self.n, self.batch) < 1 or self.k < 0:
            raise ValueError(f"a problem of {self.batch} x {self.m} x {self.n} x {self.k}: rows, columns and batch must be positive")
        if self.half is not None and self.m != self.n:
            raise ValueError(f"a triangle of {self.m} x {self.n}: the result must be square")

    def __str__(self) -> str:
        return f"{f'{self.batch} x ' if self.batch > 1 else ''}{self.m}x{self.n}x{self.k}{f' {self.half.value}' if self.half else ''}"


class WorkItem(NamedTuple):
    """A tile: the index of its problem in the list, its batch, row and column."""

    problem: int
    batch: int
    row: int
    column: int


@checked_first
def sort_problems(problems: Sequence[Problem]) -> tuple[int, ...]:
    """The indices of problems in descending order of k, stably.

    Round-robin, a block then takes its longest tiles first, and the shortest ones fill the gaps.
    """
    return tuple(sorted(range(len(problems)), key=lambda g: -problems[g].k))


@dataclass(frozen=True)
class WorkList:
    """The tiles of a sequence of problems, and the blocks that walk them.

    Attributes:
        problems: in the order of the list.
        tile: rows and columns of a tile.
        blocks: of the grid.
    """

    problems: tuple[Problem, ...]
    tile: tuple[int, int] = (128, 128)
    blocks: int = 1

    def __post_init__(self) -> None:
        if not self.problems or self.blocks < 1 or min(self.tile) < 1:
            raise ValueError(f"a list of {len(self.problems)} problems in tiles of {self.tile} for {self.blocks} blocks")

    # -- the list -------------------------------------------------------------------------------------------------------------------

    def grid(self, g: int) -> tuple[int, int]:
        """Rows and columns of tiles of a problem."""
        return -(-self.problems[g].m // self.tile[0]), -(-self.problems[g].n // self.tile[1])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Items of each problem."""
        whole = [p.batch * self.grid(g)[0] * self.grid(g)[1] for g, p in enumerate(self.problems)]
        return tuple(n if p.half is None else len(self.tiles_of(g)) for g, (n, p) in enumerate(zip(whole, self.problems, strict=True)))

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The item at which each problem begins, and the number of all."""
        return tuple(int(s) for s in np.cumsum((0, *self.sizes)))

    @property
    def tiles(self) -> int:
        """Items of the list."""
        return self.starts[-1]

    def tiles_of(self, g: int) -> list[tuple[int, int, int]]:
        """Batch, row and column of the tiles of a problem, row by row."""
        p, (rows, columns) = self.problems[g], self.grid(g)
        if p.half is None:
            return [(b, i, j) for b in range(p.batch) for i in range(rows) for j in range(columns)]
        found = [at for at in triangular(p.m, self.tile, p.half) if at is not None]
        return [(b, *at) for b in range(p.batch) for at in found]

    def items(self) -> Iterator[WorkItem]:
        """The tiles, in order."""
        return (WorkItem(g, *at) for g in range(len(self.problems)) for at in self.tiles_of(g))

    @cached_property
    def _items(self) -> list[WorkItem]:
        return list(self.items())

    def of_block(self, block: int) -> list[WorkItem]:
        """The tiles that a block takes, in its order."""
        return self._items[block :: self.blocks]

    def blocks_of(self, g: int) -> Ints:
        """The block that takes each tile of a problem: [batch, row, column]; -1: no block does."""
        found = np.full((self.problems[g].batch, *self.grid(g)), -1, np.int64)
        for w, at in enumerate(self.tiles_of(g), self.starts[g]):
            found[at] = w % self.blocks
        return found

    def precomputed(self) -> Ints:
        """A table for kernels, [block, turn, 2]: the problem of each tile and the item at which the problem begins; -1 if a block has no tile left."""
        turns = -(-self.tiles // self.blocks)
        found = np.full((turns * self.blocks, 2), -1, np.int64)
        problem = np.repeat(np.arange(len(self.problems)), self.sizes)
        found[: self.tiles] = np.stack([problem, np.array(self.starts[:-1])[problem]], axis=1)
        return found.reshape(turns, self.blocks, 2).transpose(1, 0, 2).copy()

    def sorted(self) -> WorkList:
        """The same problems in descending order of k."""
        return replace(self, problems=tuple(self.problems[g] for g in sort_problems(self.problems)))

    # -- how even it is -------------------------------------------------------------------------------------------------------------

    @cached_property
    def counts(self) -> Ints:
        """Tiles of each problem that each block takes: [problem, block]."""
        blocks = np.arange(self.blocks)
        ends = np.array(self.starts)[:, None]
        before = (ends - blocks + self.blocks - 1) // self.blocks
        return np.diff(np.maximum(before, 0), axis=0)

    @property
    def depths(self) -> Ints:
        """The sum of k over the tiles of each block."""
        return np.array([p.k for p in self.problems]) @ self.counts

    @property
    def waves(self) -> int:
        """Tiles of the block that has most."""
        return -(-self.tiles // self.blocks)

    @property
    def imbalance(self) -> float:
        """The greatest sum of k of a block divided by the mean: the time relative to a perfect balance, without epilogues."""
        depths = self.depths
        return float(depths.max() / depths.mean()) if depths.any() else 1.0

    def explain(self) -> str:
        """The problems, and the distribution of the work."""
        lines = [f"problem{'':22}tiles  items        first block"]
        for g, p in enumerate(self.problems):
            lines.append(f"{g:2}  {p!s:24}{self.sizes[g]:6}  {f'{self.starts[g]}..{self.starts[g + 1] - 1}':11}  {self.starts[g] % self.blocks:11}")
        depths, tiles = self.depths, self.counts.sum(axis=0)
        what = f"{self.tiles} tiles of {self.tile[0]}x{self.tile[1]} on {self.blocks} blocks"
        lines.append(f"{what}: {self.waves} waves, {tiles.min()} to {tiles.max()} tiles of a block")
        lines.append(f"k of a block: {depths.min()} to {depths.max()}, mean {depths.mean():.1f}: imbalance {self.imbalance:.2f}")
        return "\n".join(lines)


@checked_first
def places(offsets: ArrayLike, tile: int, rows: int | None = None) -> NDArray[np.int32]:
    """The group of each tile of ``tile`` rows, in the order of :mod:`taskfuse.ir.row_tiles`: an element for each of ``rows//tile + G`` tiles.

    It is the input that ``search_by(tf.PlaceSearch.TABLE)`` declares, which replaces searches in kernels.

    Args:
        offsets: G + 1 positions that rise from 0 to the number of rows.
        tile: rows of a tile.
        rows: of all groups; by default the last position.

    Raises:
        CallError: ``offsets`` are not integers.
        ValueError: there are fewer than two groups, or ``tile`` is less than 1.
    """
    try:
        cut = np.asarray(offsets, np.int64)
    except (TypeError, ValueError):
        raise CallError(call="places", reason=f"offsets: {shown(offsets)} are not integers", help="give an array of positions", location=caller()) from None
    if cut.ndim != 1 or cut.size < 3 or tile < 1:
        raise ValueError(f"{cut.size} offsets and tiles of {tile} rows: give at least 3 offsets and 1 row")
    count = (int(cut[-1]) if rows is None else rows) // tile + cut.size - 1
    return np.searchsorted(cut[1:-1] // tile, np.arange(count), side="right").astype(np.int32)
