"""Tensor cores: wgmma in one FIFO per warpgroup (PTX ISA, ``wgmma.mma_async``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.limits import WARP, WARPGROUP
from taskfuse.kir.nodes import Descriptor, Queue, Wgmma
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.collectives import check_warps
from taskfuse.sim.engines import Claim, Progress
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Code, Lanes
from taskfuse.sim.layouts import accumulator_fragment, operand_offsets, swizzled
from taskfuse.sim.memory import Region, Site
from taskfuse.sim.synchronization import assemble, pause

if TYPE_CHECKING:
    from taskfuse.sim.block import Block
    from taskfuse.sim.program import Program

Ints = npt.NDArray[np.int64]
Instruction = Callable[[Agent], Signal | None]
_ADD = ELEMENTWISE["add"]


@dataclass(slots=True, eq=False)
class WgmmaOperation:
    """A wgmma of one warpgroup.

    Attributes:
        accumulators: index [128, n/2] into the store of the registers.
        a, b: byte addresses of the operands [64, k] and [n, k].
        holders: warps that have not retired it.
    """

    block: Block
    pc: int
    thread: int
    stmt: Wgmma
    program: Program
    registers: Region
    accumulators: Ints
    a: tuple[Region, Ints]
    b: tuple[Region, Ints]
    accumulate: bool
    claims: list[Claim]
    holders: int = WARPGROUP // WARP
    progress: Progress = Progress.ISSUED

    @property
    def target(self) -> Block:
        return self.block

    def retire(self, owner: int, wanted: Progress) -> None:
        memory = self.block.memory
        owned = memory.stores[self.registers.number].owned
        assert owned is not None
        first = owner * WARP - self.thread
        owned[self.accumulators[first : first + WARP]] -= 1
        memory.busy -= 1
        self.holders -= 1
        if not self.holders:
            for claim in self.claims:
                claim.drop()

    def execute(self) -> None:
        engines, values, stmt = self.block.engines, self.program.values, self.stmt
        a, b = (values.cast(engines.gather(*operand), stmt.dtype, float32) for operand in (self.a, self.b))
        product = values.matmul(a, b.T, float32)
        rows, columns = accumulator_fragment(stmt.n)
        result = product[rows, columns]
        store = self.block.memory.stores[self.registers.number]
        assert store.valid is not None
        if self.accumulate:
            if (store.valid[self.accumulators] != store.full).any():
                raise Fault(f"read of uninitialized {self.registers}")
            result = values.apply(_ADD, (store.data[self.accumulators], result), (float32, float32), float32, float32)
        store.data[self.accumulators] = result
        store.valid[self.accumulators] = store.full
        self.progress = Progress.DONE
        queue = engines.tensor[self.thread // WARPGROUP]
        queue.pop(0)
        if queue:
            self.block.machine.post(queue[0])
        engines.progressed()


def _operand(agent: Agent, program: Program, descriptor: Descriptor, site: Site, offset: Code, rows: int, stmt: Wgmma, lanes: Lanes) -> tuple[Region, Ints]:
    region = agent.block.memory.regions[site.buffer]
    first = site.offset(lanes, agent.env, region)
    shift = offset.at(lanes, agent.env)
    if not isinstance(first, int) or not isinstance(shift, int):
        raise Fault(f"the threads of a warpgroup give different addresses in {region} to wgmma", thread=lanes.first)
    if region.dtype is not stmt.dtype:
        raise Fault(f"wgmma of {stmt.dtype} on {region}, which has {region.dtype}")
    base = region.origin + first * region.dtype.itemsize + shift
    if base % 16:
        raise Fault(f"wgmma operand at byte {base} of Shared memory, no multiple of 16")
    offsets = operand_offsets(rows, stmt.k, region.dtype.itemsize, descriptor.swizzle, descriptor.lbo, descriptor.sbo, descriptor.major)
    return region, swizzled(base + offsets, descriptor.swizzle)


def multiply(program: Program, stmt: Wgmma) -> Instruction:
    """``wgmma.mma_async`` by every warpgroup of the agent."""
    acc, accumulate = program.site(stmt.acc), program.expr(stmt.accumulate)
    operands = [(d, program.site(d.base), program.expr(d.offset), rows) for d, rows in ((stmt.a, 64), (stmt.b, stmt.n))]

    def run(agent: Agent) -> Signal:
        block, memory, env = agent.block, agent.block.memory, agent.env
        engines, store = block.engines, memory.stores[acc.buffer]
        registers = memory.regions[acc.buffer]
        assert store.owned is not None
        for group in _warpgroups(agent, "wgmma"):
            if not memory.unfenced.isdisjoint(range(group * WARPGROUP // WARP, (group + 1) * WARPGROUP // WARP)):
                raise Fault(
                    "missing wgmma.fence: a warp has not fenced its registers",
                    thread=group * WARPGROUP,
                    help="wgmma.fence comes before the first wgmma and after every write to accumulators",
                )
            lanes = block.machine.table.span(group * WARPGROUP, (group + 1) * WARPGROUP)
            first = acc.offset(lanes, env, registers)
            if not isinstance(first, int) or first + stmt.n // 2 > registers.elements:
                raise Fault(f"wgmma needs {stmt.n // 2} registers of {registers}, which does not have them", thread=lanes.first)
            index = (first + np.arange(stmt.n // 2)[None, :]) * registers.threads + lanes.ids[:, None]
            a, b = (_operand(agent, program, d, site, offset, rows, stmt, lanes) for d, site, offset, rows in operands)
            claims = [engines.claim(region, byte_addresses) for region, byte_addresses in (a, b)]
            flag = bool(accumulate.value(lanes, env))
            operation = WgmmaOperation(block, agent.pc - 1, lanes.first, stmt, program, registers, index, a, b, flag, claims)
            if block.machine.observer is not None:
                block.machine.observer.issue(operation)
            for warp in set((lanes.ids // WARP).tolist()):
                engines.fifo(Queue.WGMMA, warp).open.append(operation)
            store.owned[index] += 1
            memory.busy += operation.holders
            queue = engines.tensor.setdefault(group, [])
            queue.append(operation)
            if len(queue) == 1:
                block.machine.post(operation)
        return pause(agent, agent.pc - 1)

    return run


def _warpgroups(agent: Agent, what: str) -> list[int]:
    """The warpgroups that are complete at this statement; where warps of the agent miss others of their warpgroup, they wait (:func:`pause`)."""
    check_warps(agent, what)
    numbers, counts = np.unique(agent.lanes.ids // WARPGROUP, return_counts=True)
    sizes = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    parts = [(group, WARPGROUP, count) for group, count in sizes.items() if count != WARPGROUP]
    return sorted([group for group, count in sizes.items() if count == WARPGROUP] + assemble(agent, WARPGROUP, parts))


def fence(agent: Agent) -> None:
    """``wgmma.fence`` by the warps of the agent."""
    agent.block.memory.unfenced.difference_update((agent.lanes.ids // WARP).tolist())
