"""Semaphores: counters in Global memory on which blocks wait for each other (PTX ISA, "red" and "ld" with ``.release`` and ``.acquire``)."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.kir.synchronization import Acquire, Release
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.barriers import SemaphoreCell
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, Env, Lanes, groups
from taskfuse.sim.names import Meaning, Meanings, Names


def _cell(agent: Agent, name: str, codes: tuple[CompiledExpr, ...], lanes: Lanes, env: Env) -> SemaphoreCell:
    return agent.block.machine.semaphores[name].cell(tuple(c.value(lanes, env) for c in codes), lanes.first)


def release(names: Names, stmt: Release) -> Instruction:
    """``red.release.gpu.add`` of 1 by every thread."""
    name, codes = stmt.semaphore.name, tuple(map(names.expr, stmt.semaphore.index))
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


def acquire(names: Names, stmt: Acquire) -> Instruction:
    """``ld.acquire.gpu`` until enough phases are complete. All lanes agree on the counter and on the number of phases."""
    name, codes, wanted = stmt.semaphore.name, tuple(map(names.expr, stmt.semaphore.index)), names.expr(stmt.phases)

    def run(agent: Agent) -> Signal:
        machine, lanes, env = agent.block.machine, agent.lanes, agent.env
        cell, phases = _cell(agent, name, codes, lanes, env), wanted.value(lanes, env)
        if cell.phases >= phases:
            if machine.observer is not None:
                machine.observer.acquired(cell, phases)
            return Signal.POINT
        agent.pc -= 1  # try again when they are complete
        cell.waiters.append((agent, phases))
        return agent.host.block(agent, agent.pc, lambda: f"{cell.name} wants {phases} phases; {cell.describe()}")

    return run


def may_acquire(names: Names, stmt: Acquire) -> Callable[[Agent], bool]:
    """False where the wait would block. Errors of the wait are reported by the wait itself."""
    name, codes, wanted = stmt.semaphore.name, tuple(map(names.expr, stmt.semaphore.index)), names.expr(stmt.phases)

    def holds(agent: Agent) -> bool:
        try:
            return _cell(agent, name, codes, agent.lanes, agent.env).phases >= wanted.value(agent.lanes, agent.env)
        except Fault:
            return True

    return holds


MEANINGS: Meanings = {Release: Meaning(release, is_point=True)}
