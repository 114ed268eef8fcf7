"""Tiles of ragged rows: a product of them stored tile by tile; and for cost models, how many tiles with rows the blocks of a persistent grid get.

Numbers of tiles do not depend on the offsets (:mod:`taskfuse.ir.row_tiles`), so some of them have no rows, and a block passes over these. Which ones is known
when the offsets are; the model counts those of groups of equal size. Of 32 groups of 256 rows every third number has no rows: a block whose numbers lie a
multiple of three apart has half as many tiles again as the mean, or none.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import ceil

import numpy as np

from taskfuse.ir.expr import Pointwise, Read, View
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import resolve
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.scatter import ragged_rows, rows_of
from taskfuse.schedule.through_view import is_whole, own_index
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script


@dataclass(frozen=True, slots=True)
class RaggedTiles:
    """The rows of a product, with numbers for their extents.

    Attributes:
        groups: of rows.
        rows: of all groups.
        size: rows of a tile.
    """

    groups: int
    rows: int
    size: int

    @property
    def used(self) -> int:
        """Tiles that have rows, if all groups have as many."""
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
        per_group = self.rows // self.size / self.groups + 1
        return min(self.groups, ceil(tiles / per_group))


def find(fusion: Fusion, sizes: Sizes) -> RaggedTiles | None:
    """The tiles of a fusion's ragged rows in gather form; ``None`` if it has none."""
    for tv in ragged_rows(fusion):
        expr = fusion.definition(tv)
        tiles = rows_of(expr.operand, tv) if isinstance(expr, View) else None
        assert tiles is not None
        return RaggedTiles(sizes(tiles.groups), sizes(tiles.rows), tiles.size)
    return None


def stored_by_tiles(fusion: Fusion) -> Fusion:
    """A copy whose ragged rows are stored tile by tile."""
    copy = copy_fusion(fusion)[0]
    store_by_tiles(Script(copy))
    return copy


def store_by_tiles(script: Script) -> None:
    """Store ragged rows tile by tile, and read what belongs to them at the axes of tiles."""
    fusion = script.fusion
    script.comment("ragged rows are stored tile by tile")
    for tv in ragged_rows(fusion):
        script.scatter(tv)
    for expr in (e for e in fusion.exprs() if isinstance(e, Pointwise)):
        for k, operand in enumerate(expr.operands):
            read = resolve(fusion, operand) if isinstance(operand, Read) else None
            if read is not None and read.tensor.is_input and not is_whole(expr, read, own_index(fusion, expr, read)):
                script.through_view(expr.output, k)


@lru_cache(maxsize=64)
def _used(tiles: RaggedTiles) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """For each number of a tile, whether it has rows."""
    offsets = np.arange(tiles.groups + 1) * tiles.rows // tiles.groups
    found = np.zeros(tiles.rows // tiles.size + tiles.groups, np.bool_)
    for g, (start, end) in enumerate(pairwise(offsets)):
        first = start // tiles.size + g
        found[first : first + ceil((end - start) / tiles.size)] = True
    return found


@lru_cache(maxsize=1024)
def _most(tiles: RaggedTiles, height: int, columns: int, group: int, blocks: int) -> int:
    used = np.repeat(_used(tiles), height)
    work = np.arange(len(used) * columns)
    first = work // (group * columns) * group
    row = first + work % (group * columns) % np.minimum(group, len(used) - first)
    return int(np.bincount(work[used[row]] % blocks, minlength=blocks).max())
