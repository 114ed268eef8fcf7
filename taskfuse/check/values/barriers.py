"""Synchronization between the threads of a run: barriers, mbarriers, semaphores. Asynchronous operations complete as soon as they are issued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from taskfuse.check.refuted import Refuted
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch
from taskfuse.check.values.terms import Ints
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.types import ParallelType
from taskfuse.kir import Kernel
from taskfuse.kir.clusters import peers
from taskfuse.kir.operands import BarrierSlot, SemaphoreSlot
from taskfuse.kir.synchronization import Acquire, Arrive, ArriveAsync, Barrier, BarrierScope, Expect, InitBarrier, Release, Wait
from taskfuse.target import MAX_NAMED

SLOTS = 1 << 20
NAMED = MAX_NAMED + 1
"""Ids of barriers of a block, that of the whole block included."""
PHASE = "barrier phase"
"""The symbol in which a waiting thread stores the round of the barrier that it waits for."""


class LaunchBarriers:
    """The state of all barriers of a launch."""

    def __init__(self, kernel: Kernel, launch: ExecutedLaunch, symbols: Mapping[str, int]) -> None:
        self.launch = launch
        self._first: dict[str, int] = {}
        total = 0
        for m in kernel.mbarriers:
            self._first[m.name] = total
            total += m.slots
        self._slots = {m.name: m.slots for m in kernel.mbarriers}
        self._total = total
        size = max(1, total * launch.blocks)
        self.count, self.pending, self.bytes, self.phase = (np.zeros(size, np.int64) for _ in range(4))
        self._extents = {s.name: tuple(int(evaluate(e, symbols)) for e in s.shape) for s in kernel.semaphores}
        self._releases = {s.name: int(evaluate(s.count, symbols)) for s in kernel.semaphores}
        self._released = {name: np.zeros(max(1, int(np.prod(shape))), np.int64) for name, shape in self._extents.items()}
        self._counters = {c.name: k for k, c in enumerate(kernel.counters)}
        self._arrived: dict[BarrierScope, Ints] = {}
        self._met: dict[BarrierScope, Ints] = {}
        self._reach: dict[tuple[ParallelType, ...], Ints] = {}

    # -- mbarriers ----------------------------------------------------------------------------------------------------------------------

    def cells(self, lanes: ExecutedLanes, slot: BarrierSlot) -> Ints:
        """The mbarrier of each thread, in its own block."""
        at = lanes.values(slot.slot)
        if ((at < 0) | (at >= self._slots[slot.name])).any():
            raise Refuted(slot.name, f"it has no slot {int(at[(at < 0) | (at >= self._slots[slot.name])][0])}")
        return lanes.blocks * self._total + self._first[slot.name] + at

    def across(self, lanes: ExecutedLanes, cells: Ints, types: tuple[ParallelType, ...]) -> Ints:
        """The same mbarriers in every block that each thread reaches: ``[threads, blocks]``."""
        if not types:
            return cells[:, None]
        return self.reached(types)[lanes.blocks] * self._total + (cells % self._total)[:, None]

    def reached(self, types: tuple[ParallelType, ...]) -> Ints:
        """The blocks that each block reaches across some cluster types: ``[blocks, blocks reached]``."""
        if types not in self._reach:
            (gx, gy, _), shape = self.launch.grid, self.launch.cluster
            rows: list[list[int]] = []
            for b in range(self.launch.blocks):
                at = (b % gx, b // gx % gy, b // (gx * gy))
                place = (at[0] % shape[0], at[1] % shape[1], at[2] % shape[2])
                row: list[int] = []
                for rank in peers(place, (shape[0], shape[1], shape[2]), types):
                    there = (rank % shape[0], rank // shape[0] % shape[1], rank // (shape[0] * shape[1]))
                    x, y, z = (i - p + q for i, p, q in zip(at, place, there, strict=True))
                    row.append(x + gx * (y + gy * z))
                rows.append(row)
            self._reach[types] = np.asarray(rows, np.int64)
        return self._reach[types]

    def act(self, stmt: InitBarrier | Arrive | ArriveAsync | Expect | Release, lanes: ExecutedLanes) -> None:
        """The effect of statements that never wait."""
        match stmt:
            case InitBarrier(barrier=slot, count=count):
                cells = self.cells(lanes, slot)
                self.count[cells] = self.pending[cells] = lanes.values(count)
            case Arrive(barrier=slot, across=types):
                self._arrive(self.across(lanes, self.cells(lanes, slot), types).reshape(-1))
            case ArriveAsync(barrier=slot):
                self._arrive(self.cells(lanes, slot))
            case Expect(barrier=slot, bytes=size):
                cells = self.cells(lanes, slot)
                np.add.at(self.bytes, cells, lanes.values(size))
                self._arrive(cells)
            case Release(semaphore=slot):
                np.add.at(self._released[slot.name], self._semaphore(lanes, slot), 1)

    def _arrive(self, cells: Ints) -> None:
        if (self.count[cells] == 0).any():
            raise Refuted("mbarrier", "it is used before it is initialized")
        np.subtract.at(self.pending, cells, 1)
        self._settle(cells)

    def loaded(self, cells: Ints, size: int) -> None:
        """The bytes of a load arrive."""
        np.subtract.at(self.bytes, cells, size)
        self._settle(cells)

    def _settle(self, cells: Ints) -> None:
        done = np.unique(cells[(self.pending[cells] <= 0) & (self.bytes[cells] == 0) & (self.count[cells] > 0)])
        if len(done):
            self.phase[done] += 1
            self.pending[done] += self.count[done]

    # -- waiting ------------------------------------------------------------------------------------------------------------------------

    def arrive(self, stmt: Barrier | Wait | Acquire, lanes: ExecutedLanes) -> None:
        """Threads reach a statement at which they may wait."""
        if isinstance(stmt, Barrier) and stmt.scope is not BarrierScope.WARP:
            keys, needed = self._keys(stmt, lanes)
            arrived, met = self._arrived[stmt.scope], self._met[stmt.scope]
            lanes.own[PHASE] = met[keys]
            np.add.at(arrived, keys, 1)
            full = arrived[keys] >= needed
            done = np.unique(keys[full])
            met[done] += 1
            arrived[done] = 0
        lanes.waits = True

    def ready(self, stmt: Barrier | Wait | Acquire, lanes: ExecutedLanes) -> Any:
        """Which arrived threads may continue: a bool, or one for each."""
        match stmt:
            case Barrier(scope=BarrierScope.WARP):
                return lanes.whole_warps
            case Barrier():
                keys, _ = self._keys(stmt, lanes)
                return self._met[stmt.scope][keys] > lanes.own[PHASE]
            case Wait(barrier=slot, parity=parity):
                return self.phase[self.cells(lanes, slot)] & 1 != lanes.value(parity)
            case Acquire(semaphore=slot, phases=phases):
                return self._released[slot.name][self._semaphore(lanes, slot)] >= lanes.value(phases) * self._releases[slot.name]

    def _keys(self, stmt: Barrier, lanes: ExecutedLanes) -> tuple[Ints, int | Ints]:
        """The barrier that each thread reaches, and how many threads it synchronizes."""
        launch, scope = self.launch, stmt.scope
        match scope:
            case BarrierScope.NAMED:
                assert stmt.id is not None
                ids = lanes.values(stmt.id)
                if ((ids < 1) | (ids >= NAMED)).any():
                    raise Refuted("named barrier", f"there is no barrier {int(ids[(ids < 1) | (ids >= NAMED)][0])}: ids are 1 to {NAMED - 1}")
                keys, needed, count = lanes.blocks * NAMED + ids, lanes.value(stmt.threads), launch.blocks * NAMED
            case BarrierScope.CLUSTER:
                cx, cy, cz = launch.cluster
                keys, needed, count = launch.clusters[lanes.blocks], launch.threads * cx * cy * cz, launch.blocks
            case BarrierScope.GRID:
                keys, needed, count = np.full(len(lanes), self._counters[stmt.counter or ""]), lanes.value(stmt.threads), len(self._counters)
            case _:
                keys, needed, count = lanes.blocks, launch.threads, launch.blocks
        if scope not in self._arrived:
            self._arrived[scope], self._met[scope] = np.zeros(count, np.int64), np.zeros(count, np.int64)
        return keys, needed

    def _semaphore(self, lanes: ExecutedLanes, slot: SemaphoreSlot) -> Ints:
        place = np.zeros(len(lanes), np.int64)
        for e, n in zip(slot.index, self._extents[slot.name], strict=True):
            at = lanes.values(e)
            if ((at < 0) | (at >= n)).any():
                raise Refuted(slot.name, f"it has no counter {int(at[(at < 0) | (at >= n)][0])}")
            place = place * n + at
        return place
