"""TMA: boxes of a tensor copied between Global and Shared memory by the copy engine (PTX ISA, ``cp.async.bulk.tensor``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taskfuse.ir.combine import Combine
from taskfuse.ir.shared_layouts import swizzle_period, swizzled
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import TmaLoad, TmaStore
from taskfuse.kir.operands import Queue
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.engines import Claim, OperationState
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import CompiledExpr, Lanes
from taskfuse.sim.memory import Site
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.sim.region import Region
from taskfuse.sim.synchronization import cell
from taskfuse.target import TMA_BYTES

if TYPE_CHECKING:
    from taskfuse.sim.barriers import MbarrierCell
    from taskfuse.sim.block import Block

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Transfer:
    """A box of a tensor and its image in Shared memory.

    Attributes:
        inside: [elements of the box] true where the tensor has the element; ``index``: the indices of those.
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


def _transfers(agent: Agent, param: TensorMapParam, tensor: int, site: Site, coords: tuple[CompiledExpr, ...]) -> Iterator[tuple[int, Lanes, Transfer]]:
    """The transfer of each lane: (thread, the lane alone, box)."""
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
        for code, axis, step, extent, stride in zip(coords, steps, param.step, box.shape, box.strides, strict=True):
            position = code.value(lane, agent.env) + axis * step
            inside &= (position >= 0) & (position < extent)
            index += position * stride
        base = shared.origin + int(site.offset(lane, agent.env, shared)) * shared.dtype.itemsize
        if base % swizzle_period(param.swizzle):
            raise Fault(f"TMA at byte {base} of Shared memory, not a multiple of {swizzle_period(param.swizzle)}", thread=thread)
        last = coords[-1].value(lane, agent.env) * box.dtype.itemsize
        if last % TMA_BYTES:
            raise Fault(f"TMA at byte {last} along the last axis of {box}, not a multiple of {TMA_BYTES}", thread=thread)
        linear = base + np.arange(steps.shape[1]) * shared.dtype.itemsize
        yield thread, lane, Transfer(box, shared, inside, index[inside], swizzled(linear, param.swizzle))


@dataclass(slots=True, eq=False)
class LoadOperation:
    """A TMA load into one block.

    Attributes:
        block: the block of the issuing thread.
        target: the block whose Shared memory it writes.
        index: indices of the elements in the store of the Shared region.
    """

    block: Block
    target: Block
    pc: int
    thread: int
    transfer: Transfer
    index: Ints
    barrier: MbarrierCell
    zero: Any

    def execute(self) -> None:
        block, transfer = self.target, self.transfer
        source, target = block.memory.stores[transfer.tensor.number], block.memory.stores[transfer.shared.number]
        _check_published(self.block, transfer, self.thread)
        if source.valid is not None and (source.valid[transfer.index] != source.full).any():
            raise Fault(f"read of uninitialized {transfer.tensor}")
        values = np.full(len(self.index), self.zero)
        values[transfer.inside] = source.data[transfer.index]
        assert target.valid is not None
        if (observer := block.machine.observer) is not None:
            observer.access(block.memory, transfer.tensor, transfer.index, write=False)
            observer.access(block.memory, transfer.shared, self.index, write=True)
            observer.count(self.barrier, 0)
        proxy = block.engines.proxy(transfer.shared)
        proxy.incoming[self.index] -= 1
        proxy.stamps[self.index] = 0
        target.data[self.index] = values
        target.valid[self.index] = target.full
        block.engines.loads -= 1
        self.barrier.complete_bytes(transfer.bytes, block.machine.wake)


def load(names: Names, stmt: TmaLoad) -> Instruction:
    """``cp.async.bulk.tensor`` from Global to Shared memory, of every block of the cluster that it reaches: one operation for each."""
    param = names.maps[stmt.map]
    tensor, site, coords = names.numbers[param.tensor], names.site(stmt.out), tuple(map(names.expr, stmt.coords))
    name, slot = stmt.barrier.name, names.expr(stmt.barrier.slot)
    zero = names.values.literal(0, names.dtypes[param.tensor])

    def run(agent: Agent) -> Signal:
        pc = agent.pc - 1
        for thread, lane, transfer in _transfers(agent, param, tensor, site, coords):
            _check_published(agent.block, transfer, thread)
            for block in agent.block.reached(stmt.across):
                barrier = cell(block, name, slot.value(lane, agent.env), thread)
                operation = LoadOperation(agent.block, block, pc, thread, transfer, _claimed(block, transfer, barrier, thread), barrier, zero)
                if (observer := block.machine.observer) is not None:
                    observer.issue(operation)
                block.machine.post(operation)
        return Signal.POINT

    return run


def _check_published(block: Block, transfer: Transfer, thread: int, *, write: bool = False, combine: Combine | None = None) -> None:
    """Raises :class:`Fault` if a copy of a thread need not see what was written to its tensor last; ``combine``: it combines something with that."""
    published = block.memory.stores[transfer.tensor.number].published
    if published is None:
        return
    if (observer := block.machine.observer) is not None:
        if combine is None:
            observer.access(block.memory, transfer.tensor, transfer.index, write=write)
        else:
            observer.update(block.memory, transfer.tensor, transfer.index, (combine, True))
        observer.visibility(block.memory, transfer.tensor, transfer.index)
    published.check(transfer.index, block.number, thread, transfer.tensor, update=combine is not None)


def _claimed(block: Block, transfer: Transfer, barrier: MbarrierCell, thread: int) -> Ints:
    """The elements that a load will write in a block, from its issue on reserved for it. Raises :class:`Fault` if they, or its barrier, are not ready."""
    barrier.check()
    if not barrier.fenced:
        raise Fault(f"mbarrier {barrier.name} used by the copy engine before fence.mbarrier_init by the thread that initialized it", thread=thread)
    index = block.engines.index(transfer.shared, transfer.addresses)
    proxy = block.engines.proxy(transfer.shared)
    if (observer := block.machine.observer) is not None:
        observer.use(barrier)
        observer.access(block.memory, transfer.shared, index, write=True)
    block.engines.check_visible(transfer.shared, proxy, index)
    if proxy.readers[index].any():
        raise Fault(
            f"TMA load into {transfer.shared} before the asynchronous operation that reads it was waited for",
            thread=thread,
            help="wait for the operation before its slot is released",
        )
    proxy.incoming[index] += 1
    block.engines.loads += 1
    return index


@dataclass(slots=True, eq=False)
class StoreOperation:
    """A TMA store. Executed twice: the source is read, then the tensor is written; or combined by ``combine`` with what was read."""

    block: Block
    pc: int
    thread: int
    transfer: Transfer
    claim: Claim
    combine: Combine | None
    combined: Callable[[Any, Any], Any]
    progress: OperationState = OperationState.ISSUED
    claimed: bool = True
    values: Any = None

    @property
    def target(self) -> Block:
        return self.block

    def holds(self, owner: int) -> bool:
        """True: it can only be waited for by a wait_group."""
        return True

    def waited_for(self, owners: Sequence[int], wanted: OperationState) -> None:
        if self.claimed:
            self.claimed = False
            self.claim.drop()
        published = self.block.memory.stores[self.transfer.tensor.number].published
        if wanted is OperationState.DONE and published is not None:
            if (observer := self.block.machine.observer) is not None:
                observer.access(self.block.memory, self.transfer.tensor, self.transfer.index, write=True)
            published.waited_for(self.transfer.index, self.block.number, self.thread, update=self.combine is not None)

    def execute(self) -> None:
        block, transfer = self.block, self.transfer
        if self.progress is OperationState.ISSUED:
            self.values = block.engines.gather(transfer.shared, transfer.addresses, transfer.inside)[transfer.inside]
            self.progress = OperationState.SOURCE_READ
            block.machine.post(self)
        else:
            target = block.memory.stores[transfer.tensor.number]
            if target.valid is None:
                raise Fault(f"write to {transfer.tensor}")
            observer = block.machine.observer
            if self.combine is None:
                if observer is not None:
                    observer.access(block.memory, transfer.tensor, transfer.index, write=True)
                target.data[transfer.index] = self.values
                target.valid[transfer.index] = target.full
            else:
                if observer is not None:
                    observer.update(block.memory, transfer.tensor, transfer.index, (self.combine, True))
                if np.any(target.valid[transfer.index] != target.full):
                    raise Fault(f"update of uninitialized {transfer.tensor}", thread=self.thread)
                target.data[transfer.index] = self.combined(target.data[transfer.index], self.values)
            self.progress = OperationState.DONE
        block.engines.progressed()


def store(names: Names, stmt: TmaStore) -> Instruction:
    """``cp.async.bulk.tensor`` from Shared to Global memory, or ``cp.reduce.async.bulk.tensor``."""
    param = names.maps[stmt.map]
    tensor, site, coords = names.numbers[param.tensor], names.site(stmt.source), tuple(map(names.expr, stmt.coords))
    combine, dtype = stmt.combine, names.dtypes[param.tensor]

    def combined(a: Any, b: Any) -> Any:
        assert combine is not None
        return names.values.combine(combine, a, b, dtype)

    def run(agent: Agent) -> Signal:
        engines, pc = agent.block.engines, agent.pc - 1
        for thread, _, transfer in _transfers(agent, param, tensor, site, coords):
            _check_published(agent.block, transfer, thread, write=True, combine=combine)
            claim = engines.claim(transfer.shared, transfer.addresses[transfer.inside])
            published = agent.block.memory.stores[tensor].published
            if published is not None:
                published.store(transfer.index, update=combine is not None)
            operation = StoreOperation(agent.block, pc, thread, transfer, claim, combine, combined)
            if (observer := agent.block.machine.observer) is not None:
                observer.issue(operation)
            engines.fifo(Queue.BULK, thread).open.append(operation)
            agent.block.machine.post(operation)
        return Signal.POINT

    return run


MEANINGS: Meanings = {TmaLoad: Meaning(load, is_point=True), TmaStore: Meaning(store, is_point=True)}
