"""One launch, checked for all its interleavings at once: happens-before by vector clocks.

Control flow in kernel IR depends on indices alone, so the events of every thread are known before anything runs. One run then covers all
interleavings: if each wait comes after the completion of the phase before (E) and before that of the next but one (L), and each arrival after the
completion of the phase before (A), then every run has the same happens-before, and two conflicting accesses that it does not order race in some run.
A violation is a counterexample to the kernel at these extents. The absence of one says nothing about other extents.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np

from taskfuse.check.clocked_barriers import ClockedBarriers
from taskfuse.check.clocked_mbarriers import ClockedMbarriers
from taskfuse.check.clocks import Clocks
from taskfuse.check.known import together
from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.check.shadow import Shadow
from taskfuse.check.touched_elements import places
from taskfuse.check.trace import BLOCKS, Clock, Event, Trace
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.channels import ring_text
from taskfuse.kir.clusters import constant_shape, is_of_clusters
from taskfuse.kir.nodes import AsyncCopy, AtomicUpdate, Choose, Compute, GatherCopy, TmaLoad, TmaStore, VectorCopy
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import LdMatrix, StMatrix, Wgmma
from taskfuse.kir.synchronization import (
    Acquire,
    Arrive,
    ArriveAsync,
    Barrier,
    BarrierScope,
    Commit,
    Expect,
    FenceInit,
    FenceProxyAsync,
    InitBarrier,
    Release,
    SetMaxNReg,
    Wait,
    WaitGroup,
)
from taskfuse.target import MAX_THREADS, WARP, WARPGROUP

_OPERATIONS = {Queue.WGMMA: "a wgmma", Queue.BULK: "a TMA store", Queue.COPY: "an asynchronous copy"}


class Run:
    """One run of some blocks, with clocks."""

    def __init__(self, kernel: Kernel, traces: list[Trace], symbols: Mapping[str, int]) -> None:
        self.kernel = kernel
        self.events = [e for t in traces for e in t.events]
        self.time = time = Clocks(kernel, traces)
        self.per, self.size, self.engines, self.clocks, self.issued = time.per, time.size, time.engines, time.clocks, time.issued
        self.shadow = Shadow(time, traces[0].memory, places(kernel, symbols))
        self.visits: dict[int, list[tuple[int, int, int, Event]]] = {}
        self.at = [0] * self.size
        self.mbarriers = ClockedMbarriers(kernel, symbols, time)
        self.barriers = ClockedBarriers(time, self.events, self.at)
        self.queues: dict[tuple[int, Queue], list[list[tuple[Clock, Clock]]]] = {}
        self.open: dict[tuple[int, Queue], list[tuple[Clock, Clock]]] = {}
        self.of_rank = {
            b.name: max(1, int(evaluate(b.bytes_of_block, symbols)) // b.dtype.itemsize) for b in kernel.buffers if MEDIA[b.memory].is_by_rank
        }  # elements of each block of the cluster
        self.published: list[list[int]] = [[] for _ in range(self.size)]
        self.loads: dict[int, tuple[int, int, Event]] = {}
        self.products: dict[tuple[int, int, int], Clock] = {}
        launched = kernel.launch_registers
        self.registers = [launched or 0] * self.size
        self.left = [math.inf if launched is None else 0] * len(traces)  # that no warpgroup of a block has

    def run(self) -> None:
        """Run to the end. Raises :class:`Refuted`."""
        ready = list(range(self.size))
        while ready:
            progress: list[int] = []
            for t in ready:
                while self.at[t] < len(self.events[t]):
                    if not self._step(t, self.events[t][self.at[t]]):
                        break
                    self.at[t] += 1
                    if not progress or progress[-1] != t:
                        progress.append(t)
            ready = [t for t in range(self.size) if self.at[t] < len(self.events[t])]
            if ready and not progress:
                raise self._stuck(ready)
        for component, (t, block, e) in self.loads.items():
            if self.clocks[block * self.per : (block + 1) * self.per, component].max() < self.issued[component]:
                raise Refuted(f"{e.key[0]}[{e.key[1]}]", "the block may exit while a TMA load is in flight: no thread waits for it", self.time.who(t, e))
        for (t, queue), batches in (*self.queues.items(), *((k, [v]) for k, v in self.open.items())):
            if queue is Queue.COPY:
                component = self.engines.get((t, queue), t)  # a thread that only commits has nothing in its batches
                known = self.clocks[t // self.per * self.per :][: self.per, component].max()  # a wait for a later arrival orders them, too
                batches = [[c for c in batch if c[0][component] > known] for batch in batches]
            if any(batches):
                raise Refuted(f"thread {t % self.per}", f"it exits while {_OPERATIONS[queue]} of its may be in flight")
        for block, visits in self.visits.items():
            last = self.clocks[block * self.per : (block + 1) * self.per].max(axis=0)
            for component, time, t, e in visits:
                if last[component] < time:
                    raise Refuted(f"block {block}", "it may exit before an access from another block of the cluster", self.time.who(t, e))

    def _stuck(self, ready: list[int]) -> Refuted:
        groups: dict[tuple[int, Any], list[int]] = {}
        for t in ready:
            e = self.events[t][self.at[t]]
            groups.setdefault((id(e.stmt), e.key), []).append(t)
        notes: list[str] = []
        for threads in groups.values():
            e = self.events[threads[0]][self.at[threads[0]]]
            notes.append(f"{_threads(threads, self.per)}{' in ' + e.role if e.role else ''} wait: " + self.time.text(e) + self._state(threads[0], e))
        return Refuted("deadlock", "no thread can continue", *notes)

    def _state(self, t: int, e: Event) -> str:
        if isinstance(e.stmt, Acquire):
            semaphore = self.mbarriers.semaphore(t, e)
            state = f"{len(semaphore.done)} phases complete, {semaphore.released} of {semaphore.count} releases in the next"
            return f" (thread {t % self.per} of block {t // self.per} waits for {e.values}; {state}{ring_text(self.kernel, e.stmt)})"
        if isinstance(e.stmt, SetMaxNReg) and self.registers[t] < e.stmt.registers:
            return f" (thread {t % self.per} has {self.registers[t]} registers, and {self.left[t // self.per]} of its block are free)"
        if not isinstance(e.stmt, Wait):
            return ""
        name, slot = e.key
        cell = self.mbarriers.cells.get((t // self.per, name, slot))
        if cell is None:
            return f" ({name}[{slot}] is not initialized)"
        state = f"phase {len(cell.done) - 1}, {cell.pending} of {cell.count} arrivals and {cell.bytes} bytes pending"
        return f" ({name}[{slot}]: {state}{ring_text(self.kernel, e.stmt)})"

    # -- steps --------------------------------------------------------------------------------------------------------------------------

    def _step(self, t: int, e: Event) -> bool:
        if isinstance(e.stmt, SetMaxNReg) and not self._takes(t, e.stmt.registers):
            return False
        if together(e.stmt) and not self.barriers.meet(t, e, BarrierScope.WARP, 0):  # a warp comes together at its instructions
            return False
        match e.stmt:
            case Compute() | Choose() | GatherCopy() | AtomicUpdate() | VectorCopy() | LdMatrix() | StMatrix():
                self.shadow.touch(t, e, e.key, e.values, e.is_write, self.clocks[t], t)
                if e.key in self.of_rank:
                    self._access(t, e, self.of_rank[e.key])
                return True
            case Barrier():
                return self.barriers.meet(t, e, e.stmt.scope, e.values)
            case InitBarrier():
                self.mbarriers.initialize(t, e)
                return True
            case Arrive() | Expect():
                for block in self.time.reached(t, e):
                    self.mbarriers.arrive(t, e, self.mbarriers.cell(t, e, block), 0 if e.values is None else e.values)
                    self._visit(block, t, t, e)
                return True
            case AsyncCopy():
                buffer, elements, source, places = e.values
                component = self.engines[t, Queue.COPY]
                clock = self.time.fork(t, component)
                if source in self.shadow.memory:
                    self.shadow.touch(t, e, source, places, False, clock, component)
                self.shadow.touch(t, e, buffer, elements, True, clock, component)
                self.open.setdefault((t, Queue.COPY), []).append((clock, clock))
                return True
            case ArriveAsync():
                cell = self.mbarriers.cell(t, e)
                component = self.engines.get((t, Queue.COPY))
                if component is not None:
                    done = self.clocks[t].copy()
                    done[component] = self.issued[component]
                    np.maximum(cell.clock, done, out=cell.clock)
                self.mbarriers.arrive(t, e, cell, 0)
                return True
            case Wait():
                return self.mbarriers.wait(t, e)
            case Release():
                semaphore = self.mbarriers.semaphore(t, e)
                self.time.tick(t)
                np.maximum(semaphore.clock, self.clocks[t], out=semaphore.clock)
                semaphore.released += 1
                if semaphore.released == semaphore.count:
                    semaphore.done.append(semaphore.clock.copy())
                    semaphore.released = 0
                return True
            case Acquire():
                semaphore = self.mbarriers.semaphore(t, e)
                phases: int = e.values
                if len(semaphore.done) < phases:
                    return False
                if phases > 0:
                    np.maximum(self.clocks[t], semaphore.done[phases - 1], out=self.clocks[t])
                return True
            case TmaLoad():
                buffer, elements, size, source, read = e.values
                for block in self.time.reached(t, e):
                    component = self.engines[t, Queue.BULK, block, *e.key]
                    clock = self.time.fork(t, component)
                    self.loads[component] = t, block, e
                    if len(read):
                        self.shadow.touch(t, e, source, read, False, clock, component)
                    self.shadow.touch(t, e, buffer, elements, True, clock, component, block)
                    cell = self.mbarriers.cell(t, e, block)
                    self.mbarriers.in_phase(t, e, cell)
                    if not self._fenced(self.published, cell.maker, cell.made, clock):
                        reason = "the copy engine may use it before its initialization is visible: without an mbarrier_init fence of the initializer"
                        raise Refuted(f"{e.key[0]}[{e.key[1]}]", reason, self.time.who(t, e))
                    np.maximum(cell.clock, clock, out=cell.clock)
                    cell.bytes -= size
                    self.mbarriers.settle(e, cell)
                    self._visit(block, component, t, e)
                return True
            case TmaStore():
                buffer, elements, target, places = e.values
                source, sink = self.engines[t, Queue.BULK, "read"], self.engines[t, Queue.BULK, "write"]
                read = self.time.fork(t, source)
                written = self.time.fork(t, source, sink)
                self.shadow.touch(t, e, buffer, elements, False, read, source)
                self.shadow.touch(t, e, target, places, True, written, sink)
                self.open.setdefault((t, Queue.BULK), []).append((read, written))
                return True
            case Wgmma():
                issue = self.time.unit(t, WARP), id(e.stmt), e.again
                component = self.engines[self.time.leader(t), Queue.WGMMA]
                if issue not in self.products:  # the first of the warp, which has come together
                    self.products[issue] = self.time.fork(t, component)
                clock = self.products[issue]
                if t % self.per % WARPGROUP == 0:
                    for buffer, elements in e.values:
                        self.shadow.touch(t, e, buffer, elements, False, clock, component)
                self.open.setdefault((t, Queue.WGMMA), []).append((clock, clock))
                return True
            case Commit(queue=queue):
                self.queues.setdefault((t, queue), []).append(self.open.pop((t, queue), []))
                return True
            case WaitGroup(queue=queue, pending=pending):
                batches = self.queues.get((t, queue), [])
                covered = batches[: max(0, len(batches) - pending)]
                for batch in covered:
                    for read, written in batch:
                        np.maximum(self.clocks[t], read if e.stmt.read_only else written, out=self.clocks[t])
                if not e.stmt.read_only:
                    del batches[: len(covered)]
                return True
            case FenceProxyAsync():
                self.shadow.fence(t, e.stmt.memory)
                return True
            case FenceInit():
                self.published[t].append(self.time.tick(t))
                return True
            case _:
                return True

    def _takes(self, t: int, registers: int) -> bool:
        """A thread gives registers back, or takes more if its block has them; true, too, if it has done so."""
        block, more = t // self.per, registers - self.registers[t]
        if more > self.left[block]:
            return False
        self.left[block] -= more
        self.registers[t] = registers
        return True

    @staticmethod
    def _fenced(fences: list[list[int]], thread: int, when: int, clock: Clock) -> bool:
        """A thread has fenced what it did at a time, and that comes before a clock."""
        later = bisect_right(fences[thread], when)
        return later < len(fences[thread]) and bool(clock[thread] >= fences[thread][later])

    def _visit(self, block: int, component: int, t: int, e: Event) -> None:
        """Remember what reaches another block, which must not have exited."""
        if block != t // self.per:
            self.visits.setdefault(block, []).append((component, int(self.clocks[t, t]) if component == t else self.issued[component], t, e))

    def _access(self, t: int, e: Event, of_rank: int) -> None:
        """Elements of a buffer by rank are accessed: the blocks that have them have begun, and must not have exited."""
        for block in np.unique(np.asarray(e.values) // of_rank).tolist():
            if block != t // self.per and not self.barriers.has_begun:
                raise Refuted(str(e.key), "a block of the cluster may not have begun when its Shared memory is accessed", self.time.who(t, e))
            self._visit(block, t, t, e)


def _threads(threads: list[int], per: int) -> str:
    lo, hi = threads[0] % per, threads[-1] % per
    return f"thread {lo}" if lo == hi else f"{len(threads)} threads, {lo} to {hi},"


def counterexample(kernel: Kernel, extents: Mapping[str, int], budget: WorkBudget | None = None) -> Refuted | None:
    """A counterexample at some extents, or ``None``. Raises :class:`TooLarge`."""
    budget = budget or WorkBudget()
    grid = [int(evaluate(e, extents)) for e in kernel.grid]
    blocks = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
    try:
        cluster = constant_shape(kernel.cluster) if is_of_clusters(kernel) else None
        if kernel.is_cooperative and cluster is not None:
            raise TooLarge  # which blocks meet where would be two questions at once
        if kernel.is_cooperative:
            traces = [Trace(kernel, extents, b, budget) for b in blocks[: BLOCKS + 1]]
            if len(blocks) > BLOCKS or sum(len(t.events) for t in traces) > MAX_THREADS:
                raise TooLarge
            Run(kernel, traces, extents).run()
        elif cluster is not None:
            size = cluster[0] * cluster[1] * cluster[2]
            first = [b for b in blocks if all(i % n == 0 for i, n in zip(b, cluster, strict=True))]
            for b in first[:: max(1, -(-len(blocks) // BLOCKS))]:
                ranks = [(b[0] + x, b[1] + y, b[2] + z) for z in range(cluster[2]) for y in range(cluster[1]) for x in range(cluster[0])]
                traces = [Trace(kernel, extents, r, budget) for r in ranks]
                if size * traces[0].threads > MAX_THREADS:
                    raise TooLarge
                Run(kernel, traces, extents).run()
        else:
            step = max(1, -(-len(blocks) // BLOCKS))
            for b in blocks[::step]:
                Run(kernel, [Trace(kernel, extents, b, budget)], extents).run()
    except ZeroDivisionError:  # an index has no value at these extents
        raise TooLarge from None
    except Refuted as e:
        e.notes = (*e.notes, *((f"extents {', '.join(f'{n} = {v}' for n, v in extents.items())}",) if extents else ()))
        return e
    return None
