"""Work loops: loops whose trips the block index decides.

An axis of work (tiles, rows) split into (trip, block) with a remainder: in the last trip some blocks have nothing to do. That is a bound
of the loop, not a guard inside it: ``ceildiv(extent - block, blocks)`` trips, the same in all roles, since it is a function of the block
index alone. So every fill of a ring, and every transfer, is of a piece of work that exists. A loop in which blocks wait for each other keeps
its guards: all of them must come to each of its barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from taskfuse.ir.axes import Axis, Split
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Expr, ceildiv, eq, prove, simplify
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, GRID_TYPES, MemoryType, ParallelType
from taskfuse.lowering.domains import digit_values, digits
from taskfuse.lowering.regions import Regions, hardware_index
from taskfuse.schedule.joins import Loop
from taskfuse.schedule.order import Tree


@dataclass(frozen=True, slots=True)
class _Split:
    """The split of an axis of work in one tensor: what the outer loop counts for each value of the inner, block-bound axis."""

    source: Expr
    blocks: Expr
    ptype: ParallelType
    index: Expr


class WorkLoops:
    """Which loops of a fusion are work loops.

    Args:
        indexes_registers: whether code of a tensor finds registers by the index of a loop, which therefore unrolls: its trips are a constant.
    """

    def __init__(
        self,
        fusion: Fusion,
        tree: Tree,
        regions: Regions,
        memory: dict[TensorView, MemoryType],
        loops: Iterable[Loop],
        indexes_registers: Callable[[TensorView, Loop], bool],
    ) -> None:
        self._fusion = fusion
        self._tree = tree
        self._regions = regions
        self._memory = memory
        self._indexes_registers = indexes_registers
        loops = list(loops)
        self._distributing = {loop for loop in loops if self._is_distributed(loop)}
        self._cuts = {cut for loop in self._distributing if (cut := self._cut(loop, loops)) is not None}
        self._trips = {loop: trips for loop in loops if (trips := self._find(loop)) is not None}

    def trips(self, loop: Loop) -> Expr | None:
        """The trips of a work loop, in hardware indices; ``None``: it is none, and its trips are its extent."""
        return self._trips.get(loop)

    def distributes(self, loop: Loop) -> bool:
        """True if a loop hands out pieces of work: it is Serial in some tensors, and in others thread indices take an iteration each."""
        return loop in self._distributing

    def is_cut(self, loop: Loop) -> bool:
        """True if a loop inside of a distributing one runs no trips where the piece of work is empty."""
        return loop in self._cuts

    def _is_distributed(self, loop: Loop) -> bool:
        types = {tv.schedule.ptype(a) for tv, a in loop.axes.items()}
        return any(p.is_loop for p in types) and any(p.is_thread for p in types)

    def _cut(self, loop: Loop, loops: list[Loop]) -> Loop | None:
        """The outermost loop with code inside of a distributing one."""
        inside = [x for x in loops if x.depth > loop.depth and x.axes.keys() <= loop.axes.keys() and len(x.axes) > 1]
        coded = [x for x in inside if all(tv.schedule.ptype(a) is ParallelType.Serial for tv, a in x.axes.items())]
        return min(coded, key=lambda x: x.depth, default=None)

    def split(self, tv: TensorView, axis: Axis) -> Split | None:
        """The split with a remainder whose outer axis is ``axis`` and whose inner axis is bound to a block index."""
        if tv.schedule.ptype(axis) is not ParallelType.Serial:
            return None
        for t in tv.schedule.transforms:
            if isinstance(t, Split) and t.outer is axis:
                remainder = not prove(eq(t.outer.extent * t.inner.extent, t.source.extent), self._regions.facts)
                return t if remainder and t.inner in tv.loop and tv.schedule.ptype(t.inner) in BLOCK_TYPES else None
        return None

    def _find(self, loop: Loop) -> Expr | None:
        found: set[_Split] = set()
        for tv, axis in loop.axes.items():
            t = self.split(tv, axis)
            if t is None or self._meets_blocks(tv, loop) or self._indexes_registers(tv, loop) or (t.source.is_foreign and self._is_read_outside(tv, loop)):
                return None
            p = tv.schedule.ptype(t.inner)
            base = hardware_index(p) - self._regions.region(self._tree.place[tv], p).start
            index = digit_values(digits(tv, p), simplify(base, self._regions.facts), self._regions.facts)[t.inner]
            found.add(_Split(simplify(t.source.extent, self._regions.facts), simplify(t.inner.extent, self._regions.facts), p, index))
        if len(found) != 1:
            return None
        (one,) = found
        return simplify(ceildiv(one.source - one.index, one.blocks), self._regions.facts)

    def _is_read_outside(self, tv: TensorView, loop: Loop) -> bool:
        """True if code outside of a loop reads ``tv``: if ``tv`` itself lacks the axis of work, also in blocks that have none."""
        return any(use.output not in loop.axes for use in storage_uses(self._fusion, tv))

    def _meets_blocks(self, tv: TensorView, loop: Loop) -> bool:
        """True if code of ``tv`` may wait for other blocks in a loop, whose trips would be others; for a reader behind the loop they wait there."""
        if self._memory[tv] is MemoryType.Global and any(use.output in loop.axes for use in storage_uses(self._fusion, tv)):
            return True
        reduces = isinstance(self._fusion.definition(tv), Reduction)
        return reduces and any(a.is_reduction for p in GRID_TYPES for a in digits(tv, p))
