"""The state of a machine between two steps, as far as it can affect later steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    from taskfuse.sim.agent import Agent
    from taskfuse.sim.block import Block
    from taskfuse.sim.happens_before import HappensBefore
    from taskfuse.sim.machine import Machine
    from taskfuse.sim.published import Published


def state(machine: Machine, order: HappensBefore) -> int:
    """A hash of the state: equal for equal states; two different states collide with a probability of 2^-61.

    It covers agents (threads, statement, loop variables, cursors), memory with its marks, barriers, queues, and operations in flight, which
    are named by ``order``.
    """
    blocks: dict[int, Block] = {}
    agents = [*machine.ready, *(a for a, _, _ in machine.waiting.values()), *(a for join in machine.parked for a in join.parked)]
    for agent in agents:
        blocks[agent.block.number] = agent.block
    first = next(iter(blocks.values()), None)
    shared: list[Hashable] = [] if first is None else [_bytes(s.data, s.valid) for s in first.memory.stores if s.valid is not None]
    shown = [] if first is None else [_shown(s.published) for s in first.memory.stores if s.published is not None]
    for action in machine.actions:
        blocks[action.block.number] = action.block
    barriers = tuple((name, m.arrived) for name, m in machine.counters.items())
    semaphores = tuple((name, s.state()) for name, s in machine.semaphores.items())
    return hash(
        (
            tuple(sorted(hash(_agent(a, a in machine.waiting)) for a in agents)),
            tuple(shared),
            tuple(shown),
            tuple(_block(blocks[number]) for number in sorted(blocks)),
            frozenset(order.name(a) for a in machine.actions),
            barriers,
            semaphores,
        )
    )


def _agent(agent: Agent, waits: bool) -> Hashable:
    detours = tuple((d.join, d.everyone.ids.tobytes(), tuple((lanes.ids.tobytes(), pc) for lanes, pc in d.rest)) for d in agent.detours)
    env = tuple(sorted(agent.env.items()))
    return (agent.block.number, agent.lanes.ids.tobytes(), agent.pc, env, detours, agent.missing, agent.torn, waits, tuple(j.pc for j in agent.joins))


def _bytes(*arrays: Any) -> Hashable:
    return tuple(None if a is None else a.tobytes() for a in arrays)


def _shown(published: Published) -> Hashable:
    """The part of a tensor's writes that later steps can observe: whose are hidden from engines, and which may be in flight."""
    return _bytes(np.where(published.unfenced(slice(None)), published.writers, -1), published.by_engine, published.incoming)


def _block(block: Block) -> Hashable:
    memory, engines = block.memory, block.engines
    contents: list[Hashable] = []
    for region, store in zip(memory.regions, memory.stores, strict=True):
        if store.valid is None:
            continue
        contents.append(_bytes(store.data, store.valid, store.owned))
        if store.proxy is not None:
            # clock times differ between equal states: what counts is whether the writer has fenced
            proxy, part = store.proxy, slice(region.start, region.start + region.elements * region.step, region.step)
            unfenced = proxy.stamps[part] > engines.fences[proxy.writers[part]]
            contents.append(_bytes(np.where(unfenced, proxy.writers[part], -1), proxy.readers[part], proxy.incoming[part], proxy.copying[part]))
    mbarriers = tuple((c.count, c.pending, c.bytes, c.phases, c.fenced) for cells in block.mbarriers.values() for c in cells)
    barriers = (
        block.barrier.arrived,
        block.cluster.barrier.arrived,
        block.cluster.has_begun,
        tuple(sorted((k, m.arrived) for k, m in block.named.items())),
        tuple(sorted((k, m.arrived) for k, m in block.warps.items() if m.arrived)),
    )
    queues = tuple(
        sorted(
            ((queue.value, owner), tuple(tuple(op.progress for op in batch) for batch in (*fifo.batches, fifo.open)))
            for (queue, owner), fifo in engines.queues.items()
        )
    )
    tensor = tuple(sorted((group, len(queue)) for group, queue in engines.tensor.items()))
    arrivals = tuple(sorted((a.pc, a.thread, a.barrier.name, len(a.owners), a.left) for a in engines.arrivals))
    return (block.number, tuple(contents), mbarriers, barriers, queues, tensor, engines.loads, arrivals, block.exited, tuple(sorted(memory.unfenced)))
