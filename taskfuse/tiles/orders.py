"""Orders of the tiles of a result, for ``tv.rasterize``, as scalar expressions.

Consecutive tiles run on the blocks of the GPU at the same time. In row-major order one wave reads one or two rows of tiles of the left operand and the
whole right operand. In the grouped order (Triton's ``GROUP_SIZE_M``, CUTLASS's threadblock swizzle) it reads g rows of the left operand and blocks/g
columns of the right one, which is least if the two sides of the group are about equal; the L2 cache serves the rest. DeepGEMM uses this order
(``Scheduler::get_swizzled_block_idx``, without multicast).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from taskfuse.ir.axes import WORK, claimed_index
from taskfuse.ir.scalar import Expr, IntLike, minimum, sym, wrap
from taskfuse.ir.signatures import checked_first


@dataclass(frozen=True, slots=True)
class Raster:
    """The row-major order of any number of tile axes."""

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``i0``."""
        return unravel(sym(WORK), extents)


@checked_first
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
class Grouped:
    """Groups of ``group`` rows of tiles, one after another; in a group column by column. The last group may have fewer rows.

    Attributes:
        group: rows of tiles in a group.
        across: the rows of all matrices of the batch form one sequence.
        layers: the first groups of all matrices come first, then the second ones, and so on.
    """

    group: int
    across: bool = False
    layers: bool = False

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``i0``: batch axes outermost, then rows and columns of tiles.

        Raises:
            ValueError: there are fewer than two axes.
        """
        if len(extents) < 2:
            raise ValueError(f"rows and columns of tiles are two axes, not {len(extents)}")
        *batch, rows, columns = extents
        work, leading = sym(WORK), ()
        if self.across:
            row, column = Grouped(self.group).maps((prod(batch, start=rows), columns))
            return (*unravel(row, [*batch, rows]), column)
        if self.layers and batch:
            layer = self.group * columns * prod(batch)
            first = work // layer * self.group
            height = minimum(self.group, rows - first)
            *leading, work = unravel(work % layer, [*batch, height * columns])
            return (*leading, first + work % height, work // height)
        if batch:
            *leading, work = unravel(work, [*batch, rows * columns])
        in_group = self.group * columns
        first = work // in_group * self.group
        height = minimum(self.group, rows - first)
        return (*leading, first + work % in_group % height, work % in_group // height)


@checked_first
def grouped(group: int = 8, *, across: bool = False, layers: bool = False) -> Grouped:
    """Groups of ``group`` rows of tiles, batch axes outermost.

    Args:
        group: rows of tiles in a group; a wave reads the fewest bytes at about the square root of blocks * tile_n / tile_m.
        across: let groups span matrices of the batch that share their right operand.
        layers: the first groups of all matrices come first: if only the first rows of each have work, blocks that take tiles in turns share it evenly.

    Raises:
        ValueError: ``group`` is less than 1, or it is both ``across`` and in ``layers``.
    """
    if group < 1:
        raise ValueError(f"a group has at least 1 row of tiles, not {group}")
    if across and layers:
        raise ValueError("groups that span matrices are not of one matrix after another: use across or layers")
    return Grouped(group, across, layers)


@dataclass(frozen=True, slots=True)
class Rotated:
    """One axis, from the index ``first`` on, and around its end to the one before.

    Attributes:
        first: the index at which the order begins.
    """

    first: Expr

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along the axis, from the work index ``i0``.

        Raises:
            ValueError: there is not exactly one axis.
        """
        if len(extents) != 1:
            raise ValueError(f"a rotation takes one axis, not {len(extents)}")
        return ((sym(WORK) + self.first) % extents[0],)


@checked_first
def rotated(first: IntLike) -> Rotated:
    """One axis in its order, but beginning at ``first``.

    For the axis of blocks, this continues a round-robin assignment: if the previous lists gave ``start`` items to ``blocks`` blocks, ``rotated(-start)`` gives
    the first item to the next block.
    """
    return Rotated(wrap(first))


@dataclass(frozen=True, slots=True)
class Descending:
    """One axis, from its last index to the first."""

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along the axis, from the work index ``i0``.

        Raises:
            ValueError: there is not exactly one axis.
        """
        if len(extents) != 1:
            raise ValueError(f"a descending order takes one axis, not {len(extents)}")
        return (extents[0] - 1 - sym(WORK),)


@checked_first
def descending() -> Descending:
    """One axis from its end: if later blocks take longer, as in causal attention, the longest start first.

    The GPU starts blocks roughly in order. The last ones to start are then short, and all multiprocessors end at about the same time.
    """
    return Descending()


@dataclass(frozen=True, slots=True)
class Dynamic:
    """One axis, whose indices blocks claim one by one."""

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along the axis: the claimed one.

        Raises:
            ValueError: there is not exactly one axis.
        """
        if len(extents) != 1:
            raise ValueError(f"blocks claim indices of one axis, not {len(extents)}")
        return (claimed_index(extents[0]),)


@checked_first
def dynamic() -> Dynamic:
    """The axis of blocks of a work axis, ``tv.split(axis, blocks)``: a block takes the next item of work whenever it has finished one.

    This balances items that differ in time, without an estimate by the host. A block's items are in the order of the work axis.
    """
    return Dynamic()
