"""Asynchronous copies from Global to Shared memory (PTX ISA, ``cp.async``), and the arrivals that wait for them (``cp.async.mbarrier.arrive``).

The copies of one warp by one statement complete together, at any later time. Until the issuing thread has waited for its copy, or an arrival
that covers it has been counted, no thread may access its destination: this is checked in every interleaving, whether or not the copy is complete. For
the asynchronous proxy the elements are generic writes of the issuing thread at the time when it waits for them: an earlier fence does not cover them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from taskfuse.kir.nodes import AsyncCopy
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import ArriveAsync
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.engines import OperationState
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Env, Lanes, LaneTable, groups
from taskfuse.sim.memory import Site, StorePlace, stamp
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.sim.region import Region
from taskfuse.sim.synchronization import cell
from taskfuse.target import WARP

if TYPE_CHECKING:
    from taskfuse.sim.barriers import MbarrierCell
    from taskfuse.sim.block import Block

Ints = npt.NDArray[np.int64]


@dataclass(slots=True, eq=False)
class CopyOperation:
    """The copies that the threads of one warp have issued together.

    Attributes:
        thread: the first of the threads; ``owners``: all.
        source, destination: regions.
        index: [threads, width] in the store of ``destination``.
        valid: which threads read ``source``; ``places``: [valid threads, width] in its store.
        held: threads that have not waited for their copy.
        arrivals: arrivals that wait for the operation.
    """

    block: Block
    pc: int
    thread: int
    owners: Ints
    source: Region
    destination: Region
    index: Ints
    valid: npt.NDArray[np.bool_]
    places: Ints
    zero: Any
    held: set[int]
    progress: OperationState = OperationState.ISSUED
    arrivals: list[ArriveOperation] = field(default_factory=lambda: list["ArriveOperation"]())

    @property
    def target(self) -> Block:
        """The block whose state the copies change."""
        return self.block

    def execute(self) -> None:
        block = self.block
        source, target = block.memory.stores[self.source.number], block.memory.stores[self.destination.number]
        if (observer := block.machine.observer) is not None:
            observer.access(block.memory, self.source, self.places, write=False)
            observer.access(block.memory, self.destination, self.index, write=True)
        if source.valid is not None and (source.valid[self.places] != source.full).any():
            raise Fault(f"read of uninitialized {self.source}", thread=self.thread)
        values = np.full(self.index.shape, self.zero)
        values[self.valid] = source.data[self.places]
        assert target.valid is not None
        target.data[self.index] = values
        target.valid[self.index] = target.full
        self.progress = OperationState.DONE
        block.engines.progressed()
        for arrival in self.arrivals:
            arrival.progressed()

    def holds(self, owner: int) -> bool:
        """False if the thread ``owner`` knows that its copy is done."""
        return owner in self.held

    def waited_for(self, owners: Sequence[int], wanted: OperationState) -> None:
        """The threads ``owners`` know that their copies are done: from now on these count as the threads' own writes."""
        waited = self.held.intersection(owners)
        if waited:
            self.held -= waited
            chosen = np.isin(self.owners, list(waited))
            rows = self.index[chosen]
            memory, proxy = self.block.memory, self.block.engines.proxy(self.destination)
            proxy.copying[rows] -= 1
            stamp(memory, proxy, StorePlace(rows, True), self.block.machine.table.get(self.owners[chosen]), self.destination)


@dataclass(slots=True, eq=False)
class ArriveOperation:
    """Arrivals of the threads of one warp, counted when the copies that they have issued before are done.

    Attributes:
        owners: the threads.
        covered: those copies; ``left``: the number of copies that are not done.
    """

    block: Block
    pc: int
    thread: int
    owners: list[int]
    barrier: MbarrierCell
    covered: list[CopyOperation]
    left: int

    @property
    def target(self) -> Block:
        """The block whose state the arrivals change."""
        return self.block

    def progressed(self) -> None:
        """One of the copies is done."""
        self.left -= 1
        if not self.left:
            self.block.machine.post(self)

    def execute(self) -> None:
        block, engines = self.block, self.block.engines
        if (observer := block.machine.observer) is not None:
            observer.waited_for(self.covered, self.owners, read_only=False)
            observer.count(self.barrier, len(self.owners))
        for copy in self.covered:
            copy.waited_for(self.owners, OperationState.DONE)
        for owner in self.owners:
            queue = engines.fifo(Queue.COPY, owner)
            queue.open = [op for op in queue.open if op not in self.covered]
        engines.arrivals.remove(self)
        self.barrier.arrive(len(self.owners), block.machine.wake)


def _by_warp(lanes: Lanes, table: LaneTable) -> Iterator[Lanes]:
    """The lanes, warp by warp."""
    warps = lanes.ids // WARP
    if warps[0] == warps[-1]:
        yield lanes
        return
    for warp in np.unique(warps):
        yield table.get(lanes.ids[warps == warp])


def _elements(site: Site, lanes: Lanes, env: Env, region: Region) -> Ints:
    """[lanes, width]: where the lanes access the store of a region. Raises :class:`Fault` at an address that does not fit the access."""
    offset = np.broadcast_to(np.asarray(site.offset(lanes, env, region), np.int64), (lanes.count,))
    size = site.width * region.dtype.itemsize
    bad = (region.origin + offset * region.dtype.itemsize) % size != 0
    if bad.any():
        thread = int(lanes.ids[int(np.argmax(bad))])
        notes = (f"index {site.index_text(lanes, env, thread)}",)
        raise Fault(f"access of {size} bytes to {region} at an address that is not a multiple of {size}", thread=thread, notes=notes)
    return region.start + (offset[:, None] + np.arange(site.width)) * region.step


def copy(names: Names, stmt: AsyncCopy) -> Instruction:
    """``cp.async``."""
    out, source, valid = names.site(stmt.out, stmt.width), names.site(stmt.source, stmt.width), names.expr(stmt.valid)
    zero = names.values.literal(0, names.dtypes[stmt.out.buffer])

    def run(agent: Agent) -> Signal:
        block, pc, env = agent.block, agent.pc - 1, agent.env
        memory, table = block.memory, block.machine.table
        here, there = memory.regions[out.buffer], memory.regions[source.buffer]
        for lanes in _by_warp(agent.lanes, table):
            index = _elements(out, lanes, env, here)
            if len(np.unique(index)) != index.size:
                raise Fault(f"threads copy to one element of {here} in one statement", thread=lanes.first)
            reads, _ = valid.split(lanes, env, table)
            inside = np.isin(lanes.ids, reads.ids) if reads is not None else np.zeros(lanes.count, np.bool_)
            places = np.zeros((0, stmt.width), np.int64) if reads is None else _elements(source, reads, env, there)
            proxy = block.engines.proxy(here)
            if (observer := block.machine.observer) is not None:
                observer.access(memory, here, index, write=True)
            stamp(memory, proxy, StorePlace(index, True), lanes, here)
            proxy.copying[index] += 1
            operation = CopyOperation(block, pc, lanes.first, lanes.ids, there, here, index, inside, places, zero, set(lanes.ids.tolist()))
            if observer is not None:
                observer.issue(operation)
            for thread in lanes.ids.tolist():
                block.engines.fifo(Queue.COPY, thread).open.append(operation)
            block.machine.post(operation)
        return Signal.POINT

    return run


def arrive(names: Names, stmt: ArriveAsync) -> Instruction:
    """``cp.async.mbarrier.arrive.noinc``."""
    name, slot = stmt.barrier.name, names.expr(stmt.barrier.slot)

    def run(agent: Agent) -> Signal:
        block, pc, table = agent.block, agent.pc - 1, agent.block.machine.table
        parts = (part for warp in _by_warp(agent.lanes, table) for part in groups((slot,), warp, agent.env, table))
        for lanes in parts:
            barrier = cell(agent.block, name, slot.value(lanes, agent.env), lanes.first)
            barrier.check()
            owners: list[int] = lanes.ids.tolist()
            copies = [op for thread in owners for op in block.engines.fifo(Queue.COPY, thread).operations() if isinstance(op, CopyOperation)]
            covered = list(dict.fromkeys(copies))
            waiting = [op for op in covered if op.progress is not OperationState.DONE]
            operation = ArriveOperation(block, pc, lanes.first, owners, barrier, covered, len(waiting))
            block.engines.arrivals.append(operation)
            if (observer := block.machine.observer) is not None:
                observer.use(barrier)
                observer.issue(operation)
            for op in waiting:
                op.arrivals.append(operation)
            if not waiting:
                block.machine.post(operation)
        return Signal.POINT

    return run


MEANINGS: Meanings = {AsyncCopy: Meaning(copy, is_point=True), ArriveAsync: Meaning(arrive, is_point=True)}
