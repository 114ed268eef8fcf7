"""The asynchronous engines of a block: TMA loads, TMA stores (bulk queue of a thread) and tensor cores (wgmma queue of a warpgroup).

An engine reads and writes memory when it executes an operation, not when the operation is issued; the scheduler decides when. Reads
and writes of the asynchronous proxy find generic writes that no ``fence.proxy.async`` of their writer has made visible.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir.nodes import Commit, Descriptor, Queue, Retire, TensorMapParam, TmaLoad, TmaStore, Wgmma
from taskfuse.sim.agent import Agent, Signal
from taskfuse.sim.collectives import check_warps
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Code, Lanes
from taskfuse.sim.layouts import WARP, WARPGROUP, accumulator_fragment, operand_offsets, swizzle_period, swizzled
from taskfuse.sim.memory import Proxy, Region, Site, check_incoming
from taskfuse.sim.synchronization import assemble, cell, pause

if TYPE_CHECKING:
    from taskfuse.sim.barriers import MbarrierCell
    from taskfuse.sim.block import Block
    from taskfuse.sim.program import Program

Ints = npt.NDArray[np.int64]
Instruction = Callable[[Agent], Signal | None]
_ADD = ELEMENTWISE["add"]


class Progress(IntEnum):
    """How far an operation is."""

    ISSUED = 0
    SOURCE_READ = 1
    DONE = 2


class Operation(Protocol):
    """An operation in a queue.

    Attributes:
        retired: a retire of its owner has waited for its source to be read, or for more.
    """

    progress: Progress
    retired: bool

    def retire(self) -> None:
        """An owner has waited for it."""
        ...


@dataclass(slots=True)
class Fifo:
    """A commit queue of one owner: batches of operations, and the operations issued since the last commit."""

    batches: list[list[Operation]] = field(default_factory=lambda: list[list[Operation]]())
    open: list[Operation] = field(default_factory=lambda: list[Operation]())

    def commit(self) -> None:
        """Close the batch."""
        self.batches.append(self.open)
        self.open = []

    def retire(self, pending: int, wanted: Progress) -> bool:
        """True if all but the last ``pending`` batches are at least as far as ``wanted``; those are then retired."""
        covered = self.batches[: max(0, len(self.batches) - pending)]
        if any(op.progress < wanted for batch in covered for op in batch):
            return False
        for batch in covered:
            for op in batch:
                op.retire()
        if wanted is Progress.DONE:
            del self.batches[: len(covered)]
        return True

    def operations(self) -> Iterator[Operation]:
        """Everything that was not retired for good."""
        for batch in self.batches:
            yield from batch
        yield from self.open


@dataclass(frozen=True, slots=True)
class Claim:
    """Elements of Shared memory that an operation reads."""

    proxy: Proxy
    index: Ints

    def take(self) -> None:
        """From here on, nobody may write them."""
        self.proxy.readers[self.index] += 1

    def drop(self) -> None:
        """The operation was retired."""
        self.proxy.readers[self.index] -= 1


class Engines:
    """The engines of a block.

    Attributes:
        queues: per queue and owner: a warp (wgmma) or a thread (bulk).
        tensor: wgmmas that are not executed yet, in order, per warpgroup.
        loads: TMA loads that are not executed yet.
        waiters: agents that wait in a retire.
        fences: the memory's clock at the last proxy fence of each thread.
    """

    __slots__ = ("block", "fences", "loads", "queues", "tensor", "waiters")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.queues: dict[tuple[Queue, int], Fifo] = {}
        self.tensor: dict[int, list[WgmmaOperation]] = {}
        self.loads = 0
        self.waiters: list[Agent] = []
        self.fences = np.zeros(block.threads, np.int64)

    def fence(self, lanes: Lanes) -> None:
        """``fence.proxy.async`` by the lanes."""
        memory = self.block.memory
        memory.clock += 1
        self.fences[lanes.ids] = memory.clock

    def fifo(self, queue: Queue, owner: int) -> Fifo:
        """The queue of a warp or thread."""
        return self.queues.setdefault((queue, owner), Fifo())

    def progressed(self) -> None:
        """Wake the agents that wait for an operation: one has gone on."""
        woken, self.waiters = self.waiters, []
        self.block.machine.wake(woken)

    def leave(self, lanes: Lanes) -> None:
        """Threads exit: nothing of theirs may still read Shared memory or write registers, and no load may come after the last of them."""
        if self.queues:
            threads, warps = set(lanes.ids.tolist()), set((lanes.ids // WARP).tolist())
            for (queue, owner), fifo in self.queues.items():
                if owner not in (warps if queue is Queue.WGMMA else threads):
                    continue
                if any(not op.retired for op in fifo.operations()):
                    what = "wgmma" if queue is Queue.WGMMA else "TMA store"
                    raise Fault(f"thread exits with a {what} that was never retired", thread=lanes.first)
        if self.loads and self.block.exited + lanes.count == self.block.threads:
            raise Fault(f"the block exits while {self.loads} TMA loads are in flight")

    # -- Shared memory as the asynchronous proxy sees it ------------------------------------------------------------------------------

    def index(self, region: Region, byte_addresses: Ints) -> Ints:
        """Index into the store of a Shared region, of elements at byte addresses."""
        outside = (byte_addresses < region.origin) | (byte_addresses >= region.origin + region.elements * region.dtype.itemsize)
        if outside.any():
            first = int(byte_addresses[outside][0]) - region.origin
            raise Fault(f"{region} accessed out of bounds", notes=(f"byte {first} of {region.elements * region.dtype.itemsize}",))
        return byte_addresses // region.dtype.itemsize * region.unit

    def check_visible(self, region: Region, proxy: Proxy, index: Ints) -> None:
        """Raises :class:`Fault` if a generic write to one of the elements was not fenced by its writer, or a load is about to overwrite one."""
        check_incoming(proxy, index, region)
        writers = proxy.writers[index]
        unfenced = proxy.stamps[index] > self.fences[writers]
        if unfenced.any():
            writer = int(writers[unfenced][0])
            raise Fault(
                f"missing fence.proxy.async: {region} was written by a thread and is accessed by an asynchronous engine",
                notes=(f"written by thread {self.block.machine.table.coordinates(writer)}",),
                help="the writer must execute fence.proxy.async after the write and before it publishes it",
            )

    def claim(self, region: Region, byte_addresses: Ints) -> Claim:
        """The elements at byte addresses, which must be visible, claimed by an operation that reads them."""
        index = self.index(region, byte_addresses)
        proxy = self.proxy(region)
        self.check_visible(region, proxy, index)
        claim = Claim(proxy, index)
        claim.take()
        return claim

    def proxy(self, region: Region) -> Proxy:
        """What is known of a Shared region."""
        found = self.block.memory.stores[region.number].proxy
        assert found is not None
        return found

    def gather(self, region: Region, byte_addresses: Ints, needed: npt.NDArray[np.bool_] | None = None) -> Any:
        """The elements at byte addresses, those ``needed`` being initialized and visible."""
        store = self.block.memory.stores[region.number]
        index = self.index(region, byte_addresses)
        looked_at = index if needed is None else index[needed]
        assert store.valid is not None
        if (store.valid[looked_at] != store.full).any():
            raise Fault(f"read of uninitialized {region}")
        self.check_visible(region, self.proxy(region), looked_at)
        found = store.data[index]
        return found if store.dtype is None else found.astype(store.dtype)


# -- TMA --------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Transfer:
    """A box of a tensor and its image in Shared memory.

    Attributes:
        inside: [elements of the box] true where the tensor has the element; ``index``: where, for those.
        addresses: byte addresses in Shared memory of all elements.
    """

    tensor: Region
    shared: Region
    inside: npt.NDArray[np.bool_]
    index: Ints
    addresses: Ints

    @property
    def bytes(self) -> int:
        return len(self.inside) * self.tensor.dtype.itemsize


def _transfers(agent: Agent, param: TensorMapParam, tensor: int, site: Site, coords: tuple[Code, ...]) -> Iterator[tuple[int, Lanes, Transfer]]:
    """What each lane transfers: (thread, the lane alone, box)."""
    block = agent.block
    memory, table = block.memory, block.machine.table
    box, shared = memory.regions[tensor], memory.regions[site.buffer]
    if box.dtype is not shared.dtype:
        raise Fault(f"TMA between {box.dtype} and {shared.dtype}")
    steps = np.indices(param.box).reshape(len(param.box), -1)
    for thread in agent.lanes.ids.tolist():
        lane = table.get(np.asarray([thread]))
        inside = np.ones(steps.shape[1], np.bool_)
        index = np.zeros(steps.shape[1], np.int64)
        for code, axis, extent, stride in zip(coords, steps, box.shape, box.strides, strict=True):
            position = code.value(lane, agent.env) + axis
            inside &= (position >= 0) & (position < extent)
            index += position * stride
        base = shared.origin + int(site.offset(lane, agent.env, shared)) * shared.dtype.itemsize
        if base % swizzle_period(param.swizzle):
            raise Fault(f"TMA at byte {base} of Shared memory, no multiple of {swizzle_period(param.swizzle)}", thread=thread)
        linear = base + np.arange(steps.shape[1]) * shared.dtype.itemsize
        yield thread, lane, Transfer(box, shared, inside, index[inside], swizzled(linear, param.swizzle))


@dataclass(slots=True)
class LoadOperation:
    """A TMA load. ``index``: of the elements in the store of the Shared region."""

    block: Block
    pc: int
    thread: int
    transfer: Transfer
    index: Ints
    barrier: MbarrierCell
    zero: Any

    def execute(self) -> None:
        block, transfer = self.block, self.transfer
        source, target = block.memory.stores[transfer.tensor.number], block.memory.stores[transfer.shared.number]
        if source.valid is not None and (source.valid[transfer.index] != source.full).any():
            raise Fault(f"read of uninitialized {transfer.tensor}")
        values = np.full(len(self.index), self.zero)
        values[transfer.inside] = source.data[transfer.index]
        assert target.valid is not None
        proxy = block.engines.proxy(transfer.shared)
        proxy.incoming[self.index] -= 1
        proxy.stamps[self.index] = 0
        target.data[self.index] = values
        target.valid[self.index] = target.full
        block.engines.loads -= 1
        self.barrier.complete_bytes(transfer.bytes, block.machine.wake)


def tma_load(program: Program, stmt: TmaLoad) -> Instruction:
    """``cp.async.bulk.tensor`` from Global to Shared memory."""
    param = program.maps[stmt.map]
    tensor, site, coords = program.numbers[param.tensor], program.site(stmt.out), tuple(map(program.expr, stmt.coords))
    name, slot = stmt.barrier.name, program.expr(stmt.barrier.slot)
    zero = program.values.literal(0, program.dtypes[param.tensor])

    def run(agent: Agent) -> Signal:
        block, pc = agent.block, agent.pc - 1
        for thread, lane, transfer in _transfers(agent, param, tensor, site, coords):
            barrier = cell(agent, name, slot.value(lane, agent.env), thread)
            barrier.check()
            if not barrier.fenced:
                raise Fault(f"mbarrier {barrier.name} used by the copy engine before fence.mbarrier_init by the thread that initialized it", thread=thread)
            index = block.engines.index(transfer.shared, transfer.addresses)
            proxy = block.engines.proxy(transfer.shared)
            block.engines.check_visible(transfer.shared, proxy, index)
            if proxy.readers[index].any():
                raise Fault(
                    f"TMA load into {transfer.shared} before the asynchronous operation that reads it was retired",
                    thread=thread,
                    help="retire the operation before its slot is released",
                )
            proxy.incoming[index] += 1
            block.engines.loads += 1
            block.machine.post(LoadOperation(block, pc, thread, transfer, index, barrier, zero))
        return Signal.POINT

    return run


@dataclass(slots=True)
class StoreOperation:
    """A TMA store. Executed twice: the source is read, then the tensor is written."""

    block: Block
    pc: int
    thread: int
    transfer: Transfer
    claim: Claim
    progress: Progress = Progress.ISSUED
    retired: bool = False
    values: Any = None

    def retire(self) -> None:
        if not self.retired:
            self.retired = True
            self.claim.drop()

    def execute(self) -> None:
        block, transfer = self.block, self.transfer
        if self.progress is Progress.ISSUED:
            self.values = block.engines.gather(transfer.shared, transfer.addresses, transfer.inside)[transfer.inside]
            self.progress = Progress.SOURCE_READ
            block.machine.post(self)
        else:
            target = block.memory.stores[transfer.tensor.number]
            if target.valid is None:
                raise Fault(f"write to {transfer.tensor}")
            target.data[transfer.index] = self.values
            target.valid[transfer.index] = target.full
            self.progress = Progress.DONE
        block.engines.progressed()


def tma_store(program: Program, stmt: TmaStore) -> Instruction:
    """``cp.async.bulk.tensor`` from Shared to Global memory."""
    param = program.maps[stmt.map]
    tensor, site, coords = program.numbers[param.tensor], program.site(stmt.source), tuple(map(program.expr, stmt.coords))

    def run(agent: Agent) -> Signal:
        engines, pc = agent.block.engines, agent.pc - 1
        for thread, _, transfer in _transfers(agent, param, tensor, site, coords):
            claim = engines.claim(transfer.shared, transfer.addresses[transfer.inside])
            operation = StoreOperation(agent.block, pc, thread, transfer, claim)
            engines.fifo(Queue.BULK, thread).open.append(operation)
            agent.block.machine.post(operation)
        return Signal.POINT

    return run


# -- wgmma ------------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WgmmaOperation:
    """A wgmma of one warpgroup.

    Attributes:
        accumulators: index [128, n/2] into the store of the registers; ``first``: the first register.
        a, b: byte addresses of the operands [64, k] and [n, k].
        holders: warps that have not retired it.
    """

    block: Block
    pc: int
    thread: int
    stmt: Wgmma
    program: Program
    registers: Region
    first: int
    accumulators: Ints
    a: tuple[Region, Ints]
    b: tuple[Region, Ints]
    accumulate: bool
    claims: list[Claim]
    holders: int = WARPGROUP // WARP
    progress: Progress = Progress.ISSUED
    retired: bool = False

    def retire(self) -> None:
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
        queue.remove(self)
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


def wgmma(program: Program, stmt: Wgmma) -> Instruction:
    """``wgmma.mma_async`` by every warpgroup of the agent."""
    acc, accumulate = program.site(stmt.acc), program.expr(stmt.accumulate)
    operands = [(d, program.site(d.base), program.expr(d.offset), rows) for d, rows in ((stmt.a, 64), (stmt.b, stmt.n))]

    def run(agent: Agent) -> Signal:
        block, memory, env = agent.block, agent.block.memory, agent.env
        engines, store = block.engines, memory.stores[acc.buffer]
        registers = memory.regions[acc.buffer]
        assert store.owned is not None
        for group in _warpgroups(agent, "wgmma"):
            lanes = block.machine.table.span(group * WARPGROUP, (group + 1) * WARPGROUP)
            first = acc.offset(lanes, env, registers)
            if not isinstance(first, int) or first + stmt.n // 2 > registers.elements:
                raise Fault(f"wgmma needs {stmt.n // 2} registers of {registers}, which does not have them", thread=lanes.first)
            index = (first + np.arange(stmt.n // 2)[None, :]) * registers.threads + lanes.ids[:, None]
            a, b = (_operand(agent, program, d, site, offset, rows, stmt, lanes) for d, site, offset, rows in operands)
            claims = [engines.claim(region, byte_addresses) for region, byte_addresses in (a, b)]
            flag = bool(accumulate.value(lanes, env))
            operation = WgmmaOperation(block, agent.pc - 1, lanes.first, stmt, program, registers, first, index, a, b, flag, claims)
            for warp in set((lanes.ids // WARP).tolist()):
                engines.fifo(Queue.WGMMA, warp).open.append(operation)
            store.owned[index] = 1
            memory.busy = True
            queue = engines.tensor.setdefault(group, [])
            queue.append(operation)
            if len(queue) == 1:
                block.machine.post(operation)
        return pause(agent, agent.pc - 1)

    return run


# -- queues -----------------------------------------------------------------------------------------------------------------------------


def _warpgroups(agent: Agent, what: str) -> list[int]:
    """The warpgroups that are complete at this statement; where warps of the agent miss others of their warpgroup, they wait (:func:`pause`)."""
    check_warps(agent, what)
    numbers, counts = np.unique(agent.lanes.ids // WARPGROUP, return_counts=True)
    sizes = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    parts = [(group, WARPGROUP, count) for group, count in sizes.items() if count != WARPGROUP]
    return sorted([group for group, count in sizes.items() if count == WARPGROUP] + assemble(agent, WARPGROUP, parts))


def _owners(agent: Agent, queue: Queue) -> list[int]:
    """The owners of the agent's queues."""
    if queue is Queue.BULK:
        return agent.lanes.ids.tolist()
    check_warps(agent, f"an instruction on the {queue.value} queue")
    return sorted(set((agent.lanes.ids // WARP).tolist()))


def commit(stmt: Commit) -> Instruction:
    """``wgmma.commit_group``, ``cp.async.bulk.commit_group``."""

    def run(agent: Agent) -> Signal:
        for owner in _owners(agent, stmt.queue):
            agent.block.engines.fifo(stmt.queue, owner).commit()
        return Signal.POINT

    return run


def retire(stmt: Retire) -> Instruction:
    """``wgmma.wait_group``, ``cp.async.bulk.wait_group`` (``.read``)."""
    wanted = Progress.SOURCE_READ if stmt.read_only else Progress.DONE

    def run(agent: Agent) -> Signal:
        engines = agent.block.engines
        waits = [o for o in _owners(agent, stmt.queue) if not engines.fifo(stmt.queue, o).retire(stmt.pending, wanted)]
        if stmt.queue is Queue.WGMMA:
            _release_registers(engines, agent.lanes)
        if not waits:
            return Signal.POINT
        agent.pc -= 1
        engines.waiters.append(agent)
        return agent.block.machine.block(agent, agent.pc, lambda: f"operations of the {stmt.queue.value} queue are not done")

    return run


def _release_registers(engines: Engines, lanes: Lanes) -> None:
    """Give back the registers of the lanes that no unretired wgmma owns."""
    memory = engines.block.memory
    views = {r.number: s.owned.reshape(r.elements, r.threads) for r, s in zip(memory.regions, memory.stores, strict=True) if s.owned is not None}
    for owned in views.values():
        owned[:, lanes.where] = 0
    for warp in set((lanes.ids // WARP).tolist()):
        for op in engines.fifo(Queue.WGMMA, warp).operations():
            if isinstance(op, WgmmaOperation):
                views[op.registers.number][op.first : op.first + op.stmt.n // 2, warp * WARP : (warp + 1) * WARP] = 1
    memory.busy = any(bool(owned.any()) for owned in views.values())
