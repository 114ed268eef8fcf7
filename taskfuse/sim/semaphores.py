"""Semaphores: counters in Global memory on which blocks wait for each other (PTX ISA, "red" and "ld" with ``.release`` and ``.acquire``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from taskfuse.kir.synchronization import Acquire, Release
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Code, Env, Lanes, groups

if TYPE_CHECKING:
    from taskfuse.sim.program import Program

Instruction = Callable[[Agent], Signal | None]


class SemaphoreCell:
    """One counter: ``count`` releases complete a phase.

    Attributes:
        released: releases since the launch began.
        waiters: agents to wake when phases are complete, and how many each waits for.
    """

    __slots__ = ("count", "name", "released", "waiters")

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.released = 0
        self.waiters: list[tuple[Agent, int]] = []

    @property
    def phases(self) -> int:
        """Phases that are complete."""
        return self.released // self.count

    @property
    def pending(self) -> int:
        """Releases until the next one is."""
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
        """The releases so far of every counter that has been used."""
        return tuple(sorted((index, cell.released) for index, cell in self._cells.items()))


def _cell(agent: Agent, name: str, codes: tuple[Code, ...], lanes: Lanes, env: Env) -> SemaphoreCell:
    return agent.block.machine.semaphores[name].cell(tuple(c.value(lanes, env) for c in codes), lanes.first)


def release(program: Program, stmt: Release) -> Instruction:
    """``red.release.gpu.add`` of 1 by every thread."""
    name, codes = stmt.semaphore.name, tuple(map(program.expr, stmt.semaphore.index))
    varying = tuple(c for c in codes if c.per_lane)

    def run(agent: Agent) -> Signal:
        machine = agent.block.machine
        for lanes in groups(varying, agent.lanes, agent.env, machine.table) if varying else (agent.lanes,):
            cell, left = _cell(agent, name, codes, lanes, agent.env), lanes.count
            while left:
                part = min(left, cell.pending)
                if machine.observer is not None:
                    machine.observer.count(cell, part)
                cell.released += part
                left -= part
            woken = [a for a, phases in cell.waiters if phases <= cell.phases]
            cell.waiters = [(a, phases) for a, phases in cell.waiters if phases > cell.phases]
            machine.wake(woken)
        return Signal.POINT

    return run


def acquire(program: Program, stmt: Acquire) -> Instruction:
    """``ld.acquire.gpu`` until enough phases are complete. All lanes agree on the counter and on how many."""
    name, codes, wanted = stmt.semaphore.name, tuple(map(program.expr, stmt.semaphore.index)), program.expr(stmt.phases)

    def run(agent: Agent) -> Signal:
        machine, lanes, env = agent.block.machine, agent.lanes, agent.env
        cell, phases = _cell(agent, name, codes, lanes, env), wanted.value(lanes, env)
        if cell.phases >= phases:
            if machine.observer is not None:
                machine.observer.acquired(cell, phases)
            return Signal.POINT
        agent.pc -= 1  # try again when they are complete
        cell.waiters.append((agent, phases))
        return machine.block(agent, agent.pc, lambda: f"{cell.name} wants {phases} phases; {cell.describe()}")

    return run


def may_acquire(program: Program, stmt: Acquire) -> Callable[[Agent], bool]:
    """False where the wait would block. What is wrong with the wait itself is for the wait to say."""
    name, codes, wanted = stmt.semaphore.name, tuple(map(program.expr, stmt.semaphore.index)), program.expr(stmt.phases)

    def holds(agent: Agent) -> bool:
        try:
            return _cell(agent, name, codes, agent.lanes, agent.env).phases >= wanted.value(agent.lanes, agent.env)
        except Fault:
            return True

    return holds
