"""The state of barriers: mbarriers (PTX ISA, "mbarrier"), barriers of threads (``bar.sync``, ``__syncwarp``, grid barriers), semaphores; and their waiting
agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Lanes


class Waiter(Protocol):
    """Threads that wait together (:class:`taskfuse.sim.agent.Agent`).

    Attributes:
        order: (number of their block, first thread).
        pc: the statement that they execute next.
        missing: warps (or warpgroups) that must be complete before they continue.
    """

    lanes: Lanes
    order: tuple[int, int]
    pc: int
    missing: int


Wake = Callable[[list[Waiter]], None]


class MbarrierCell:
    """One mbarrier: (phase, pending arrivals, expected arrivals, pending bytes).

    A phase completes as soon as no arrivals and no bytes are pending; then the parity flips and the arrivals are reloaded. Pending bytes
    may be negative for a while: the copy engine may be done before the bytes are announced.

    Attributes:
        count: arrivals per phase; 0 until the barrier is initialized.
        phases: completed phases; its lowest bit is the parity.
        fenced: visible to the asynchronous proxy.
        waiters: agents to wake when the phase completes.
        block: number of the block whose Shared memory it lies in.
    """

    __slots__ = ("block", "bytes", "count", "fenced", "initializer", "name", "pending", "phases", "waiters")

    def __init__(self, name: str, block: int = 0) -> None:
        self.name = name
        self.block = block
        self.count = 0
        self.pending = 0
        self.bytes = 0
        self.phases = 0
        self.fenced = False
        self.initializer = -1
        self.waiters: list[Waiter] = []

    @property
    def parity(self) -> int:
        """Parity of the current, incomplete phase."""
        return self.phases & 1

    def init(self, count: int, thread: int) -> None:
        """``mbarrier.init`` by ``thread``."""
        if self.count:
            raise Fault(f"mbarrier {self.name} initialized twice")
        if not 1 <= count < 1 << 20:
            raise Fault(f"mbarrier {self.name} initialized with {count} arrivals, outside 1..2^20-1")
        self.count = self.pending = count
        self.initializer = thread

    def check(self) -> None:
        """Raises :class:`Fault` before initialization."""
        if not self.count:
            raise Fault(f"mbarrier {self.name} used before it was initialized")

    def arrive(self, arrivals: int, wake: Wake, expect: int = 0) -> None:
        """``arrivals`` threads arrive at the same time, each after announcing ``expect`` bytes."""
        self.check()
        if arrivals > self.pending:
            raise Fault(
                f"mbarrier {self.name}: {arrivals} arrivals while {self.pending} are pending",
                notes=(f"phase {self.phases}: {self.count} arrivals expected, {self.bytes} bytes pending",),
            )
        self.bytes += arrivals * expect
        self.pending -= arrivals
        self._settle(wake)

    def complete_bytes(self, amount: int, wake: Wake) -> None:
        """The copy engine has written ``amount`` bytes."""
        self.check()
        self.bytes -= amount
        self._settle(wake)

    def _settle(self, wake: Wake) -> None:
        if abs(self.bytes) >= 1 << 20:
            raise Fault(f"mbarrier {self.name}: {self.bytes} bytes pending, outside -2^20+1..2^20-1")
        if self.pending == 0 and self.bytes == 0:
            self.phases += 1
            self.pending = self.count
            woken, self.waiters = self.waiters, []
            wake(woken)

    def describe(self) -> str:
        """The state, for reports."""
        return f"phase {self.phases} (parity {self.parity}): {self.pending} of {self.count} arrivals and {self.bytes} bytes pending"


class BarrierCell:
    """A barrier that completes when ``needed`` threads have arrived.

    Attributes:
        arrived: threads that have arrived.
        agents: agents that wait.
        pc: statement of a block-wide barrier, -1 while no agent waits.
    """

    __slots__ = ("agents", "arrived", "name", "needed", "pc")

    def __init__(self, name: str) -> None:
        self.name = name
        self.needed = 0
        self.arrived = 0
        self.pc = -1
        self.agents: list[Waiter] = []

    def arrive(self, agent: Waiter, needed: int, pc: int, wake: Wake) -> bool:
        """True if the barrier is complete; the waiting agents are then awake. Otherwise ``agent`` waits."""
        if self.agents and needed != self.needed:
            raise Fault(f"{self.name}: {needed} threads expected here, {self.needed} where others wait")
        self.needed = needed
        self.pc = pc
        self.arrived += agent.lanes.count
        if self.arrived > needed:
            raise Fault(f"{self.name}: {self.arrived} threads arrive where {needed} are expected")
        if self.arrived < needed:
            self.agents.append(agent)
            return False
        woken, self.agents = self.agents, []
        self.arrived = 0
        wake(woken)
        return True

    def describe(self) -> str:
        """The state, for reports."""
        return f"{self.arrived} of {self.needed} threads are there"


class SemaphoreCell:
    """One counter: ``count`` releases complete a phase.

    Attributes:
        released: releases since the launch began.
        waiters: agents to wake, each with the number of phases that it waits for.
    """

    __slots__ = ("count", "name", "released", "waiters")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.released = 0
        self.waiters: list[tuple[Waiter, int]] = []

    @property
    def phases(self) -> int:
        """Phases that are complete."""
        return self.released // self.count

    @property
    def pending(self) -> int:
        """Releases until the next phase is complete."""
        return self.count - self.released % self.count

    def describe(self) -> str:
        """The state, for reports."""
        return f"{self.phases} phases are complete, {self.pending} of {self.count} releases are missing in the next"


class SemaphoreArray:
    """The counters of one declaration, in a launch."""

    def __init__(self, name: str, shape: tuple[int, ...], count: int) -> None:
        self.name = name
        self.shape = shape
        self.count = count
        self._cells: dict[tuple[int, ...], SemaphoreCell] = {}

    def cell(self, index: tuple[int, ...], thread: int) -> SemaphoreCell:
        """The counter at an index. Raises :class:`Fault` if none exists, or if no number of releases completes a phase."""
        if any(not 0 <= i < n for i, n in zip(index, self.shape, strict=True)):
            raise Fault(f"semaphore '{self.name}' of shape {list(self.shape)} has no counter {list(index)}", thread=thread)
        if self.count < 1:
            raise Fault(f"a phase of semaphore '{self.name}' takes {self.count} releases", thread=thread)
        found = self._cells.get(index)
        if found is None:
            found = self._cells[index] = SemaphoreCell(f"{self.name}[{', '.join(map(str, index))}]", self.count)
        return found

    def state(self) -> tuple[tuple[tuple[int, ...], int], ...]:
        """The number of releases of every counter that has been used."""
        return tuple(sorted((index, cell.released) for index, cell in self._cells.items()))
