"""Parts of the second machine, put together by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from taskfuse.testing.machine.barriers import MachineBarriers
from taskfuse.testing.machine.engines import MachineEngines
from taskfuse.testing.machine.fault import FaultFound, FaultKind
from taskfuse.testing.machine.memory import MachineMemory
from taskfuse.testing.machine.threads import MachineThreads


class Parts:
    """Threads, barriers, memory and engines of a launch; cells of 4 bytes.

    Attributes:
        woken: threads that were made ready.
        pending: what engines have still to do.
    """

    def __init__(self, blocks: int = 1, block_threads: int = 64, slots: int = 2, *, clusters: bool = False) -> None:
        self.threads = MachineThreads(blocks * block_threads, blocks * slots, clusters=clusters)
        self.woken: list[int] = []
        self.pending: list[Callable[[], None]] = []
        self.barriers = MachineBarriers(self.threads, blocks, block_threads, slots, self.woken.extend)
        self.memory = MachineMemory(self.threads)
        self.engines = MachineEngines(self.threads, self.memory, self.barriers, 4, 4, self.pending.append)

    def fence(self, t: int) -> None:
        """A proxy fence for Shared memory."""
        self.threads.own[t] += 1
        self.threads.shared_fences[t].append(self.threads.own[t])

    def init(self, count: int, k: int = 0) -> None:
        """An mbarrier that thread 0 has initialized and fenced, as all know."""
        self.barriers.initialize(0, 0, k, count)
        self.threads.own[0] += 1
        self.barriers.init_fences[0].append(self.threads.own[0])
        self.synchronize(range(self.threads.count))

    def synchronize(self, threads: Sequence[int]) -> None:
        """A barrier of some threads."""
        self.threads.synchronize(list(threads))

    def engines_go_on(self) -> None:
        """They do all that they have to."""
        while self.pending:
            self.pending.pop(0)()


def fault(call: Callable[[], object], kind: FaultKind) -> str:
    """The reason of the fault that a call finds."""
    with pytest.raises(FaultFound) as caught:
        call()
    assert caught.value.kind is kind
    return caught.value.reason
