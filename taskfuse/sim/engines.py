"""The asynchronous engines of a block: their queues, and Shared memory as they see it.

An engine reads and writes memory when it executes an operation, not when the operation is issued; the interleaving decides when. Two rules are
checked at issue, since they hold for every interleaving: the writer has fenced the generic writes that the engine sees
(``fence.proxy.async``), and nothing writes the engine's source before the operation was waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from taskfuse.kir.operands import Queue
from taskfuse.sim.barriers import MbarrierCell, Waiter
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Lanes
from taskfuse.sim.memory import Proxy, check_incoming
from taskfuse.sim.region import Region
from taskfuse.target import WARP

if TYPE_CHECKING:
    from taskfuse.sim.block import Block
    from taskfuse.sim.observer import Observer

Ints = npt.NDArray[np.int64]
OPERATIONS = {Queue.WGMMA: "a wgmma", Queue.BULK: "a TMA store", Queue.COPY: "an asynchronous copy"}


class OperationState(IntEnum):
    """The progress of an operation."""

    ISSUED = 0
    SOURCE_READ = 1
    DONE = 2


class Action(Protocol):
    """An operation of an asynchronous engine.

    Attributes:
        pc: statement that issued it.
        block, thread: its issuer.
        target: the block whose registers or Shared memory it uses.
    """

    pc: int
    block: Block
    thread: int

    @property
    def target(self) -> Block: ...

    def execute(self) -> None:
        """Execute it. Called once."""
        ...


class Arrival(Action, Protocol):
    """Arrivals for asynchronous copies (:class:`taskfuse.sim.copies.ArriveOperation`).

    Attributes:
        owners: the threads that arrive.
        barrier: the mbarrier.
        covered: the copies; ``left``: the number of copies that are not done.
    """

    owners: list[int]
    barrier: MbarrierCell
    left: int

    @property
    def covered(self) -> Sequence[Operation]: ...


class Operation(Protocol):
    """An operation in a queue."""

    progress: OperationState

    def holds(self, owner: int) -> bool:
        """True if the owner of a queue with this operation has not waited for it in another way."""
        ...

    def waited_for(self, owners: Sequence[int], wanted: OperationState) -> None:
        """Owners of queues with this operation have waited until it reached the state ``wanted``, all in one instruction."""
        ...


@dataclass(slots=True, eq=False)
class Fifo:
    """A commit queue of one owner: batches of operations, and the operations issued since the last commit."""

    owner: int
    batches: list[list[Operation]] = field(default_factory=lambda: list[list[Operation]]())
    open: list[Operation] = field(default_factory=lambda: list[Operation]())

    def commit(self) -> None:
        """Close the batch."""
        self.batches.append(self.open)
        self.open = []

    def covered(self, pending: int) -> list[list[Operation]]:
        """All but the last ``pending`` batches."""
        return self.batches[: max(0, len(self.batches) - pending)]

    def done(self, pending: int, wanted: OperationState) -> bool:
        """True if all but the last ``pending`` batches have reached the state ``wanted``."""
        return all(op.progress >= wanted for batch in self.covered(pending) for op in batch)

    def operations(self) -> Iterator[Operation]:
        """All operations that were not waited for to the end."""
        for batch in self.batches:
            yield from batch
        yield from self.open


def wait(fifos: Iterable[Fifo], pending: int, wanted: OperationState, observer: Observer | None) -> bool:
    """True if all but the last ``pending`` batches of each queue have reached the state ``wanted``; where they have, they count as waited for."""
    waited: dict[Operation, list[int]] = {}
    all_done = True
    for fifo in fifos:
        covered = fifo.covered(pending) if fifo.batches else []
        if not covered and observer is None:
            continue
        operations = [op for batch in covered for op in batch]
        if any(op.progress < wanted for op in operations):
            all_done = False
            continue
        if observer is not None:
            observer.waited_for(operations, (fifo.owner,), wanted is not OperationState.DONE)
        for op in operations:
            waited.setdefault(op, []).append(fifo.owner)
        if wanted is OperationState.DONE:
            del fifo.batches[: len(covered)]
    for op, owners in waited.items():
        op.waited_for(owners, wanted)
    return all_done


@dataclass(frozen=True, slots=True, eq=False)
class Claim:
    """Elements of Shared memory that an operation reads."""

    proxy: Proxy
    index: Ints

    def take(self) -> None:
        """From here on, no thread may write them."""
        self.proxy.readers[self.index] += 1

    def drop(self) -> None:
        """The operation was waited for."""
        self.proxy.readers[self.index] -= 1


class Engines:
    """The engines of a block.

    Attributes:
        queues: per queue and owner: a warp (wgmma) or a thread (bulk, copy).
        tensor: wgmmas that are not executed yet, in order, per warpgroup.
        loads: TMA loads that are not executed yet.
        arrivals: arrivals for asynchronous copies that are not counted yet.
        waiters: agents that wait in a wait_group.
        fences: the memory's clock at the last proxy fence of each thread.
    """

    __slots__ = ("arrivals", "block", "fences", "loads", "queues", "tensor", "waiters")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.queues: dict[tuple[Queue, int], Fifo] = {}
        self.tensor: dict[int, list[Action]] = {}
        self.loads = 0
        self.arrivals: list[Arrival] = []
        self.waiters: list[Waiter] = []
        self.fences = np.zeros(block.threads, np.int64)

    def fence(self, lanes: Lanes) -> None:
        """``fence.proxy.async`` by the lanes."""
        memory = self.block.memory
        memory.clock += 1
        self.fences[lanes.ids] = memory.clock

    def fifo(self, queue: Queue, owner: int) -> Fifo:
        """The queue of a warp or thread."""
        found = self.queues.get((queue, owner))
        if found is None:
            found = self.queues[queue, owner] = Fifo(owner)
        return found

    def progressed(self) -> None:
        """Wake the agents that wait for an operation that has progressed."""
        woken, self.waiters = self.waiters, []
        self.block.machine.wake(woken)

    def leave(self, lanes: Lanes) -> None:
        """Check that threads may exit: none of their operations may still read Shared memory or write registers, and no load may follow the last of them."""
        if self.queues:
            threads, warps = set(lanes.ids.tolist()), set((lanes.ids // WARP).tolist())
            for (queue, owner), fifo in self.queues.items():
                if owner not in (warps if queue is Queue.WGMMA else threads):
                    continue
                if any(not self._covers(op, owner) for op in fifo.operations()):
                    raise Fault(f"thread exits with {OPERATIONS[queue]} that was never waited for", thread=lanes.first)
        if self.block.exited + lanes.count == self.block.threads:
            if self.loads:
                raise Fault(f"the block exits while {self.loads} TMA loads are in flight")
            if self.arrivals:
                raise Fault(f"the block exits while {len(self.arrivals)} arrivals for asynchronous copies are outstanding")

    def _covers(self, operation: Operation, owner: int) -> bool:
        """True if an arrival to come waits for an operation of a thread."""
        return any(owner in a.owners and operation in a.covered for a in self.arrivals)

    # -- Shared memory as the asynchronous proxy sees it ------------------------------------------------------------------------------

    def index(self, region: Region, byte_addresses: Ints) -> Ints:
        """Index into the store of a Shared region, of elements at byte addresses."""
        outside = (byte_addresses < region.origin) | (byte_addresses >= region.origin + region.elements * region.dtype.itemsize)
        if outside.any():
            first = int(byte_addresses[outside][0]) - region.origin
            raise Fault(f"{region} accessed out of bounds", notes=(f"byte {first} of {region.elements * region.dtype.itemsize}",))
        return byte_addresses // region.dtype.itemsize * region.step

    def check_visible(self, region: Region, proxy: Proxy, index: Ints) -> None:
        """Raises :class:`Fault` if a generic write to one of the elements was not fenced by its writer, or a load is about to overwrite one."""
        check_incoming(proxy, index, region)
        if self.block.memory.observer is not None:
            self.block.memory.observer.visibility(self.block.memory, region, index)
        writers = proxy.writers[index]
        unfenced = proxy.stamps[index] > self.fences[writers]
        if unfenced.any():
            writer = int(writers[unfenced][0])
            raise Fault(
                f"missing fence.proxy.async: {region} was written by a thread and is accessed by an asynchronous engine",
                notes=(f"written by thread {self.block.machine.table.coordinates(writer)}",),
                help="the writer must execute fence.proxy.async after the write and before it publishes it",
            )

    def claim(self, region: Region, byte_addresses: Ints) -> Claim:
        """The elements at byte addresses, which must be visible, claimed by an operation that reads them."""
        index = self.index(region, byte_addresses)
        proxy = self.proxy(region)
        self.check_visible(region, proxy, index)
        if self.block.memory.observer is not None:
            self.block.memory.observer.access(self.block.memory, region, index, write=False)
        claim = Claim(proxy, index)
        claim.take()
        return claim

    def proxy(self, region: Region) -> Proxy:
        """The proxy state of a Shared region."""
        found = self.block.memory.stores[region.number].proxy
        assert found is not None
        return found

    def gather(self, region: Region, byte_addresses: Ints, needed: npt.NDArray[np.bool_] | None = None) -> Any:
        """The elements at byte addresses, those ``needed`` being initialized and visible."""
        store = self.block.memory.stores[region.number]
        index = self.index(region, byte_addresses)
        looked_at = index if needed is None else index[needed]
        if self.block.memory.observer is not None:
            self.block.memory.observer.access(self.block.memory, region, looked_at, write=False)
        assert store.valid is not None
        if (store.valid[looked_at] != store.full).any():
            raise Fault(f"read of uninitialized {region}")
        self.check_visible(region, self.proxy(region), looked_at)
        found = store.data[index]
        return found if store.dtype is None else found.astype(store.dtype)
