"""Partial results of reductions: which elements of its result a thread combines with other threads in one step, and the storage for it.

A thread has an accumulator for each value of the loops over the result that are inside the reduction loops, and, if an atom computes, for each
register of the atom's tile. It takes each step of a join for as many of them together as Shared memory has room for, so that they share its
barrier: the registers of a tile, or a part of them, and the innermost loops around these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from taskfuse.ir.axes import Axis
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, Facts, const, le, prove, simplify, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import CLUSTER_TYPES, INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir.operands import Access
from taskfuse.lowering.clusters import block_rank, cluster_blocks
from taskfuse.lowering.domains import digit_values, digits, product
from taskfuse.lowering.fragments import register, registers
from taskfuse.lowering.index_maps import IndexMap
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.lanes import WarpReduction, warp_reduction
from taskfuse.lowering.plan import PLoop, PNode, base_name

ONE = const(1)
MOST_BYTES = 16 * 1024
"""The most bytes of Shared memory for partial results that are joined together, if threads have several elements."""
MOST_BYTES_OF_RANK = 64 * 1024
"""The most bytes of each block's Shared memory for those that the blocks of a cluster join: their barrier takes longer."""


def inner_axes(tv: TensorView) -> tuple[Axis, ...]:
    """The loops of a reduction over its result that are inside its outermost reduction loop: a thread has an accumulator for each of their values."""
    first = next((d for d, a in enumerate(tv.loop) if a.is_reduction), len(tv.loop))
    return tuple(a for a in tv.loop[first:] if tv.schedule.ptype(a).is_loop and not a.is_reduction)


def lane_registers(tv: TensorView) -> tuple[str, str]:
    """The names of a lane's operand of shuffles, if its accumulator may not exist, and of the result."""
    return f"{tv.name}.lane", f"{tv.name}.peer"


JOINED_IN = {MemoryType.Shared: "part", MemoryType.Cluster: "ranks", MemoryType.Global: "blocks"}
"""The memory through which threads, blocks of a cluster and blocks of a grid join partial results, and what its buffers are called."""


def workspace(tv: TensorView, memory: MemoryType) -> str:
    """The name of the buffer through which threads join partial results."""
    return f"{tv.name}.{JOINED_IN[memory]}"


@dataclass(frozen=True, slots=True, eq=False)
class JoinStep:
    """The code between two barriers of a join.

    Attributes:
        nodes: the first part.
        loop: then a loop over partial results, if there is one.
    """

    nodes: list[PNode]
    loop: PLoop | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Partials:
    """The partial results of one reduction.

    Attributes:
        warps: how whole warps join theirs; ``None`` if the threads do not form whole warps, or have nothing to join.
        axes: the innermost of :func:`inner_axes` whose elements are joined together.
        registers: the number of registers of a tile that are joined together, too.
    """

    indexer: Indexer
    tv: TensorView
    warps: WarpReduction | None
    axes: tuple[Axis, ...]
    registers: int

    @staticmethod
    def of(indexer: Indexer, tv: TensorView) -> Partials:
        """Those of a reduction with a reduced index type."""
        facts = indexer.ranges.facts
        across = any(a.is_reduction for p in THREAD_TYPES for a in digits(tv, p))
        warps = warp_reduction(indexer.ranges, indexer.tree.place[tv], tv) if across else None
        one = Partials(indexer, tv, warps, (), 1)
        size = const(tv.dtype.compute.itemsize)
        limits = [(size * (_product(one.shape(MemoryType.Shared)) if across else 1), MOST_BYTES)]
        if any(a.is_reduction for p in CLUSTER_TYPES for a in digits(tv, p)):
            limits.append((size * _product(one.shape(MemoryType.Cluster)[1:]), MOST_BYTES_OF_RANK))

        def fit(elements: Expr) -> bool:
            return all(prove(le(bytes_ * elements, most), facts) for bytes_, most in limits)

        tile = registers(tv)
        together = next((n for n in range(tile, 0, -1) if tile % n == 0 and fit(const(n))), 1)
        axes: tuple[Axis, ...] = ()
        for a in reversed(inner_axes(tv)) if together == tile else ():
            if not fit(const(tile) * product((a, *axes))):
                break
            axes = (a, *axes)
        return Partials(indexer, tv, warps, axes, together)

    # -- storage --------------------------------------------------------------------------------------------------------------------

    def shape(self, memory: MemoryType) -> tuple[Expr, ...]:
        """Shape of the workspace. Shared: per partial result after shuffles, or per thread of the task's thread range; Cluster: per block of a cluster, by
        rank; Global: per block of the task's range.

        Each has the elements that are joined together; adjacent places belong to neighboring threads, not to one thread's elements.
        """
        elements = (*(a.extent for a in self.axes), *((const(self.registers),) if self.registers > 1 else ()))
        blocks, threads = self._types(memory)
        range_of, task = self.indexer.ranges.range, self.indexer.tree.place[self.tv]
        kept = tuple(extent for _, extent in self._kept(self.indexer.ranges.facts))
        if memory is MemoryType.Cluster:
            return (cluster_blocks(self.indexer.ranges), *elements, *kept)
        if memory is MemoryType.Global:
            return (*(range_of(task, p).extent for p in blocks), *elements, *kept)
        if self.warps is not None:
            return (self.warps.slots, *elements, *kept)
        return (*(range_of(task, p).extent for p in blocks), *elements, *(range_of(task, p).extent for p in threads))

    def of_thread(self, index_map: IndexMap, replace: dict[ParallelType, Expr]) -> Access:
        """The place in Shared memory of the partial result of a thread, or of the one at other indices of some types."""
        blocks, threads = (self._indices(types, index_map, replace) for types in self._types(MemoryType.Shared))
        return Access(workspace(self.tv, MemoryType.Shared), (*blocks, *self._element(index_map), *threads))

    def _indices(self, types: Sequence[ParallelType], index_map: IndexMap, replace: dict[ParallelType, Expr]) -> list[Expr]:
        task = self.indexer.tree.place[self.tv]
        return [simplify(replace[p] if p in replace else sym(base_name(p, task)), index_map.facts) for p in types]

    def of_block(self, memory: MemoryType, index_map: IndexMap, replace: dict[ParallelType, Expr]) -> Access:
        """The place in Cluster or Global memory of the partial result of a block, or of the one at other indices of some types.

        Threads with the same partial result share the place.
        """
        if memory is MemoryType.Cluster:
            at: dict[ParallelType, Expr] = dict(zip(CLUSTER_TYPES, self._indices(CLUSTER_TYPES, index_map, replace), strict=True))
            blocks = [simplify(block_rank(self.indexer.ranges, self.indexer.tree.place[self.tv], at), index_map.facts)]
        else:
            blocks = self._indices(self._types(memory)[0], index_map, replace)
        return Access(workspace(self.tv, memory), (*blocks, *self._element(index_map), *(index for index, _ in self._kept(index_map.facts))))

    def of_slot(self, index_map: IndexMap, slot: Expr) -> Access:
        """The place of a partial result after shuffles."""
        return Access(workspace(self.tv, MemoryType.Shared), (slot, *self._element(index_map), *(index for index, _ in self._kept(index_map.facts))))

    def _element(self, index_map: IndexMap) -> tuple[Expr, ...]:
        """Which of the elements that a thread joins together."""
        return tuple(index_map.values[a] for a in self.axes) + ((register(self.tv),) if self.registers > 1 else ())

    def _kept(self, facts: Facts) -> list[tuple[Expr, Expr]]:
        """Which element of the result a thread has a part of: (index, extent) of each digit that is not reduced and of each index that replicates."""
        ranges, task = self.indexer.ranges, self.indexer.tree.place[self.tv]
        found: list[tuple[Expr, Expr]] = []
        for p in reversed(THREAD_TYPES):
            own, base = digits(self.tv, p), sym(base_name(p, task))
            values = digit_values(own, base, facts)
            found += [(values[a], a.extent) for a in own if not a.is_reduction] if own else [(base, ranges.range(task, p).extent)]
        return [(index, extent) for index, extent in found if extent is not ONE]

    def _types(self, memory: MemoryType) -> tuple[list[ParallelType], list[ParallelType]]:
        """The types of blocks and of threads of which each index has its own partial result."""
        ranges, task = self.indexer.ranges, self.indexer.tree.place[self.tv]
        found = [p for p in INDEX_TYPES if not MEDIA[memory].is_private_to(p) and ranges.range(task, p).extent is not ONE]
        return [p for p in found if not p.is_thread], [p for p in found if p.is_thread]

    # -- loops ----------------------------------------------------------------------------------------------------------------------

    def accumulator(self, first: Access) -> Access:
        """The accumulator of an element that is joined, from the first of its tile."""
        if registers(self.tv) == 1:
            return first
        (place,) = first.index
        if self.registers > 1:
            place = place + register(self.tv)
        if self.registers < registers(self.tv):
            place = place + self._part() * self.registers
        return Access(first.buffer, (place,))

    @property
    def takes_all(self) -> bool:
        """Whether all elements of a thread are joined together."""
        return self.registers == registers(self.tv) and len(self.axes) == len(inner_axes(self.tv))

    @property
    def shared_bytes(self) -> Expr:
        """Bytes of Shared memory for the elements that are joined together."""
        total: Expr = const(0)
        if any(a.is_reduction for p in THREAD_TYPES for a in digits(self.tv, p)):
            total = _product(self.shape(MemoryType.Shared))
        if any(a.is_reduction for p in CLUSTER_TYPES for a in digits(self.tv, p)):
            total = total + _product(self.shape(MemoryType.Cluster)[1:])
        return const(self.tv.dtype.compute.itemsize) * total

    def joined_together(self, steps: Sequence[JoinStep], loops: dict[Axis, Expr]) -> list[JoinStep]:
        """Steps for one element, repeated for all elements that are joined together.

        A loop over partial results is outside the elements, so that their loads are independent, unlike those of a sum of one element.
        """
        own = [self._loop(a, loops) for a in self.axes]
        if self.registers > 1:
            own.append(PLoop(str(register(self.tv)), const(self.registers), True, []))
        return [JoinStep(_around(own, s.nodes), s.loop and replace(s.loop, body=_around(own, s.loop.body))) for s in steps]

    def in_rounds(self, nodes: list[PNode], loops: dict[Axis, Expr]) -> list[PNode]:
        """All steps, for groups of elements that are joined together, in turn."""
        own = [self._loop(a, loops) for a in inner_axes(self.tv) if a not in self.axes]
        if self.registers < registers(self.tv):
            own.append(PLoop(str(self._part()), const(registers(self.tv) // self.registers), True, []))
        return _around(own, nodes)

    def _loop(self, axis: Axis, loops: dict[Axis, Expr]) -> PLoop:
        return PLoop(str(loops[axis]), axis.extent, self.tv.schedule.ptype(axis) is ParallelType.Unroll, [])

    def _part(self) -> Expr:
        """Which part of a tile's registers, if not all of them are joined together."""
        return sym(f"{self.tv.name}.p")


def _around(loops: list[PLoop], nodes: list[PNode]) -> list[PNode]:
    for loop in reversed(loops):
        nodes = [replace(loop, body=nodes)]
    return nodes


def _product(extents: tuple[Expr, ...]) -> Expr:
    total: Expr = ONE
    for e in extents:
        total = total * e
    return total
