"""Tensor cores: wgmma in one FIFO per warpgroup (PTX ISA, ``wgmma.mma_async``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Array
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.shared_layouts import operand_offsets, swizzle_period, swizzled
from taskfuse.kir.operands import Access, Descriptor, Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import WgmmaFence
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.collectives import check_warps
from taskfuse.sim.engines import Claim, Engines, OperationState
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, Lanes
from taskfuse.sim.matrices import Registers, factor
from taskfuse.sim.memory import Site
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.sim.region import Region
from taskfuse.sim.synchronization import assemble, pause
from taskfuse.target import WARP, WARPGROUP

if TYPE_CHECKING:
    from taskfuse.sim.block import Block

Ints = npt.NDArray[np.int64]
_ADD = ELEMENTWISE["add"]


@dataclass(frozen=True, slots=True, eq=False)
class SharedOperand:
    """An operand in Shared memory.

    Attributes:
        addresses: byte addresses ``[rows, k]``.
        claim: prevents others from writing it.
    """

    engines: Engines
    region: Region
    addresses: Ints
    claim: Claim

    def matrix(self) -> Array:
        """Its elements, read now."""
        return np.asarray(self.engines.gather(self.region, self.addresses))


@dataclass(slots=True, eq=False)
class WgmmaOperation:
    """A wgmma of one warpgroup.

    Attributes:
        a, b: operands ``[64, k]`` and ``[n, k]``, read when it is executed.
        holders: warps that have not waited for it.
    """

    block: Block
    pc: int
    thread: int
    stmt: Wgmma
    names: Names
    accumulators: Registers
    a: SharedOperand | Registers
    b: SharedOperand
    accumulate: bool
    holders: int = WARPGROUP // WARP
    progress: OperationState = OperationState.ISSUED

    def hold(self, change: int, threads: slice = slice(None)) -> None:
        """Count this operation (1), or no longer (-1), as an owner of registers of some threads of the warpgroup."""
        for registers in (self.accumulators, self.a):
            if isinstance(registers, Registers):
                owned = registers.store.owned
                assert owned is not None
                owned[registers.index[0, threads]] += change

    @property
    def target(self) -> Block:
        return self.block

    def holds(self, owner: int) -> bool:
        """True: it can only be waited for by a wait_group."""
        return True

    def waited_for(self, owners: Sequence[int], wanted: OperationState) -> None:
        for owner in owners:
            first = owner * WARP - self.thread
            self.hold(-1, slice(first, first + WARP))
        self.block.memory.busy -= len(owners)
        self.holders -= len(owners)
        if not self.holders:
            for operand in (self.a, self.b):
                if isinstance(operand, SharedOperand):
                    operand.claim.drop()

    def execute(self) -> None:
        engines, values, stmt = self.block.engines, self.names.values, self.stmt
        dtype = self.accumulators.region.dtype
        a = self.a.matrix() if isinstance(self.a, SharedOperand) else self.a.matrices()[0]
        left, right = stmt.factors
        factors = factor(values, a, left, dtype), factor(values, self.b.matrix(), right, dtype).T
        result = values.matmul(*factors, dtype)
        if self.accumulate:
            result = values.apply(_ADD, (self.accumulators.matrices()[0], result), (dtype, dtype), dtype, dtype)
        self.accumulators.put(result[None])
        self.progress = OperationState.DONE
        queue = engines.tensor[self.thread // WARPGROUP]
        queue.pop(0)
        if queue:
            self.block.machine.post(queue[0])
        engines.progressed()


def _tile(agent: Agent, descriptor: Descriptor, site: Site, offset: CompiledExpr, shape: tuple[int, int], dtype: DType, lanes: Lanes) -> SharedOperand:
    engines = agent.block.engines
    region = agent.block.memory.regions[site.buffer]
    first = site.offset(lanes, agent.env, region)
    shift = offset.at(lanes, agent.env)
    if not isinstance(first, int) or not isinstance(shift, int):
        raise Fault(f"the threads of a warpgroup give different addresses in {region} to wgmma", thread=lanes.first)
    if region.dtype is not dtype:
        raise Fault(f"wgmma of {dtype} on {region}, which has {region.dtype}")
    base = region.origin + first * region.dtype.itemsize + shift
    if base % 16:
        raise Fault(f"wgmma operand at byte {base} of Shared memory, not a multiple of 16")
    if descriptor.swizzle and base % swizzle_period(descriptor.swizzle) >= descriptor.swizzle:
        raise Fault(f"wgmma operand at byte {base} of Shared memory, not in the first row of a period of its swizzle")
    offsets = operand_offsets(*shape, region.dtype.itemsize, descriptor.swizzle, descriptor.lbo, descriptor.sbo, descriptor.major)
    addresses = swizzled(base + offsets, descriptor.swizzle)
    return SharedOperand(engines, region, addresses, engines.claim(region, addresses))


def _operand(
    names: Names, operand: Descriptor | Access, fragment: Fragment | None, rows: int, k: int, dtype: DType
) -> Callable[[Agent, Lanes], SharedOperand | Registers]:
    """How a warpgroup's operand is found when a wgmma is issued."""
    if isinstance(operand, Access):
        held = names.site(operand)
        assert fragment is not None
        return lambda agent, lanes: Registers.of(agent.block.memory, held, lanes, agent.env, fragment, "wgmma")
    site, offset = names.site(operand.base), names.expr(operand.offset)
    return lambda agent, lanes: _tile(agent, operand, site, offset, (rows, k), dtype, lanes)


def multiply(names: Names, stmt: Wgmma) -> Instruction:
    """``wgmma.mma_async`` by every warpgroup of the agent."""
    row = stmt.row
    acc, accumulate, fragment = names.site(stmt.acc), names.expr(stmt.accumulate), stmt.accumulators
    find_a = _operand(names, stmt.a, row.a_registers, row.m, row.k, row.a)
    find_b = _operand(names, stmt.b, row.b_registers, stmt.n, row.k, row.b)

    def run(agent: Agent) -> Signal:
        block, memory, env = agent.block, agent.block.memory, agent.env
        engines = block.engines
        for group in _warpgroups(agent, "wgmma"):
            if not memory.unfenced.isdisjoint(range(group * WARPGROUP // WARP, (group + 1) * WARPGROUP // WARP)):
                raise Fault(
                    "missing wgmma.fence: a warp has not fenced its registers",
                    thread=group * WARPGROUP,
                    help="wgmma.fence comes before the first wgmma and after every write to accumulators or operand registers",
                )
            lanes = block.machine.table.span(group * WARPGROUP, (group + 1) * WARPGROUP)
            accumulators = Registers.of(memory, acc, lanes, env, fragment, "wgmma")
            a, b = find_a(agent, lanes), find_b(agent, lanes)
            assert isinstance(b, SharedOperand)
            operation = WgmmaOperation(block, agent.pc - 1, lanes.first, stmt, names, accumulators, a, b, bool(accumulate.value(lanes, env)))
            if block.machine.observer is not None:
                block.machine.observer.issue(operation)
            for warp in set((lanes.ids // WARP).tolist()):
                engines.fifo(Queue.WGMMA, warp).open.append(operation)
            operation.hold(1)
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


def _fence(agent: Agent) -> None:
    """``wgmma.fence`` by the warps of the agent."""
    check_warps(agent, "wgmma.fence")
    agent.block.memory.unfenced.difference_update((agent.lanes.ids // WARP).tolist())


MEANINGS: Meanings = {Wgmma: Meaning(multiply, is_point=True), WgmmaFence: Meaning(lambda names, stmt: _fence)}
