"""Grid-stride loops: loops whose trips the block index decides.

An axis of work (tiles, rows) split into (trip, block) with a remainder leaves some blocks without work in the last trip. The remainder becomes a bound
of the loop instead of a guard inside it: ``ceildiv(extent - block, blocks)`` trips, the same in all roles, since it is a function of the block
index alone. So every fill of a ring, and every transfer, is of work that exists. A loop in which blocks wait for each other keeps
its guards: all of them must reach each of its barriers.

Where the blocks take the work in a rotated order, the loop runs over the items of work themselves: little can be proved of the sum of a trip and a remainder by
the number of blocks.

A tile of ragged rows may be empty, as the offsets tell. If all results of a tile are stored in its rows, an empty tile is skipped like one past the last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from taskfuse.ir.axes import CLAIMED, Axis, Rasterize, Split, is_map_symbol
from taskfuse.ir.expr import Assemble, Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, ZERO, Compare, CompareOp, Expr, Facts, Min, and_, ceildiv, conjuncts, lt, maximum, prove, select, simplify, substitute
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, GRID_TYPES, MemoryType, ParallelType
from taskfuse.lowering.channels import boundary
from taskfuse.lowering.completion import has_copies_of_threads, is_transfer
from taskfuse.lowering.domains import ancestors, backward, bound, digit_values, digits, divides, refused
from taskfuse.lowering.plan import LoopVariables, Walk
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index
from taskfuse.schedule.order import Tree
from taskfuse.schedule.shared_loops import Loop, SharedLoops


def _some(valid: Expr) -> Expr | None:
    """A condition on ``i0`` alone that holds where ``low <= e`` and ``e < high`` do for some e: that ``low < high``."""
    parts = [c for c in conjuncts(valid) if isinstance(c, Compare)]
    for one in parts:
        for two in parts:
            if one.op is CompareOp.LE and two.op is CompareOp.LT and one.b is two.a:
                ends = two.b.args if isinstance(two.b, Min) else (two.b,)
                found = and_(*(lt(one.a, e) for e in ends))
                if not any(name != "i0" and is_map_symbol(name) for name in found.free):
                    return found
    return None


@dataclass(frozen=True, slots=True)
class _Ragged:
    """Tiles of ragged rows that a work axis counts.

    Attributes:
        maps: of the work axis; empty: the loop is over the tiles themselves.
        place: of the axis of tiles among those that it counts.
        condition: that rows belong to the tile ``i0``.
    """

    maps: tuple[Expr, ...]
    place: int
    condition: Expr


@dataclass(frozen=True, slots=True)
class _Split:
    """The split of an axis of work in one tensor: the trips of the outer loop for each value of the inner, block-bound axis."""

    source: Expr
    blocks: Expr
    ptype: ParallelType
    index: Expr


class GridStrideLoops:
    """The grid-stride loops of a fusion, and what they imply for the indices of the code inside them.

    Empty until :meth:`find`, which needs the memory types, has run.
    """

    def __init__(self, fusion: Fusion, tree: Tree, shared_loops: SharedLoops, ranges: ThreadRanges, variables: LoopVariables) -> None:
        self._fusion = fusion
        self._tree = tree
        self._shared_loops = shared_loops
        self._ranges = ranges
        self._variables = variables
        self._distributing: set[Loop] = set()
        self._emptied: set[Loop] = set()
        self._trips: dict[Loop, Expr] = {}
        self._ragged: dict[Loop, _Ragged] = {}
        self._walks: dict[Loop, Walk] = {}

    def find(self, memory: dict[TensorView, MemoryType], indexes_registers: Callable[[TensorView, Loop], bool]) -> None:
        """Find them.

        Args:
            indexes_registers: whether code of a tensor indexes registers by a loop, which is therefore unrolled: its number of trips is constant.
        """
        loops = list(self._shared_loops.loops)
        distributing = {loop for loop in loops if self._is_distributed(loop)}
        ragged = dict(found for e in self._fusion.exprs() if isinstance(e, Assemble) for p in e.parts if (found := self._ragged_by(p)) is not None)
        ragged = {loop: found for loop, found in ragged.items() if not self._fills_each_trip(loop, loops)}
        emptied = {inner for loop in (*distributing, *ragged) if (inner := self._emptied_by(loop, loops)) is not None}
        trips = {loop: trips for loop in loops if (trips := self._bounded_trips(loop, memory, indexes_registers)) is not None}
        walks = {loop: walk for loop in loops if (walk := self._walk(loop, memory, indexes_registers)) is not None}
        self._check_claims(walks)
        self._distributing, self._emptied, self._trips, self._walks, self._ragged = distributing, emptied, trips, walks, ragged

    def walk(self, loop: Loop) -> Walk | None:
        """The items of work that a loop visits, if the kernel's loop runs over items."""
        return self._walks.get(loop)

    @property
    def bounds(self) -> Mapping[Loop, Expr]:
        """The grid-stride loops that count trips, and their trips."""
        return self._trips

    @property
    def walks(self) -> Mapping[Loop, Walk]:
        """The grid-stride loops over items of work, and their items."""
        return self._walks

    # -- what it says of code -------------------------------------------------------------------------------------------------------

    def trips(self, loop: Loop, extent: Expr, tv: TensorView) -> Expr:
        """The trips of a loop of an extent around code of ``tv``, in hardware indices and the variables of loops around it."""
        if loop in self._trips:
            return self._trips[loop]
        if loop not in self._emptied:
            return extent
        facts = self._ranges.facts
        values: dict[Axis, Expr] = {}
        for a, other in self._around(tv):
            ptype = tv.schedule.ptype(a)
            if ptype.is_loop:
                values[a] = self._variables.symbol(other)
                facts = facts.with_range(str(values[a]), 0, a.extent - 1)
            elif ptype.is_bound:
                index = hardware_index(ptype) - self._ranges.range(self._tree.place[tv], ptype).start
                values[a] = digit_values(digits(tv, ptype), simplify(index, facts), facts)[a]
        loops = {a: values[a] for a, _ in self._around(tv) if tv.schedule.ptype(a).is_loop}
        for source, item in self.items(tv, loops).items():
            values[source] = item
            facts = facts.with_range(str(item), 0, source.extent - 1)
        values = backward(tv, values)
        for t in self.bounded(tv, loops):
            if t.source in values and not t.source.is_foreign:
                facts = facts.with_assumption(lt(values[t.source], t.source.extent))
        rest = [c for t in self.whole(tv, values) for c in bound(values[t.source], t.source.extent, facts)]
        rest += self.has_rows(tv, values, facts)
        return simplify(select(and_(*rest), extent, 0), facts) if rest else extent

    def bounded(self, tv: TensorView, loops: dict[Axis, Expr]) -> list[Split]:
        """The splits whose remainder is cut off by the bound of a grid-stride loop."""
        found: list[Split] = []
        for a, loop in self._around(tv):
            if a in loops and loop in self._trips and loops[a] is self._variables.symbol(loop) and (t := self._split(tv, a)) is not None:
                found.append(t)
        return found

    def items(self, tv: TensorView, loops: dict[Axis, Expr]) -> dict[Axis, Expr]:
        """The axes of work of a tensor whose items a loop visits, and the symbols of these."""
        found: dict[Axis, Expr] = {}
        for a, loop in self._around(tv):
            if loop in self._walks and a in loops and loops[a] is self._variables.symbol(loop) and (t := _split_at(tv, a)) is not None:
                found[t.source] = self._variables.item(loop)
        return found

    def whole(self, tv: TensorView, values: dict[Axis, Expr]) -> list[Split]:
        """The splits with a remainder of an axis of work, if a loop that distributes it leaves some of the last items empty."""
        if not any(loop in self._distributing for _, loop in self._around(tv)):
            return []
        made = {a for t in tv.schedule.transforms if isinstance(t, Rasterize) for a in t.outputs}
        implied: set[Axis] = set()  # an index within its axis makes the outer index of a split one within the outer axis
        found: list[Split] = []
        for t in tv.schedule.transforms:
            if isinstance(t, Split) and t.source in made:
                made.update(t.outputs)
                if t.source in values and not divides(t, self._ranges.facts):
                    if t.source not in implied:
                        found.append(t)
                    implied.add(t.outer)
        return found

    def has_rows(self, tv: TensorView, values: dict[Axis, Expr], facts: Facts) -> list[Expr]:
        """The condition that the tile of ragged rows around code of ``tv`` has rows; none if code runs for any."""
        for a, loop in self._around(tv)[:1]:
            ragged = self._ragged.get(loop)
            if ragged is None:
                return []
            made = (t for t in tv.schedule.transforms if isinstance(t, Rasterize) and t.maps == ragged.maps)
            axis = a if not ragged.maps else next((t.sources[ragged.place] for t in made if t.sources[ragged.place] in values), None)
            if axis is not None:
                condition = simplify(substitute(ragged.condition, {"i0": values[axis]}), facts)
                return [] if prove(condition, facts) else [condition]
        return []

    def is_emptied(self, loop: Loop) -> bool:
        """True if a loop has no trips for an empty item of work."""
        return loop in self._emptied

    def skips_empty(self, tv: TensorView, loops: dict[Axis, Expr]) -> bool:
        """True inside a loop without trips for an empty item of work."""
        return any(a in loops and loop in self._emptied and loops[a] is self._variables.symbol(loop) for a, loop in self._around(tv))

    def _around(self, tv: TensorView) -> list[tuple[Axis, Loop]]:
        """The loop axes of a tensor with code, and the loops that they are."""
        return list(zip(tv.loop, self._shared_loops.path[tv], strict=True)) if tv in self._shared_loops.path else []

    # -- how they are found ---------------------------------------------------------------------------------------------------------

    def _is_distributed(self, loop: Loop) -> bool:
        types = {tv.schedule.ptype(a) for tv, a in loop.axes.items()}
        return any(p.is_loop for p in types) and any(p.is_thread for p in types)

    def _emptied_by(self, loop: Loop, loops: list[Loop]) -> Loop | None:
        """The outermost loop with code inside a distributing one."""
        inside = [x for x in loops if x.depth > loop.depth and x.axes.keys() <= loop.axes.keys() and len(x.axes) > 1]
        coded = [x for x in inside if all(tv.schedule.ptype(a) is ParallelType.Serial for tv, a in x.axes.items())]
        return min(coded, key=lambda x: x.depth, default=None)

    def _ragged_by(self, part: Read) -> tuple[Loop, _Ragged] | None:
        """The outermost loop around a part whose elements do not all have a place, and the condition that those of a tile have one."""
        tv = part.tensor
        condition = _some(part.valid)
        if condition is None or tv not in self._shared_loops.path:
            return None
        made = next((t for t in tv.schedule.transforms if isinstance(t, Rasterize) and tv.root[0] in t.sources), None)
        loop = self._shared_loops.path[tv][0]
        if (made is None and tv.loop[0] is not tv.root[0]) or any(self._is_needed(x, loop, condition) for x in loop.axes):
            return None
        if made is None:
            types = {x.schedule.ptype(a) for x, a in loop.axes.items()}
            is_of_threads = any(p.is_thread for p in types)  # whose trips would differ around rings and barriers that all take part in
            return None if is_of_threads else (loop, _Ragged((), 0, condition))
        counting = [a for a, inner in self._around(tv) if inner is not loop and tv.schedule.ptype(a).is_loop and made.result in ancestors(tv, (a,))]
        return None if counting else (loop, _Ragged(made.maps, made.sources.index(tv.root[0]), condition))

    def _fills_each_trip(self, loop: Loop, loops: list[Loop]) -> bool:
        """True if bulk copies fill a ring in each trip of a loop, outside the one that is empty for an empty item of work: every fill has its bytes."""
        inner = self._emptied_by(loop, loops)
        return any(is_transfer(tv) and inner not in self._shared_loops.path[tv] for tv in loop.axes)

    def _is_needed(self, tv: TensorView, loop: Loop, condition: Expr) -> bool:
        """Whether something outside a loop reads elements of a tensor that do not meet a condition on the tile."""
        outside = [use for use in storage_uses(self._fusion, tv) if use.output not in loop.axes]
        parts = [part for use in outside if isinstance(use, Assemble) for part in use.parts if part.tensor is tv]
        return tv.is_output or len(parts) < len(outside) or any(_some(part.valid) is not condition for part in parts)

    def _split(self, tv: TensorView, axis: Axis) -> Split | None:
        """The split with a remainder whose outer axis is ``axis`` and whose inner axis is bound to a block index."""
        t = _split_at(tv, axis)
        return t if t is not None and not divides(t, self._ranges.facts) and tv.schedule.ptype(_block_axis(tv, t.inner)) in BLOCK_TYPES else None

    def _walk(self, loop: Loop, memory: dict[TensorView, MemoryType], indexes_registers: Callable[[TensorView, Loop], bool]) -> Walk | None:
        """The items of work of a loop that distributes them over blocks in a rotated order; ``None`` for any other loop."""
        found: set[Walk] = set()
        for tv, axis in loop.axes.items():
            t = _split_at(tv, axis)
            if t is None or _block_axis(tv, t.inner) is t.inner or tv.schedule.ptype(_block_axis(tv, t.inner)) not in BLOCK_TYPES:
                return None
            if self._waits_for_blocks(tv, loop, memory[tv]) or indexes_registers(tv, loop) or has_copies_of_threads(tv):
                return None
            if self._counts_trips(tv, loop):
                return None
            if t.source.is_foreign and self._is_read_outside(tv, loop):
                return None
            facts = self._ranges.facts
            item, stop, index = self._variables.item(loop), simplify(t.source.extent, facts), self._index(tv, t)
            if CLAIMED in index.free:
                found.add(Walk(item, ZERO, stop, ONE, simplify(substitute(index, {CLAIMED: ZERO}), facts)))
            else:
                found.add(Walk(item, index, stop, simplify(maximum(t.inner.extent, 1), facts)))
        return next(iter(found)) if len(found) == 1 else None

    def _counts_trips(self, tv: TensorView, loop: Loop) -> bool:
        """Whether a ring takes a slot in each trip of a loop, inside one role, which fills it some trips ahead. Roles of a channel have cursors."""
        innermost = next((x for a, x in reversed(self._inlined(tv)) if tv.schedule.ptype(a).is_loop), None)
        return tv.schedule.stages > 1 and innermost is loop and boundary(self._tree, self._fusion, tv) is None

    def _check_claims(self, walks: dict[Loop, Walk]) -> None:
        """Raises :class:`LoweringError` where blocks claim other items than those of a loop."""
        for tv, path in self._shared_loops.path.items():
            claims = any(CLAIMED in m.free for t in tv.schedule.transforms if isinstance(t, Rasterize) for m in t.maps)
            if claims and not any(loop in walks and walks[loop].claimed is not None for loop in path):
                reason = "it claims items of work where no loop of trips goes over them"
                raise refused(tv, reason, "split the work axis into trips and blocks, bind the blocks to BIDx, and claim the axis of blocks alone")
            other = next((p for p in (*BLOCK_TYPES[1:], *CLUSTER_TYPES) if claims and self._ranges.launch[p] is not ONE), None)
            if other is not None:
                reason = f"it claims items of work in a grid of {self._ranges.launch[other]} blocks along {other.value}"
                raise refused(tv, reason, "bind all axes of blocks to BIDx, or distribute the items over blocks: without tf.tiles.dynamic()")

    def _inlined(self, tv: TensorView) -> list[tuple[Axis, Loop]]:
        return self._around(tv)[: tv.schedule.inline]

    def _index(self, tv: TensorView, t: Split) -> Expr:
        """The index of the inner axis of a split, in hardware indices."""
        p = tv.schedule.ptype(_block_axis(tv, t.inner))
        base = hardware_index(p) - self._ranges.range(self._tree.place[tv], p).start
        index = backward(tv, digit_values(digits(tv, p), simplify(base, self._ranges.facts), self._ranges.facts))[t.inner]
        return simplify(index, self._ranges.facts)

    def _bounded_trips(self, loop: Loop, memory: dict[TensorView, MemoryType], indexes_registers: Callable[[TensorView, Loop], bool]) -> Expr | None:
        """The trips of a grid-stride loop, in hardware indices; ``None`` for any other loop, whose trips are its extent."""
        found: set[_Split] = set()
        for tv, axis in loop.axes.items():
            t = self._split(tv, axis)
            if t is None or self._waits_for_blocks(tv, loop, memory[tv]) or indexes_registers(tv, loop):
                return None
            if t.source.is_foreign and self._is_read_outside(tv, loop):
                return None
            p = tv.schedule.ptype(_block_axis(tv, t.inner))
            found.add(_Split(simplify(t.source.extent, self._ranges.facts), simplify(t.inner.extent, self._ranges.facts), p, self._index(tv, t)))
        if len(found) != 1:
            return None
        (one,) = found
        blocks = maximum(one.blocks, 1)  # an extent of 0 still launches a block, which divides by it
        return simplify(ceildiv(one.source - one.index, blocks), self._ranges.facts)

    def _is_read_outside(self, tv: TensorView, loop: Loop) -> bool:
        """True if code outside a loop reads ``tv``: if ``tv`` itself lacks the axis of work, also in blocks that have none."""
        return any(use.output not in loop.axes for use in storage_uses(self._fusion, tv))

    def _waits_for_blocks(self, tv: TensorView, loop: Loop, memory: MemoryType) -> bool:
        """True if code of ``tv`` may wait for other blocks in a loop, whose trips would be others; for a reader after the loop they wait there."""
        if memory is MemoryType.Global and any(use.output in loop.axes for use in storage_uses(self._fusion, tv)):
            return True
        reduces = isinstance(self._fusion.definition(tv), Reduction)
        return reduces and any(a.is_reduction for p in GRID_TYPES for a in digits(tv, p))


def _block_axis(tv: TensorView, inner: Axis) -> Axis:
    """The loop axis that takes the values of ``inner``, one for one: it, or the order in which a rasterization visits it."""
    return next((t.result for t in tv.schedule.transforms if isinstance(t, Rasterize) and t.sources == (inner,)), inner)


def _split_at(tv: TensorView, axis: Axis) -> Split | None:
    """The split whose outer axis is ``axis``, which counts trips."""
    if tv.schedule.ptype(axis) is not ParallelType.Serial:
        return None
    return next((t for t in tv.schedule.transforms if isinstance(t, Split) and t.outer is axis), None)
