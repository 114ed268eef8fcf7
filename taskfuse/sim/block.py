"""A thread block: its memory, its barriers and its asynchronous queues."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from taskfuse.ir.types import ParallelType
from taskfuse.kir.clusters import Int3, peers
from taskfuse.sim.barriers import BarrierCell, MbarrierCell, SemaphoreArray, Waiter
from taskfuse.sim.engines import Action, Engines
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import LaneTable
from taskfuse.sim.memory import Memory, Store
from taskfuse.sim.published import GlobalFences

if TYPE_CHECKING:
    from taskfuse.sim.observer import Observer


class BlockHost(Protocol):
    """The interface of the machine to a block and its engines (:class:`taskfuse.sim.machine.Machine`).

    Attributes:
        table: sets of the threads of a block.
        scalars: values of the run-time scalars, as stored.
        counters: grid barriers.
        semaphores: counters in Global memory, by name.
        fences: proxy fences for Global memory.
        observer: the observer of the run, if any.
    """

    table: LaneTable
    scalars: dict[str, Any]
    counters: dict[str, BarrierCell]
    semaphores: dict[str, SemaphoreArray]
    fences: GlobalFences
    observer: Observer | None

    def claimed(self, queue: str, block: int, position: int) -> int:
        """The number at a position of a block's claims from a queue."""
        ...

    def wake(self, agents: list[Waiter]) -> None:
        """Let blocked agents continue."""
        ...

    def post(self, action: Action) -> None:
        """Make an operation available to its engine."""
        ...


class Cluster:
    """Blocks that are launched together.

    Attributes:
        shape: extents (x, y, z).
        first: linear id of the first of its blocks, which identifies the cluster.
        blocks: by rank.
        barrier: the barrier of the whole cluster.
        stores: of buffers by rank, by region number.
        has_begun: all its blocks have started, as a completed cluster barrier shows.
    """

    __slots__ = ("barrier", "blocks", "first", "has_begun", "shape", "stores")

    def __init__(self, shape: Int3, first: int, stores: dict[int, Store]) -> None:
        self.shape = shape
        self.first = first
        self.stores = stores
        self.has_begun = False
        self.blocks: dict[int, Block] = {}
        self.barrier = BarrierCell("cluster barrier")

    def rank(self, place: Int3) -> int:
        """``%cluster_ctarank`` of the block at an index."""
        return place[0] + self.shape[0] * (place[1] + self.shape[1] * place[2])

    @property
    def threads(self) -> int:
        """Threads of all its blocks."""
        return sum(b.threads for b in self.blocks.values())

    @property
    def exited(self) -> int:
        """Threads that have exited."""
        return sum(b.exited for b in self.blocks.values())


class Block:
    """A thread block.

    Attributes:
        number: linear block id; ``index``: (x, y, z).
        barrier: the block-wide barrier.
        named: the hardware barriers, by id.
        warps: barriers inside warps, by (statement, warp).
        exited: threads that have exited.
        cluster: its cluster; ``place``: its index there.
    """

    __slots__ = ("barrier", "cluster", "engines", "exited", "index", "machine", "mbarriers", "memory", "named", "number", "place", "threads", "warps")

    def __init__(
        self, machine: BlockHost, number: int, index: tuple[int, int, int], threads: int, memory: Memory, mbarriers: dict[str, int], cluster: Cluster
    ) -> None:
        self.machine = machine
        self.number = number
        self.index = index
        self.threads = threads
        self.memory = memory
        self.cluster = cluster
        self.place: Int3 = (index[0] % cluster.shape[0], index[1] % cluster.shape[1], index[2] % cluster.shape[2])
        cluster.blocks[cluster.rank(self.place)] = self
        memory.peers = self
        self.mbarriers = {name: [MbarrierCell(f"{name}[{slot}]", number) for slot in range(slots)] for name, slots in mbarriers.items()}
        self.barrier = BarrierCell("block barrier")
        self.named: defaultdict[int, BarrierCell] = defaultdict(lambda: BarrierCell("named barrier"))
        self.warps: dict[tuple[int, int], BarrierCell] = {}
        self.exited = 0
        self.engines = Engines(self)

    def reached(self, across: tuple[ParallelType, ...]) -> tuple[Block, ...]:
        """The blocks that an arrival, or a copy, of this one reaches across some cluster types. Raises :class:`Fault` if one has exited."""
        if not across:
            return (self,)
        found = tuple(self.cluster.blocks[rank] for rank in peers(self.place, self.cluster.shape, across))
        for block in found:
            self._reach(block)
        return found

    def _reach(self, block: Block) -> None:
        if block is self:
            return
        if self.machine.observer is not None:
            self.machine.observer.reach(block)
        if block.exited == block.threads:
            raise Fault(f"block {block.index} of the cluster is reached after it has exited", help="end the kernel with a barrier of the cluster")

    def access(self, ranks: Iterable[int]) -> None:
        """Record that its threads access Shared memory of the blocks of these ranks. Raises :class:`Fault` if one may not have started, or has exited."""
        for rank in ranks:
            block = self.cluster.blocks[rank]
            self._reach(block)
            if block is not self and not self.cluster.has_begun:
                raise Fault(
                    f"Shared memory of block {block.index} of the cluster is accessed before it is known to have begun",
                    help="put a barrier of the cluster before the first access",
                )
