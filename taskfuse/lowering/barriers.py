"""The forms of barriers: the statements by which all threads of a node wait for each other.

The whole block uses ``__syncthreads``, one warp ``__syncwarp``, and several whole warps a named barrier while one is free. Any other set of threads arrives
at an mbarrier and waits for its phase. The blocks of a cluster use the cluster barrier; those of a grid count arrivals in Global memory.
"""

from __future__ import annotations

from taskfuse.errors import LoweringError
from taskfuse.ir.scalar import Const, Expr, and_, const, eq, simplify
from taskfuse.ir.tasks import Node
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, GRID_TYPES, THREAD_TYPES, ParallelType
from taskfuse.kir.nodes import Branch, If
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.synchronization import Advance, Arrive, Barrier, BarrierScope, Cursor, CursorInit, MbarrierScope, Wait
from taskfuse.lowering.plan import Origin, PSync
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index
from taskfuse.target import MAX_NAMED, WARP

ONE = const(1)


class PlanBarriers:
    """The barriers of one plan.

    Attributes:
        mbarriers: arrays that replace named barriers if a thread range is not made of whole warps, and at which blocks of a cluster meet: name,
            slots, arrivals.
        counters: counters of barriers across blocks.
    """

    def __init__(self, ranges: ThreadRanges) -> None:
        self.mbarriers: list[tuple[str, int, Expr]] = []
        self.counters: list[str] = []
        self._ranges = ranges
        self._cursors: list[tuple[str, int]] = []
        self._named: dict[tuple[Node, frozenset[ParallelType]], tuple[int, int]] = {}  # the first and the last id
        self._stand_in: dict[Node, str] = {}
        self._one_of_each: dict[Node, str] = {}
        self._counter: dict[Node, str] = {}

    def between(self, node: Node, types: frozenset[ParallelType], buffer: str, of: Origin, *, within_warps: bool = False) -> PSync:
        """A barrier of all threads of a node's thread range, or of the part that exchanges data through ``buffer``; across its blocks if the data crosses them.

        Args:
            within_warps: data does not leave its warp (:meth:`has_whole_warps`).
        """
        if within_warps:
            return PSync((Barrier(BarrierScope.WARP, const(WARP), note=f"{buffer} crosses lanes in {node.name}"),), of, True, is_of_warps=True)
        note = f"{buffer} crosses {', '.join(sorted(p.value for p in types))} in {node.name}"
        threads = self._ranges.count(node)
        all_threads = frozenset(THREAD_TYPES)
        if not types.isdisjoint(CLUSTER_TYPES) and types.isdisjoint(BLOCK_TYPES):
            return self._in_cluster(node, of, note)
        if any(p in GRID_TYPES for p in types):
            counter = self._counter.get(node)
            if counter is None:
                counter = self._counter[node] = f"grid{len(self.counters)}"
                self.counters.append(counter)
            total = simplify(threads * self._ranges.count(node, GRID_TYPES), self._ranges.facts)
            return PSync((Barrier(BarrierScope.GRID, total, counter=counter, note=note),), of, True, all_threads | frozenset(GRID_TYPES))
        return self._slice(node, types, of, note) or self.in_block(node, of, note)

    def _in_cluster(self, node: Node, of: Origin, note: str) -> PSync:
        """A barrier of all threads of a node's thread range in all blocks of a cluster.

        Where it is not all threads of these blocks, those of each block meet before one of them meets those of the other blocks, and after it. The mbarriers
        of these have two slots in turn: a block that is a round ahead arrives at the one while others are still to arrive at the other.
        """
        covered = frozenset((*THREAD_TYPES, *CLUSTER_TYPES))
        blocks = self._ranges.count(node, CLUSTER_TYPES)
        if not self._is_whole_cluster(node):
            raise LoweringError(
                what=node.name,
                reason="some of the blocks of a cluster would wait at a barrier that all of them must reach",
                help="bind the same axes of all members to the cluster types, or set_memory_type(Global)",
            )
        if self._ranges.is_whole_block(node):
            everyone = simplify(self._ranges.threads * blocks, self._ranges.facts)
            return PSync((Barrier(BarrierScope.CLUSTER, everyone, note=note),), of, True, covered)
        name = self._one_of_each.get(node)
        if name is None:
            name = self._one_of_each[node] = f"sync{len(self.mbarriers)}"
            self.mbarriers.append((name, 2, blocks))
            self._cursors.append((f"{name}.c", 2))
        cursor = f"{name}.c"
        slot = BarrierSlot(name, Cursor(cursor).slot)
        across = tuple(p for p in CLUSTER_TYPES if self._ranges.launch[p] is not ONE)
        meet = Arrive(slot, across, MbarrierScope.CLUSTER), Wait(slot, Cursor(cursor).parity, MbarrierScope.CLUSTER)
        first = and_(*(eq(hardware_index(p), self._ranges.range(node, p).start) for p in THREAD_TYPES if self._ranges.launch[p] is not ONE))
        own = self.in_block(node, of, note).stmts
        after = self.in_block(node, of, "and of the other blocks of the cluster").stmts
        return PSync((*own, If((Branch(first, meet),)), Advance(cursor, ONE), *after), of, True, covered)

    def _is_whole_cluster(self, node: Node) -> bool:
        """True if a node runs in every block of each cluster that it runs in."""
        return all(self._ranges.range(node, p).extent is self._ranges.launch[p] for p in CLUSTER_TYPES)

    def has_whole_warps(self, node: Node) -> bool:
        """Whether each 32 neighbors along TIDx in a node's thread range form a warp."""
        lanes = self._ranges.range(node, ParallelType.TIDx)
        launched = self._ranges.launch[ParallelType.TIDx]
        return all(isinstance(e, Const) and e.value % WARP == 0 for e in (lanes.start, lanes.extent, launched))

    def in_block(self, node: Node, of: Origin, note: str) -> PSync:
        """A barrier of all threads of a node's thread range in one block."""
        threads, all_threads = self._ranges.count(node), frozenset(THREAD_TYPES)
        if self._ranges.is_whole_block(node):
            return PSync((Barrier(BarrierScope.BLOCK, self._ranges.threads, note=note),), of, True, all_threads)
        if self._ranges.is_aligned(node) and isinstance(threads, Const):
            if threads.value == WARP:
                return PSync((Barrier(BarrierScope.WARP, threads, note=note),), of, True, all_threads)
            id = self._ids(node, all_threads, 1)
            if id is not None:
                return PSync((Barrier(BarrierScope.NAMED, threads, id=const(id), note=note),), of, True, all_threads)
        return self._mbarrier(node, of, threads, all_threads)

    def _ids(self, node: Node, types: frozenset[ParallelType], count: int) -> int | None:
        """The first of ``count`` consecutive named barriers for a node: its own; if too few are left, those of another node with its threads, which come to
        all of them in one order; else ``None``."""
        known = self._named.get((node, types))
        if known is not None:
            return known[0]
        first = 1 + max((last for (other, _), (_, last) in self._named.items() if self._ranges.may_share_block(node, other)), default=0)
        last = first + count - 1
        if last > MAX_NAMED:
            alike = (ids for (other, its), ids in self._named.items() if its == types and self._has_threads_of(other, node))
            return next((first for first, _ in alike), None)
        self._named[(node, types)] = (first, last)
        return first

    def _has_threads_of(self, a: Node, b: Node) -> bool:
        return all(self._ranges.range(a, p) == self._ranges.range(b, p) for p in THREAD_TYPES)

    def _slice(self, node: Node, types: frozenset[ParallelType], of: Origin, note: str) -> PSync | None:
        """The barrier of one slice of a node's thread range, if data stays within it and the slice is made of whole warps."""
        high = max(THREAD_TYPES.index(p) for p in types)
        inner, outer = THREAD_TYPES[: high + 1], THREAD_TYPES[high + 1 :]
        width = self._ranges.count(node, inner)
        slices = self._ranges.count(node, outer)
        full = all(self._ranges.range(node, p).extent is self._ranges.launch[p] for p in inner)
        if slices is ONE or not full or not isinstance(width, Const) or width.value % WARP or not isinstance(slices, Const):
            return None
        covered = frozenset(inner)
        if width.value == WARP:
            return PSync((Barrier(BarrierScope.WARP, width, note=note),), of, True, covered)
        id = self._ids(node, covered, slices.value)
        if id is None:
            return None
        index = const(0)
        for p in reversed(outer):
            index_range = self._ranges.range(node, p)
            index = index * index_range.extent + (hardware_index(p) - index_range.start if index_range.extent is not ONE else 0)
        return PSync((Barrier(BarrierScope.NAMED, width, id=simplify(index + id, self._ranges.facts), note=note),), of, True, covered)

    def _mbarrier(self, node: Node, of: Origin, threads: Expr, types: frozenset[ParallelType]) -> PSync:
        """The form for any thread set: everybody arrives at an mbarrier and waits for the phase."""
        name = self._stand_in.get(node)
        if name is None:
            name = self._stand_in[node] = f"sync{len(self.mbarriers)}"
            self.mbarriers.append((name, 1, threads))
            self._cursors.append((f"{name}.c", 1))
        slot = BarrierSlot(name, const(0))
        cursor = f"{name}.c"
        return PSync((Arrive(slot), Wait(slot, Cursor(cursor).parity), Advance(cursor, ONE)), of, True, types)

    def cursor_inits(self) -> list[CursorInit]:
        """The cursors of the mbarriers that replace named barriers."""
        return [CursorInit(c, slots, 0, 0) for c, slots in self._cursors]
