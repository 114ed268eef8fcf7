"""Tiles of ragged rows: a product of them stored tile by tile; and for cost models, how many tiles with rows the blocks of a persistent grid get.

Numbers of tiles do not depend on the offsets (:mod:`taskfuse.ir.row_tiles`): after the whole tiles of all groups come their remainders, some of which are
empty, and a block skips these. Which ones depends on the offsets; the model assumes groups of equal size.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np

from taskfuse.ir.expr import Pointwise, Read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, lookups_of
from taskfuse.ir.storage import resolve, storage_reads
from taskfuse.ir.types import PlaceSearch
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.scatter import held_by_tiles, ragged_rows, rows_of
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script, Spelled

BALLOT = Spelled(PlaceSearch.BALLOT, "tf.PlaceSearch.BALLOT")
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]
Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class RaggedTiles:
    """The rows of a product, with numbers for their extents.

    Attributes:
        groups: of rows.
        rows: of all groups.
        size: rows of a tile.
        is_scattered: each tile stores its own rows, and a block skips tiles without rows. Otherwise every tile is stored as a whole.
    """

    groups: int
    rows: int
    size: int
    is_scattered: bool = True

    @property
    def used(self) -> int:
        """Tiles that are computed, if all groups have equally many rows."""
        return int(_used(self).sum())

    def most(self, height: int, columns: int, group: int, blocks: int) -> int:
        """The most tiles with rows that one block gets of tiles in groups of rows (``tf.tiles.grouped`` of all matrices together).

        Args:
            height: parts that each tile is cut into by rows.
            columns: columns of tiles.
            group: rows of tiles in a group.
            blocks: of the grid; each takes every ``blocks``-th tile.
        """
        return _most(self, height, columns, group, blocks)

    def matrices(self, tiles: int) -> int:
        """Matrices that this many consecutive tiles are multiplied with."""
        return min(self.groups, ceil(tiles / max(1.0, self.rows / self.size / self.groups)))

    @property
    def reads(self) -> int:
        """The number of reads of matrices: once for the whole tiles of a group, once more for its remainder."""
        whole, rests = _parts(self)
        return int((whole > 0).sum() + rests.sum())


def find(fusion: Fusion, sizes: Sizes) -> RaggedTiles | None:
    """The tiles of a fusion's ragged rows in gather form, or those that its results are; ``None`` if it has none."""
    for kind in (rows_of, held_by_tiles):
        tiles = next((tiles for e in fusion.exprs() if (tiles := kind(e)) is not None), None)
        if tiles is not None:
            return RaggedTiles(sizes(tiles.groups), sizes(tiles.rows), tiles.size, is_scattered=kind is rows_of)
    return None


def stored_by_tiles(fusion: Fusion) -> Fusion:
    """A copy whose ragged rows are stored tile by tile."""
    copy = copy_fusion(fusion)[0]
    store_by_tiles(Script(copy))
    return copy


def as_rows(fusion: Fusion) -> Script | None:
    """A copy in which the readers of ragged rows read a tensor of rows, not tiles; ``None`` if there are none.

    So kernels pass rows to each other: a kernel whose result is tiles would store all of them, even empty ones, and the next kernel would search for rows.
    """
    script = Script(copy_fusion(fusion)[0])
    for tv in ragged_rows(script.fusion):
        if tv.uses:
            script.new(tv, "cache_after")
    return script if script.lines else None


def store_by_tiles(script: Script) -> None:
    """Store ragged rows tile by tile, and read what belongs to them at the axes of tiles."""
    fusion = script.fusion
    script.comment("ragged rows are stored tile by tile")
    for tv in ragged_rows(fusion):
        if among(tv, ragged_rows(fusion)) and (tv.uses or tv.is_output):  # else what reads it read another one first, and then its tiles
            script.scatter(tv)
    for expr in (e for e in fusion.exprs() if isinstance(e, Pointwise)):
        for read in storage_reads(fusion, expr):  # what is made of other inputs is made at the places of tiles, too
            made = isinstance(fusion.definition(read.tensor), Pointwise) and read.valid is TRUE
            if made and not is_whole(expr, read, own_index(fusion, expr, read)) and not read.tensor.is_output:
                script.recompute(read.tensor, [expr.output])
    for expr in (e for e in fusion.exprs() if isinstance(e, Pointwise)):
        for k, operand in enumerate(expr.operands):
            read = resolve(fusion, operand) if isinstance(operand, Read) else None
            if read is not None and read.tensor.is_input and not is_whole(expr, read, own_index(fusion, expr, read)):
                script.through_view(expr.output, k)


def search_together(script: Script) -> None:
    """Let whole warps search the offsets of groups, 32 of them at once: threads that multiply search between two tiles, and wait for each read."""
    tables = script.fusion.tables
    held = {found.tensor.name for known in tables.values() if known.holds is not None for found in lookups_of(known.holds)}  # another table says what is found
    for tv, known in tables.items():
        if (known.rises or known.lengths) and known.search is PlaceSearch.BISECTION and tv.name not in held:
            script.on(tv).search_by(BALLOT)


def _parts(tiles: RaggedTiles) -> tuple[Numbers, Flags]:
    """The whole tiles of each group, and whether there is a rest behind them."""
    offsets = np.arange(tiles.groups + 1) * tiles.rows // tiles.groups
    whole = np.diff(offsets // tiles.size)
    return whole, np.diff(offsets) > whole * tiles.size


@lru_cache(maxsize=64)
def _used(tiles: RaggedTiles) -> Flags:
    """For each number of a tile, whether it is computed."""
    whole, rests = _parts(tiles)
    return np.concatenate([np.ones(whole.sum(), np.bool_), rests | (not tiles.is_scattered)])


@lru_cache(maxsize=1024)
def _most(tiles: RaggedTiles, height: int, columns: int, group: int, blocks: int) -> int:
    used = np.repeat(_used(tiles), height)
    work = np.arange(len(used) * columns)
    first = work // (group * columns) * group
    row = first + work % (group * columns) % np.minimum(group, len(used) - first)
    return int(np.bincount(work[used[row]] % blocks, minlength=blocks).max())
