"""Stencils: elementwise functions that read one input at several places, some steps apart along an axis other than the last one.

Differences of neighbors, blurs, convolutions that are written as sums of slices read each element of their input several times, in different blocks. A thread
that computes a *tile* of neighbors along that axis loads what they read once (:meth:`~taskfuse.ir.tensor.TensorView.tile_shifts`), and what does not
depend on the axis, such as weights, once for all of them (:meth:`~taskfuse.ir.tensor.TensorView.drop_axes`).

    outputs     [others, tile block, column block: blocks | tile, column: threads | points of a tile, vector: unrolled]
    elements    [the same blocks and threads | elements of a tile, vector]: in registers
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import FirstValid, Literal, Pointwise
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.clamp_read import at_vectors
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.tile_shifts import Shift, Tiles, shift_of, tiles_of
from taskfuse.schedule.tile_windows import facts_of
from taskfuse.schedulers.elementwise import Leaf, leaf_of, vector_fits
from taskfuse.schedulers.instructions import cost, holds
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import LINE_BYTES, WARP

MOST_REGISTERS = 64
"""The most registers for the elements of a tile: several blocks share a multiprocessor."""
MOST_CODE = 2048
"""The most instructions of a thread, as costs count them, for all points of a tile: longer code misses the instruction cache."""
TILES = (16, 8, 4, 2)
"""Points of a tile."""


@dataclass(frozen=True, slots=True)
class Stencil:
    """Loads of one output that have elements in common.

    Attributes:
        axis: of the output, along which they are shifted.
        groups: loads of one input each, shifted along the axis alone; two or more.
        spans: by group, elements from the first to the last one that a point reads.
        step: elements from one point to the next.
    """

    axis: int
    groups: tuple[tuple[Leaf, ...], ...]
    spans: tuple[int, ...]
    step: int

    def reach(self, tile: int) -> int:
        """Elements that a tile of points reads, of all groups."""
        return sum((tile - 1) * self.step + span for span in self.spans)

    @property
    def reads(self) -> int:
        """Elements that one point reads, each for itself."""
        return sum(map(len, self.groups))


def find(fusion: Fusion, out: TensorView, leaves: Sequence[Leaf]) -> Stencil | None:
    """The stencil of an output, all of whose loads have its axes: along the axis where most loads are shared."""
    found = [s for k in range(out.ndim - 1) if (s := _along(fusion, out, leaves, k)) is not None]
    return max(found, key=lambda s: s.reads - len(s.groups), default=None)


def _along(fusion: Fusion, out: TensorView, leaves: Sequence[Leaf], k: int) -> Stencil | None:
    """The stencil along one axis: groups of loads whose shifts have the same step."""
    extents = [a.extent for a in out.root]
    groups: list[tuple[Shift, list[Leaf], list[int]]] = []
    steps = set[int]()
    for leaf in leaves:
        if len(leaf.tensor.root) != len(extents) or any(a.extent is not e for a, e in zip(leaf.tensor.root, extents, strict=True)):
            continue
        own = shift_of(fusion, leaf.tensor, k)
        if own is None:
            continue
        for first, members, distances in groups:
            apart = first.distance(own, extents, fusion)
            if apart is not None and isinstance(tiles_of(fusion, [members[0].tensor, leaf.tensor], k, 2), Tiles):
                members.append(leaf)
                distances.append(apart)
                break
        else:
            groups.append((own, [leaf], [0]))
        steps.add(own.step)
    several = [(tuple(members), max(distances) - min(distances) + 1) for _, members, distances in groups if len(members) > 1]
    if not several or len(steps) > 1:
        return None
    return Stencil(k, tuple(members for members, _ in several), tuple(span for _, span in several), steps.pop())


def tile_of(stencil: Stencil, leaves: Sequence[Leaf], out: TensorView, vector: int, extent: Sizes) -> int:
    """The points of a tile: as many as registers hold the elements of, no more than there are, and such that every multiprocessor has work; 1: none."""
    fusion = out.fusion
    size = max(leaf.tensor.dtype.itemsize for members in stencil.groups for leaf in members)
    grouped = {leaf.tensor for members in stencil.groups for leaf in members}
    beside = sum(leaf.tensor not in grouped and not _is_free(fusion, leaf, stencil.axis) for leaf in leaves)
    costs = sum(map(cost, needed(fusion)))
    busy = extent.target.sms * extent.target.busy_threads
    for tile in TILES:
        registers = (stencil.reach(tile) + tile * beside) * ceil(vector * size / 4)
        fits = registers <= MOST_REGISTERS and tile * vector * costs <= MOST_CODE
        is_filled = tile <= extent(out.shape[stencil.axis]) and extent.elements(out) >= busy * tile * vector
        if fits and is_filled and stencil.reach(tile) < tile * stencil.reads:
            return tile
    return 1


def lines(stencil: Stencil | None, leaves: Sequence[Leaf], out: TensorView, vector: int, tile: int, extent: Sizes) -> float:
    """Cycles of multiprocessors in which they look up the cache lines of all loads: each of a warp at a time, and each element of a vector that is none."""
    fusion, found = out.fusion, 0.0
    grouped = {leaf.tensor for members in stencil.groups for leaf in members} if stencil is not None and tile > 1 else set[TensorView]()
    for leaf in leaves:
        if leaf.tensor in grouped:
            continue
        tiles = tile if stencil is not None and _is_free(fusion, leaf, stencil.axis) else 1
        found += _line_share(fusion, leaf, vector, extent) * prod(extent(a.extent) for a in leaf.tensor.root) / tiles
    if stencil is not None and tile > 1:
        points = extent.elements(out)
        for members, span in zip(stencil.groups, stencil.spans, strict=True):
            found += _line_share(fusion, members[0], vector, extent) * points * ((tile - 1) * stencil.step + span) / tile
    return found


def _line_share(fusion: Fusion, leaf: Leaf, vector: int, extent: Sizes) -> float:
    """Lines of the cache for each element of a load; one that only some elements of a vector have, as in a stack, takes those."""
    last = iteration_symbol(len(leaf.tensor.root) - 1).free if leaf.tensor.root else frozenset[str]()
    if not any(last & e.free for read in leaf.reads for e in read.index):
        return 1 / (vector * WARP)
    if vector_fits(fusion, leaf, vector) or fits_if_clamped(fusion, leaf, vector):
        return leaf.tensor.dtype.itemsize / LINE_BYTES
    shares = [holds(read.valid, leaf.tensor, extent) if last & read.valid.free else 1.0 for read in leaf.reads]
    return leaf.tensor.dtype.itemsize * max(1.0, vector * sum(shares) / len(shares)) / LINE_BYTES


def _is_free(fusion: Fusion, leaf: Leaf, axis: int) -> bool:
    """Whether a load does not depend on an axis, but on the last one."""
    expr = fusion.definition(leaf.tensor)
    free = free_axes(fusion, expr) if isinstance(expr, Pointwise | FirstValid) and not leaf.tensor.is_output else ()
    return axis in free and len(leaf.tensor.root) - 1 not in free


def share(script: Script, stencil: Stencil, leaves: Sequence[Leaf], tile: int) -> tuple[list[TensorView], list[TensorView]]:
    """Load the elements of tiles once, and what does not depend on the axis without it. Returns the elements of each group, and all other loads."""
    fusion, shared, others = script.fusion, list[TensorView](), list[TensorView]()
    grouped = {leaf.tensor for members in stencil.groups for leaf in members}
    for members in stencil.groups:
        first, *more = (leaf.tensor for leaf in members)
        shared.append(script.new(first, "tile_shifts", more, stencil.axis, tile))
    for leaf in leaves:
        if leaf.tensor not in grouped:
            others.append(script.new(leaf.tensor, "drop_axes") if _is_free(fusion, leaf, stencil.axis) else leaf.tensor)
    return shared, others


def clamped(script: Script, tensors: Sequence[TensorView], vector: int) -> list[Leaf]:
    """The loads that are left if those that choose between a vector and a constant load first."""
    found: list[Leaf] = []
    for tv in tensors:
        leaf = leaf_of(script.fusion, tv)
        if vector > 1 and fits_if_clamped(script.fusion, leaf, vector):
            along = not leaf.reads[0].valid.free.isdisjoint(iteration_symbol(len(tv.root) - 1).free)
            leaf = leaf_of(script.fusion, script.new(tv, "clamp_read", *([vector] if along else [])))
        found.append(leaf)
    return found


def fits_if_clamped(fusion: Fusion, leaf: Leaf, vector: int) -> bool:
    """Whether a load chooses between vectors of an input, whole ones, and a constant."""
    match fusion.definition(leaf.tensor):
        case FirstValid(operands=(_, Literal())) if leaf.tensor.root:
            (read,) = leaf.reads
            last = iteration_symbol(len(leaf.tensor.root) - 1)
            if last.free & read.valid.free and at_vectors(read, len(leaf.tensor.root), vector, facts_of(fusion, leaf.tensor)) is None:
                return False
            return vector_fits(fusion, replace(leaf, is_copy=True), vector)
        case _:
            return False


def arrange(script: Script, tv: TensorView, axis: int, column: int, loops: tuple[int, int, int, int]) -> None:
    """The loops of an output, or of the elements of its tiles, bound to blocks and threads.

    Args:
        axis: of the output that is tiled.
        column: the first of its axes that are merged into columns, after ``axis``.
        loops: points of a tile, 0 where the tensor has tiles and elements of them already; rows of threads; threads along columns; elements of a vector.
    """
    tile, rows, columns, vector = loops
    call, column = script.on(tv), column + (tile == 0)
    for _ in range(len(tv.root) - 1 - column):
        call.merge(column)
    call.split(column, vector).split(column, columns)
    if tile:
        call.split(axis, tile)
    call.split(axis, rows)
    total = len(tv.loop)
    inside, point, thread = axis + 1, axis + 2, total - 2
    order = [*(k for k in range(total) if k not in (inside, point, thread, total - 1)), inside, thread, point, total - 1]
    call.reorder(order)
    for k in range(total - 4):
        call.bind(k, P.BIDx)
    call.bind(total - 4, P.TIDy).bind(total - 3, P.TIDx).bind(total - 2, P.Unroll)
