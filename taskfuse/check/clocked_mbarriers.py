"""Mbarriers and semaphores of a launch, with the clocks of their phases; finds waits and arrivals that may come too early."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from taskfuse.check.clocks import Clocks
from taskfuse.check.refuted import Refuted
from taskfuse.check.trace import Clock, Event
from taskfuse.ir.scalar import evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import TmaLoad


@dataclass(slots=True, eq=False)
class ClockedMbarrier:
    """An mbarrier: its state, the clock of each completed phase, the waits for each; the thread that initialized it, and when."""

    maker: int
    made: int
    count: int
    pending: int
    clock: Clock
    bytes: int = 0
    done: list[Clock] = field(default_factory=lambda: list[Clock]())
    waits: list[tuple[int, int, int, Event]] = field(default_factory=lambda: list[tuple[int, int, int, Event]]())


@dataclass(slots=True, eq=False)
class ClockedSemaphore:
    """A counter in Global memory: releases per phase, releases of the current one, and the clock of each completed phase.

    A wait acquires the releases of its phases, in the order of this run, and not necessarily more: it may have read the counter then.
    """

    count: int
    clock: Clock
    released: int = 0
    done: list[Clock] = field(default_factory=lambda: list[Clock]())


class ClockedMbarriers:
    """The mbarriers and semaphores of some blocks.

    Args:
        time: the clocks of the launch.
    """

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], time: Clocks) -> None:
        self.cells: dict[tuple[int, str, int], ClockedMbarrier] = {}
        self._time = time
        self._semaphores: dict[tuple[str, tuple[int, ...]], ClockedSemaphore] = {}
        self._counts = {s.name: int(evaluate(s.count, symbols)) for s in kernel.semaphores}
        self._extents = {s.name: tuple(int(evaluate(e, symbols)) for e in s.shape) for s in kernel.semaphores}

    def initialize(self, t: int, e: Event) -> None:
        """A thread initializes an mbarrier. Raises :class:`Refuted` if it was initialized before."""
        key = (t // self._time.per, *e.key)
        if key in self.cells:
            raise Refuted(f"{e.key[0]}[{e.key[1]}]", "it is initialized twice", self._time.who(t, e))
        clocks = self._time.clocks
        self.cells[key] = made = ClockedMbarrier(t, self._time.tick(t), e.values, e.values, clocks[t].copy())
        made.done.append(clocks[t].copy())

    def cell(self, t: int, e: Event, block: int | None = None) -> ClockedMbarrier:
        """The mbarrier of an event, in its own block unless given. Raises :class:`Refuted` unless its initialization happens before the event."""
        name, slot = e.key
        cell = self.cells.get((t // self._time.per if block is None else block, name, slot))
        if cell is None:
            raise Refuted(f"{name}[{slot}]", "it is used before it is initialized", self._time.who(t, e))
        if not (cell.done[0] <= self._time.clocks[t]).all():
            raise Refuted(f"{name}[{slot}]", "nothing orders its initialization and this use", self._time.who(t, e))
        return cell

    def in_phase(self, t: int, e: Event, cell: ClockedMbarrier) -> None:
        """Check that an arrival, or bytes, of a phase come after completion of the previous one. Raises :class:`Refuted`."""
        if not (cell.done[-1] <= self._time.clocks[t]).all():
            name, slot = e.key
            phase = len(cell.done) - 1
            what = "bytes" if isinstance(e.stmt, TmaLoad) else "an arrival"
            raise Refuted(f"{name}[{slot}]", f"{what} of phase {phase} may come before phase {phase - 1} is complete", self._time.who(t, e))

    def settle(self, e: Event, cell: ClockedMbarrier) -> None:
        """Complete the phase if nothing is pending. Raises :class:`Refuted` if a wait for the previous one may be unfinished."""
        if cell.pending or cell.bytes:
            return
        phase = len(cell.done) - 1
        clock = np.maximum(cell.clock, cell.done[-1])
        for t, time, seen, wait in cell.waits:
            if seen == phase - 1 and clock[t] < time:
                name, slot = e.key
                raise Refuted(
                    f"{name}[{slot}]",
                    f"phase {phase} may complete before a wait for phase {phase - 1} is over: parity {seen & 1} then means another phase",
                    self._time.who(t, wait),
                )
        cell.waits = [w for w in cell.waits if w[2] >= phase]
        cell.done.append(clock)
        cell.clock = clock.copy()
        cell.pending = cell.count

    def arrive(self, t: int, e: Event, cell: ClockedMbarrier, size: int) -> None:
        """An arrival of a thread that announces some bytes. Raises :class:`Refuted` if the phase has all of its arrivals."""
        name, slot = e.key
        if cell.pending == 0:
            raise Refuted(f"{name}[{slot}]", f"more than {cell.count} arrivals in phase {len(cell.done) - 1}", self._time.who(t, e))
        self.in_phase(t, e, cell)
        self._time.tick(t)
        np.maximum(cell.clock, self._time.clocks[t], out=cell.clock)
        cell.bytes += size
        cell.pending -= 1
        self.settle(e, cell)

    def wait(self, t: int, e: Event) -> bool:
        """True if a thread passes its wait. Raises :class:`Refuted` if it may pass too early."""
        cell = self.cell(t, e)
        done = len(cell.done) - 1
        if done & 1 == e.values:
            return False
        seen = done - 1
        if seen >= 1 and not (cell.done[seen] <= self._time.clocks[t]).all():
            name, slot = e.key
            raise Refuted(
                f"{name}[{slot}]",
                f"a wait for phase {seen} may pass early: phase {seen - 1} may be incomplete, and phase {seen - 2} has the parity of phase {seen}",
                self._time.who(t, e),
            )
        np.maximum(self._time.clocks[t], cell.done[-1], out=self._time.clocks[t])
        cell.waits.append((t, self._time.tick(t), seen, e))
        return True

    def semaphore(self, t: int, e: Event) -> ClockedSemaphore:
        """The semaphore of an event. Raises :class:`Refuted` if its index is out of bounds."""
        name, index = e.key
        found = self._semaphores.get(e.key)
        if found is None:
            if any(not 0 <= i < n for i, n in zip(index, self._extents[name], strict=True)):
                raise Refuted(name, f"it has no counter {list(index)}", self._time.who(t, e))
            found = self._semaphores[e.key] = ClockedSemaphore(self._counts[name], np.zeros(self._time.clocks.shape[1], np.int32))
        return found
