"""Instructions that synchronize threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from taskfuse.ir.types import MemoryType
from taskfuse.kir.synchronization import Arrive, Barrier, Expect, FenceInit, FenceProxyAsync, InitBarrier, Wait
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.barriers import BarrierCell, MbarrierCell
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, Env, Lanes, groups, key_of, next_number
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.target import WARP

if TYPE_CHECKING:
    from taskfuse.sim.block import Block

Path = tuple[tuple[CompiledExpr, bool], ...]


# -- mbarriers --------------------------------------------------------------------------------------------------------------------------


def cell(block: Block, name: str, slot: int, thread: int) -> MbarrierCell:
    """The mbarrier in a slot. Raises :class:`Fault` if the slot does not exist."""
    cells = block.mbarriers[name]
    if not 0 <= slot < len(cells):
        raise Fault(f"mbarrier '{name}' has no slot {slot}", thread=thread, notes=(f"slots 0..{len(cells) - 1}",))
    return cells[slot]


def init(names: Names, stmt: InitBarrier) -> Instruction:
    """``mbarrier.init``."""
    name, slot, count = stmt.barrier.name, names.expr(stmt.barrier.slot), names.expr(stmt.count)

    def run(agent: Agent) -> Signal:
        for lanes in groups((slot, count), agent.lanes, agent.env, agent.block.machine.table):
            if lanes.count > 1:
                raise Fault(f"{lanes.count} threads initialize one mbarrier of '{name}'", thread=lanes.first)
            barrier = cell(agent.block, name, slot.value(lanes, agent.env), lanes.first)
            barrier.init(count.value(lanes, agent.env), lanes.first)
            if (observer := agent.block.machine.observer) is not None:
                observer.initialize(barrier)
        return Signal.POINT

    return run


def _fence_init(agent: Agent) -> Signal:
    """``fence.mbarrier_init``: of the barriers that the executing threads have initialized."""
    threads = set(agent.lanes.ids.tolist())
    for cells in agent.block.mbarriers.values():
        for barrier in cells:
            if barrier.initializer in threads and not barrier.fenced:
                barrier.fenced = True
                if (observer := agent.block.machine.observer) is not None:
                    observer.initialize(barrier)
    return Signal.POINT


def arrive(names: Names, stmt: Arrive | Expect) -> Instruction:
    """``mbarrier.arrive`` by every thread, after announcing its bytes if it expects some; in all blocks of the cluster that it reaches."""
    name, slot = stmt.barrier.name, names.expr(stmt.barrier.slot)
    amount = names.expr(stmt.bytes) if isinstance(stmt, Expect) else None
    across = stmt.across if isinstance(stmt, Arrive) else ()
    codes = tuple(c for c in (slot, amount) if c is not None and c.per_lane)

    def run(agent: Agent) -> Signal:
        machine, env = agent.block.machine, agent.env
        for lanes in groups(codes, agent.lanes, env, machine.table) if codes else (agent.lanes,):
            size = 0 if amount is None else amount.value(lanes, env)
            for block in agent.block.reached(across):
                found = cell(block, name, slot.value(lanes, env), lanes.first)
                if machine.observer is not None:
                    machine.observer.count(found, lanes.count)
                found.arrive(lanes.count, machine.wake, size)
        return Signal.POINT

    return run


def wait(names: Names, stmt: Wait) -> Instruction:
    """``mbarrier.try_wait.parity`` until it succeeds. All lanes agree on slot and parity."""
    name, slot, parity = stmt.barrier.name, names.expr(stmt.barrier.slot), names.expr(stmt.parity)

    def run(agent: Agent) -> Signal:
        wanted = parity.value(agent.lanes, agent.env)
        barrier = cell(agent.block, name, slot.value(agent.lanes, agent.env), agent.lanes.first)
        barrier.check()
        if barrier.phases & 1 != wanted:
            if (observer := agent.block.machine.observer) is not None:
                observer.passed(barrier)
            return Signal.POINT
        agent.pc -= 1  # try again when the phase has completed: it may be over when the agent gets to run
        barrier.waiters.append(agent)
        return agent.host.block(agent, agent.pc, lambda: f"{barrier.name} wants parity {wanted} to complete; {barrier.describe()}")

    return run


def may_pass(names: Names, stmt: Wait) -> Callable[[Agent], bool]:
    """False where the wait would block. Errors of the wait are reported by the wait itself."""
    name, slot, parity = stmt.barrier.name, names.expr(stmt.barrier.slot), names.expr(stmt.parity)

    def holds(agent: Agent) -> bool:
        cells, at = agent.block.mbarriers[name], slot.value(agent.lanes, agent.env)
        return not 0 <= at < len(cells) or not cells[at].count or cells[at].parity != parity.value(agent.lanes, agent.env)

    return holds


# -- barriers of threads ------------------------------------------------------------------------------------------------------------------


def _arrive(agent: Agent, barrier: BarrierCell, needed: int) -> Signal:
    machine, pc = agent.block.machine, agent.pc - 1
    if machine.observer is not None:
        machine.observer.arrive(agent, barrier, barrier.arrived + agent.lanes.count == needed)
    if barrier.arrive(agent, needed, pc, machine.wake):
        return Signal.POINT
    return agent.host.block(agent, pc, lambda: f"{barrier.name}: {barrier.describe()}")


def block_barrier(names: Names, stmt: Barrier) -> Instruction:
    """``__syncthreads``: all threads of the block, at one statement."""
    threads = names.expr(stmt.threads)

    def run(agent: Agent) -> Signal:
        block, pc = agent.block, agent.pc - 1
        if threads.value(agent.lanes, agent.env) != block.threads:
            raise Fault(f"block barrier of {threads.value(agent.lanes, agent.env)} threads in a block of {block.threads}")
        if block.exited:
            raise Fault(f"block barrier after {block.exited} threads of the block have exited")
        if block.barrier.agents and block.barrier.pc != pc:
            raise Fault("block barrier reached while other threads of the block wait at another one")
        return _arrive(agent, block.barrier, block.threads)

    return run


def cluster_barrier(names: Names, stmt: Barrier) -> Instruction:
    """``barrier.cluster``: all threads of all blocks of the cluster, at one statement."""
    threads = names.expr(stmt.threads)

    def run(agent: Agent) -> Signal:
        cluster, pc, needed = agent.block.cluster, agent.pc - 1, threads.value(agent.lanes, agent.env)
        if needed != cluster.threads:
            raise Fault(f"cluster barrier of {needed} threads in a cluster of {cluster.threads}")
        if cluster.exited:
            raise Fault(f"cluster barrier after {cluster.exited} threads of the cluster have exited")
        if cluster.barrier.agents and cluster.barrier.pc != pc:
            raise Fault("cluster barrier reached while other threads of the cluster wait at another one")
        signal = _arrive(agent, cluster.barrier, needed)
        cluster.has_begun = cluster.has_begun or signal is Signal.POINT
        return signal

    return run


def named_barrier(number: CompiledExpr, threads: CompiledExpr) -> Instruction:
    """``bar.sync id, threads``."""

    def run(agent: Agent) -> Signal:
        lanes, env = agent.lanes, agent.env
        which, needed = number.value(lanes, env), threads.value(lanes, env)
        if not 1 <= which <= 15:
            raise Fault(f"named barrier {which}: the ids are 1..15", thread=lanes.first)
        if needed % WARP:
            raise Fault(f"named barrier {which} of {needed} threads, not a multiple of {WARP}")
        barrier = agent.block.named[which]
        barrier.name = f"named barrier {which}"
        return _arrive(agent, barrier, needed)

    return run


def grid_barrier(counter: str, threads: CompiledExpr) -> Instruction:
    """A barrier of threads of several blocks."""

    def run(agent: Agent) -> Signal:
        return _arrive(agent, agent.block.machine.counters[counter], threads.value(agent.lanes, agent.env))

    return run


def warp_barrier(path: Path) -> Instruction:
    """``__syncwarp`` with a full mask: in each warp, all its existing threads.

    ``path``, the enclosing branches, must select all of them (with an agent's loop variables).
    """
    number = next_number()
    key = key_of(tuple(sorted({n for code, _ in path for n in code.varying})))

    def shared(agent: Agent) -> tuple[tuple[int, int, int], ...]:
        """The warps that the agent has only a part of: (warp, its threads, of which the agent's)."""
        cached = (number, key(agent.env))
        found = agent.lanes.cache.get(cached)
        if found is None:
            table = agent.block.machine.table
            mine = agent.lanes.ids // WARP
            rows: list[tuple[int, int, int]] = []
            for warp in sorted(set(mine.tolist())):
                everyone = table.span(warp * WARP, min((warp + 1) * WARP, table.threads))
                own = int((mine == warp).sum())
                if own == everyone.count:
                    continue
                count = selected(path, everyone, agent.env, agent)
                if count != everyone.count:
                    raise Fault(
                        f"warp barrier executed by {count} of the {everyone.count} threads of warp {warp}",
                        thread=int(agent.lanes.ids[mine == warp][0]),
                        help="all threads of a warp must execute it; let a part of one wait at an mbarrier",
                    )
                rows.append((warp, count, own))
            found = tuple(rows)
            agent.lanes.remember(cached, found)
        return found

    def run(agent: Agent) -> Signal:
        assemble(agent, WARP, shared(agent))
        return pause(agent, agent.pc - 1)

    return run


def assemble(agent: Agent, unit: int, rows: Iterable[tuple[int, int, int]]) -> list[int]:
    """Collect the parts of a warp (or warpgroup) in several agents at the agent's statement.

    Args:
        rows: (number of the warp, threads that must arrive, threads of the agent).

    Returns:
        The warps that are now complete; agents that waited only for them are awake.
    """
    block, pc = agent.block, agent.pc - 1
    complete: list[int] = []
    for number, needed, own in rows:
        key = (pc, number)
        barrier = block.warps.get(key)
        if barrier is None:
            barrier = block.warps[key] = BarrierCell(f"{'warp' if unit == WARP else 'warpgroup'} {number}")
        barrier.needed = needed
        barrier.arrived += own
        if block.machine.observer is not None:
            block.machine.observer.arrive(agent, barrier, barrier.arrived == needed)
        if barrier.arrived < needed:
            barrier.agents.append(agent)
            agent.missing += 1
            continue
        complete.append(number)
        woken, barrier.agents = barrier.agents, []
        barrier.arrived = 0
        for other in woken:
            other.missing -= 1
            if not other.missing:
                block.machine.wake([other])
    return complete


def pause(agent: Agent, pc: int) -> Signal:
    """Wait until everything that :func:`assemble` began is complete."""
    if not agent.missing:
        return Signal.POINT
    return agent.host.block(agent, pc, lambda: _warps_text(agent, pc))


def selected(path: Path, lanes: Lanes, env: Env, agent: Agent) -> int:
    """The number of ``lanes`` that the conditions of the enclosing branches select, with an agent's loop variables."""
    left: Lanes | None = lanes
    for code, holds in path:
        if left is None:
            return 0
        yes, no = code.split(left, env, agent.block.machine.table)
        left = yes if holds else no
    return 0 if left is None else left.count


def _warps_text(agent: Agent, pc: int) -> str:
    return "; ".join(f"{m.name}: {m.describe()}" for (at, _), m in agent.block.warps.items() if at == pc and agent in m.agents)


# -- fences and exit ----------------------------------------------------------------------------------------------------------------------


def _fence_proxy(agent: Agent) -> Signal:
    """``fence.proxy.async`` for Shared memory."""
    if (observer := agent.block.machine.observer) is not None:
        observer.proxy_fence(agent.block, agent.lanes.ids)
    agent.block.engines.fence(agent.lanes)
    return Signal.POINT


def _fence_proxy_global(agent: Agent) -> Signal:
    """``fence.proxy.async`` for Global memory."""
    if (observer := agent.block.machine.observer) is not None:
        observer.proxy_fence_global(agent.block, agent.lanes.ids)
    agent.block.machine.fences.fence(agent.block.number, agent.lanes)
    return Signal.POINT


def leave(agent: Agent) -> Signal:
    """The end of the kernel."""
    block = agent.block
    block.engines.leave(agent.lanes)
    block.exited += agent.lanes.count
    if block.machine.observer is not None:
        block.machine.observer.exit(block)
    if block.barrier.agents:
        raise Fault(f"threads exit while {block.barrier.arrived} threads of the block wait at a block barrier")
    if block.cluster.barrier.agents:
        raise Fault(f"threads exit while {block.cluster.barrier.arrived} threads of the cluster wait at a cluster barrier")
    return Signal.DONE


MEANINGS: Meanings = {
    InitBarrier: Meaning(init, is_point=True),
    FenceInit: Meaning(lambda names, stmt: _fence_init, is_point=True),
    Arrive: Meaning(arrive, is_point=True),
    Expect: Meaning(arrive, is_point=True),
    FenceProxyAsync: Meaning(lambda names, stmt: _fence_proxy_global if stmt.memory is MemoryType.Global else _fence_proxy, is_point=True),
}
