"""Threads of a kernel that runs, and what they wait in: warps, blocks, clusters, mbarriers."""

from __future__ import annotations

from dataclasses import dataclass, field

from taskfuse.target import WARP
from taskfuse.testing.ptx.events import RANK, Kind
from taskfuse.testing.ptx.machine import Thread, ThreadEvent
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.storage import Storage

Reply = tuple[int, ...]
"""The results of an event."""


@dataclass(slots=True)
class PtxMbarrier:
    """An mbarrier (PTX ISA, "mbarrier"): a phase ends when no arrival and no byte is missing.

    Attributes:
        count: arrivals of a phase; ``missing``: those that are missing; ``bytes``: bytes that are missing.
        phase: the number of phases that ended.
        waiting: threads that wait, each with the parity of the phase that must end.
    """

    count: int
    missing: int
    bytes: int = 0
    phase: int = 0
    waiting: list[tuple[PtxThread, int]] = field(default_factory=list["tuple[PtxThread, int]"])

    def arrive(self, line: int, count: int, moved: int = 0) -> list[PtxThread]:
        """Take arrivals, and bytes that have been moved; negative: that are expected. Returns the threads whose wait ends.

        Raises:
            PtxError: more arrivals than it counts.
        """
        self.missing -= count
        self.bytes -= moved
        if self.missing < 0:
            raise PtxError(line, "more arrivals at an mbarrier than it counts")
        if self.missing or self.bytes:
            return []
        self.missing = self.count
        self.phase += 1
        done = [w for w in self.waiting if self.has_ended(w[1])]
        self.waiting = [w for w in self.waiting if w not in done]
        return [thread for thread, _ in done]

    def has_ended(self, parity: int) -> bool:
        """Whether the phase of a parity is not the current one."""
        return bool((self.phase ^ parity) & 1)


@dataclass(slots=True, eq=False)
class PtxWarp:
    """Lanes that have not ended, and those that wait for each other, by what they wait in."""

    live: int = 0
    waiting: dict[tuple[Kind, int], dict[int, tuple[PtxThread, ThreadEvent]]] = field(
        default_factory=dict[tuple[Kind, int], "dict[int, tuple[PtxThread, ThreadEvent]]"]
    )


@dataclass(slots=True, eq=False)
class PtxBlock:
    """A block: its barriers, by number the threads that wait, and its mbarriers, by address."""

    cluster: PtxCluster
    barriers: dict[int, list[PtxThread]] = field(default_factory=dict[int, "list[PtxThread]"])
    mbarriers: dict[int, PtxMbarrier] = field(default_factory=dict[int, PtxMbarrier])
    products: dict[tuple[int, Kind], dict[int, tuple[PtxThread, ThreadEvent]]] = field(
        default_factory=dict[tuple[int, Kind], "dict[int, tuple[PtxThread, ThreadEvent]]"]
    )


@dataclass(slots=True, eq=False)
class PtxCluster:
    """Blocks that share a barrier.

    Attributes:
        threads: those of all its blocks.
        arrived: arrivals at the barrier; ``waiting``: threads that wait for its end.
    """

    blocks: list[PtxBlock] = field(default_factory=list["PtxBlock"])
    threads: int = 0
    arrived: int = 0
    phase: int = 0
    waiting: list[PtxThread] = field(default_factory=list["PtxThread"])


@dataclass(slots=True, eq=False)
class PtxThread:
    """A thread.

    Attributes:
        number: in its block.
        doing: its last event.
        counter: the last value that it has read of a counter.
    """

    coroutine: Thread
    block: PtxBlock
    warp: PtxWarp
    number: int
    storage: Storage
    name: str
    doing: ThreadEvent | None = None
    cluster_phase: int = 0
    counter: int = 0

    @property
    def lane(self) -> int:
        return self.number % WARP

    def mbarrier(self, line: int, address: int) -> PtxMbarrier:
        """The mbarrier at an address of its block, or of the block of its cluster that the address names. Raises :class:`PtxError` if there is none."""
        block = self.block if address < RANK else self.block.cluster.blocks[address // RANK - 1]
        found = block.mbarriers.get(address % RANK)
        if found is None:
            raise PtxError(line, f"no mbarrier was initialized at {address:#x}")
        return found
