"""Global memory that bulk copies read or write: the writes that the asynchronous proxy may not see yet.

The copy engine sees a write of a thread after a ``fence.proxy.async.global`` of that thread. For the copies of other threads, the writes of a TMA store
count as writes of the issuing thread once its full wait_group is done; before that no thread may access them. As in Shared memory, this is checked in every
interleaving, whenever the operation itself runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Lanes
from taskfuse.sim.region import Region

Ints = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class GlobalFences:
    """The proxy fences for Global memory of all threads of a launch, numbered block by block.

    Attributes:
        threads: threads of a block.
        clock: number of writes that need a fence and of fences, so far.
        times: the clock at the last fence of each thread, by block.
    """

    threads: int
    clock: int = 0
    times: dict[int, Ints] = field(default_factory=lambda: dict[int, Ints]())

    def fence(self, block: int, lanes: Lanes) -> None:
        """``fence.proxy.async.global`` by threads of a block."""
        self.clock += 1
        self.times.setdefault(block, np.zeros(self.threads, np.int64))[lanes.ids] = self.clock

    def of(self, writers: Ints) -> Ints:
        """The time of the last fence of each of some threads."""
        found = np.zeros(writers.shape, np.int64)
        for block in np.unique(writers // self.threads).tolist():
            times = self.times.get(block)
            if times is not None:
                mine = writers // self.threads == block
                found[mine] = times[writers[mine] % self.threads]
        return found


@dataclass(slots=True, eq=False)
class Published:
    """State per element of a tensor that bulk copies use.

    Attributes:
        stamps, writers: time and thread of the last write.
        by_engine: a TMA store of that thread wrote it, so its own copies see it.
        incoming: TMA stores that write it and that their issuers have not waited for; updates: those that combine something with it, which need no order among
            themselves.
        updated: the last of those that wrote it combined something with it.
    """

    fences: GlobalFences
    stamps: Ints
    writers: Ints
    by_engine: npt.NDArray[np.bool_]
    incoming: npt.NDArray[np.int16]
    updates: npt.NDArray[np.int16]
    updated: npt.NDArray[np.bool_]

    @staticmethod
    def of(elements: int, fences: GlobalFences) -> Published:
        """The state of a tensor that was not written yet."""
        stamps, writers = np.zeros((2, elements), np.int64)
        by_engine, updated = np.zeros((2, elements), np.bool_)
        incoming, updates = np.zeros((2, elements), np.int16)
        return Published(fences, stamps, writers, by_engine, incoming, updates, updated)

    def check_incoming(self, index: Any, region: Region, *, update: bool = False) -> None:
        """Raises :class:`Fault` if a TMA store that writes one of the elements has not been waited for; ``update``: what comes combines something with them."""
        if np.any(self.incoming[index]) or (not update and np.any(self.updates[index])):
            help = "the thread that issued the store must wait for it, not only for its reads, and then synchronize with the others"
            raise Fault(f"{region} accessed while a TMA store that writes it may be in flight", help=help)

    def write(self, index: Any, block: int, lanes: Lanes, region: Region) -> None:
        """Threads of a block write elements. Raises :class:`Fault` if a store may be writing them."""
        self.check_incoming(index, region)
        self._stamp(index, (lanes.first, lanes.ids, lanes.ids[:, None])[np.ndim(self.stamps[index])] + block * self.fences.threads)

    def store(self, index: Ints, *, update: bool) -> None:
        """A TMA store of elements is issued; ``update``: one that combines something with them."""
        (self.updates if update else self.incoming)[index] += 1

    def waited_for(self, index: Ints, block: int, thread: int, *, update: bool) -> None:
        """The thread that issued a TMA store has waited for it."""
        (self.updates if update else self.incoming)[index] -= 1
        self._stamp(index, block * self.fences.threads + thread)
        self.by_engine[index] = True
        self.updated[index] = update

    def _stamp(self, index: Any, writers: Any) -> None:
        self.fences.clock += 1
        self.stamps[index] = self.fences.clock
        self.writers[index] = writers
        self.by_engine[index] = self.updated[index] = False

    def unfenced(self, index: Any) -> Any:
        """The elements whose writer has not fenced since."""
        return self.stamps[index] > self.fences.of(self.writers[index])

    def check(self, index: Ints, block: int, thread: int, region: Region, *, update: bool = False) -> None:
        """Raises :class:`Fault` if a bulk copy of a thread may not see the last writes of elements; ``update``: it combines something with them."""
        self.check_incoming(index, region, update=update)
        hidden = self.unfenced(index) & ~(self.by_engine[index] & (self.writers[index] == block * self.fences.threads + thread))
        hidden &= ~(update & self.updated[index])
        if hidden.any():
            writer = int(self.writers[index][hidden][0])
            raise Fault(
                f"missing fence.proxy.async.global: {region} was written by a thread and is accessed by an asynchronous engine",
                notes=(f"written by thread {writer % self.fences.threads} of block {writer // self.fences.threads}",),
                help="the writer must execute fence.proxy.async.global after the write, or the wait_group of its store, and before it publishes it",
            )
