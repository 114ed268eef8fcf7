"""Orders in which the tiles of a result are worked on: objects for ``tv.rasterize``, made of plain scalar expressions.

Row by row, the last tile axis runs fastest. In the swizzle for the second-level cache tiles that run at the same time share rows and columns of the
operands: the blocks of a GPU work on consecutive tiles. In row-major order those of one wave read one or two rows of tiles of the left operand and
all of the right one; in groups of g rows they read g rows of the one and blocks/g columns of the other. With the sides of the group about
equal that is least. DeepGEMM orders its tiles so (``Scheduler::get_swizzled_block_idx``, without multicast).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.axes import WORK
from taskfuse.ir.scalar import Expr, minimum, sym

__all__ = ["Raster", "Swizzle", "raster", "swizzle"]


@dataclass(frozen=True, slots=True)
class Raster:
    """The row-major order of any number of tile axes."""

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``w``."""
        return unravel(sym(WORK), extents)


def raster() -> Raster:
    """Tiles in row-major order."""
    return Raster()


def unravel(work: Expr, extents: Sequence[Expr]) -> tuple[Expr, ...]:
    """The row-major indices of element ``work`` of an array of ``extents``; that of the first axis is not reduced by its extent."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.append(work % extent)
        work = work // extent
    return (work, *reversed(found)) if extents else ()


@dataclass(frozen=True, slots=True)
class Swizzle:
    """Groups of ``group`` rows of tiles, one after another; in a group column by column. The last group may have fewer rows.

    Attributes:
        group: rows of tiles in a group.
    """

    group: int

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``w``: batch axes outermost, then rows and columns of tiles.

        Raises:
            ValueError: there are fewer than two axes.
        """
        if len(extents) < 2:
            raise ValueError(f"rows and columns of tiles are two axes, not {len(extents)}")
        *batch, rows, columns = extents
        work, leading = sym(WORK), ()
        if batch:
            *leading, work = unravel(work, [*batch, rows * columns])
        in_group = self.group * columns
        first = work // in_group * self.group
        height = minimum(self.group, rows - first)
        return (*leading, first + work % in_group % height, work % in_group // height)


def swizzle(group: int = 8) -> Swizzle:
    """Groups of ``group`` rows of tiles, batch axes outermost.

    Args:
        group: rows of tiles in a group; blocks * tile_m / tile_n under the root, or so.

    Raises:
        ValueError: ``group`` is less than 1.
    """
    if group < 1:
        raise ValueError(f"a group has at least 1 row of tiles, not {group}")
    return Swizzle(group)
