"""Statements on the queues of asynchronous operations: commits and wait_groups."""

from __future__ import annotations

from collections.abc import Callable

from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Commit, WaitGroup
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.collectives import check_warps
from taskfuse.sim.engines import OperationState, wait
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.target import WARP


def _owners(agent: Agent, queue: Queue) -> list[int]:
    """The owners of the agent's queues."""
    if queue is not Queue.WGMMA:
        return agent.lanes.ids.tolist()
    check_warps(agent, f"an instruction on the {queue.value} queue")
    return sorted(set((agent.lanes.ids // WARP).tolist()))


def commit(names: Names, stmt: Commit) -> Instruction:
    """``wgmma.commit_group``, ``cp.async.bulk.commit_group``, ``cp.async.commit_group``."""

    def run(agent: Agent) -> Signal:
        for owner in _owners(agent, stmt.queue):
            agent.block.engines.fifo(stmt.queue, owner).commit()
        return Signal.POINT

    return run


def wait_group(stmt: WaitGroup) -> Instruction:
    """``wgmma.wait_group``, ``cp.async.bulk.wait_group`` (``.read``), ``cp.async.wait_group``."""
    wanted = OperationState.SOURCE_READ if stmt.read_only else OperationState.DONE

    def run(agent: Agent) -> Signal:
        engines = agent.block.engines
        fifos = [engines.fifo(stmt.queue, owner) for owner in _owners(agent, stmt.queue)]
        if wait(fifos, stmt.pending, wanted, engines.block.machine.observer):
            return Signal.POINT
        agent.pc -= 1
        engines.waiters.append(agent)
        return agent.host.block(agent, agent.pc, lambda: f"operations of the {stmt.queue.value} queue are not complete")

    return run


def may_pass_wait_group(stmt: WaitGroup) -> Callable[[Agent], bool]:
    """False where the wait_group would block."""
    wanted = OperationState.SOURCE_READ if stmt.read_only else OperationState.DONE

    def holds(agent: Agent) -> bool:
        queues = agent.block.engines.queues
        owners = agent.lanes.ids.tolist() if stmt.queue is not Queue.WGMMA else set((agent.lanes.ids // WARP).tolist())
        return all(queues[stmt.queue, o].done(stmt.pending, wanted) for o in owners if (stmt.queue, o) in queues)

    return holds


MEANINGS: Meanings = {Commit: Meaning(commit)}
