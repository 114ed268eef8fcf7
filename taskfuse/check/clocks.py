"""Vector clocks of a launch: a component for each thread, then one for each of its queues of asynchronous operations."""

from __future__ import annotations

from typing import Any

import numpy as np

from taskfuse.check.trace import Clock, Event, Trace
from taskfuse.ir.types import ParallelType
from taskfuse.kir import Kernel, stmt_text, walk
from taskfuse.kir.clusters import constant_shape, peers
from taskfuse.kir.nodes import AsyncCopy, TmaLoad, TmaStore
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Arrive
from taskfuse.target import MAX_THREADS, WARP


class Clocks:
    """The vector clocks of the threads of some blocks.

    Attributes:
        per: threads of a block; ``size``: of all blocks.
        engines: the components of asynchronous operations.
        owners: the thread of each component.
        copies, stores: components of asynchronous copies, and of writes by bulk stores.
        clocks: by thread.
        issued: operations so far, by component.
    """

    def __init__(self, kernel: Kernel, traces: list[Trace]) -> None:
        self.kernel = kernel
        self.per = traces[0].threads
        self._peers = _peers(kernel, traces)
        events = [e for t in traces for e in t.events]
        self.size = len(events)
        self.engines = self._engines(events)
        self.owners = [*range(self.size), *(t for t, *_ in self.engines)]
        self.copies = {component for (_, queue, *_), component in self.engines.items() if queue is Queue.COPY}
        self.stores = {component for (_, *what), component in self.engines.items() if what == [Queue.BULK, "write"]}
        self.clocks = np.zeros((self.size, len(self.owners)), np.int32)
        self.issued = [0] * len(self.owners)

    def _engines(self, events: list[list[Event]]) -> dict[tuple[Any, ...], int]:
        """Clock components, after those of the threads, of asynchronous operations: those of a thread that complete in order share one.

        Stores, wgmmas and asynchronous copies complete in order, and the reads of stores before their writes. Loads complete in any order, but for those
        that one mbarrier counts: a thread that waits for a phase of it has waited for the phases before.
        """
        found: dict[tuple[Any, ...], int] = {}
        for t, of_thread in enumerate(events):
            for e in of_thread:
                match e.stmt:
                    case TmaLoad():
                        keys: list[tuple[Any, ...]] = [(t, Queue.BULK, block, *e.key) for block in self.reached(t, e)]
                    case TmaStore():
                        keys = [(t, Queue.BULK, "read"), (t, Queue.BULK, "write")]
                    case Wgmma():
                        keys = [(self.leader(t), e.key)]
                    case AsyncCopy():
                        keys = [(t, e.key)]
                    case _:
                        keys = []
                for key in keys:
                    found.setdefault(key, self.size + len(found))
        return found

    def unit(self, t: int, size: int) -> int:
        """The number of a thread's warp (warpgroup), unique among all blocks."""
        return t // self.per * MAX_THREADS + t % self.per // size

    def leader(self, t: int) -> int:
        """The first thread of a thread's warp."""
        return t - t % self.per % WARP

    def reached(self, t: int, e: Event) -> tuple[int, ...]:
        """The blocks, by their position among the traces, that an arrival or a load reaches."""
        across = e.stmt.across if isinstance(e.stmt, Arrive | TmaLoad) else ()
        return self._peers[t // self.per, across] if across else (t // self.per,)

    def tick(self, t: int) -> int:
        """The next time of a thread."""
        self.clocks[t, t] += 1
        return int(self.clocks[t, t])

    def fork(self, t: int, *components: int) -> Clock:
        """The clock of an operation that a thread issues: after everything that the thread did. The last component is the operation's own."""
        self.tick(t)
        self.issued[components[-1]] += 1
        clock = self.clocks[t].copy()
        for component in components:
            clock[component] = self.issued[component]
        return clock

    def text(self, e: Event) -> str:
        """The statement of an event."""
        return stmt_text(e.stmt, self.kernel)

    def who(self, t: int, e: Event) -> str:
        """The thread and the statement of an event."""
        blocks = f"block {t // self.per}, " if self.size > self.per else ""
        return f"{blocks}thread {t % self.per}{' in ' + e.role if e.role else ''}: " + self.text(e)


def _peers(kernel: Kernel, traces: list[Trace]) -> dict[tuple[int, tuple[ParallelType, ...]], tuple[int, ...]]:
    """For each block of a cluster, given in the order of their ranks, and each set of cluster types that the kernel names: whom it reaches."""
    shape = constant_shape(kernel.cluster)
    named = {s.across for s in walk(kernel) if isinstance(s, Arrive | TmaLoad) and s.across}
    if shape is None or len(traces) != shape[0] * shape[1] * shape[2]:
        return {}
    places = [(k % shape[0], k // shape[0] % shape[1], k // (shape[0] * shape[1])) for k in range(len(traces))]
    return {(k, across): peers(place, shape, across) for k, place in enumerate(places) for across in named}
