"""Matrices in the registers of warps and warpgroups: fragments gathered and scattered; ldmatrix, stmatrix, mma (PTX ISA, the section of each)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, float32
from taskfuse.ir import fragments
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Array
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.products import LdMatrix, Mma, StMatrix
from taskfuse.sim.agent import Agent, Instruction, Signal
from taskfuse.sim.collectives import check_alignment, check_warps
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Env, Lanes
from taskfuse.sim.memory import Memory, Site, Store, StorePlace, check_incoming, check_registers, stamp
from taskfuse.sim.names import Meaning, Meanings, Names
from taskfuse.sim.region import Region
from taskfuse.target import WARP

Ints = npt.NDArray[np.int64]
_TF32 = np.uint32(0xFFFFE000)


@dataclass(frozen=True, slots=True, eq=False)
class Registers:
    """The registers that hold a fragment in some warps or warpgroups (units).

    Attributes:
        index: ``[units, threads, count]``, into the store of the buffer; if parts of a warp hold a matrix each, they are the units.
    """

    memory: Memory
    region: Region
    fragment: Fragment
    index: Ints

    @staticmethod
    def of(memory: Memory, site: Site, lanes: Lanes, env: Env, fragment: Fragment, what: str) -> Registers:
        """The registers from ``site`` on, of lanes that are whole units. Raises :class:`Fault` if there are too few."""
        region = memory.regions[site.buffer]
        first = site.offset(lanes, env, region)
        if not isinstance(first, int) or first + fragment.count > region.elements:
            notes = (f"first register {first}",)
            raise Fault(f"{what} needs {fragment.count} registers of {region}, which does not have them", thread=lanes.first, notes=notes)
        numbers = first + np.arange(fragment.count)
        members = fragment.members()
        threads = lanes.ids.reshape(-1, fragment.threads)[:, members].reshape(-1, members.shape[1], 1)
        return Registers(memory, region, fragment, numbers * region.threads + threads)

    @property
    def store(self) -> Store:
        """Their store."""
        return self.memory.stores[self.region.number]

    def check_free(self) -> None:
        """Raises :class:`Fault` if a wgmma in flight uses one of them."""
        if self.memory.busy and self.store.owned is not None:
            check_registers(self.store, StorePlace(self.index, unique=True), self.region)

    def matrices(self) -> Array:
        """The matrices ``[units, rows, columns]``. Raises :class:`Fault` if an element was never written."""
        store = self.store
        assert store.valid is not None
        if (store.valid[self.index] != store.full).any():
            raise Fault(f"read of uninitialized {self.region}")
        rows, columns = self.fragment.table()
        found = np.empty((len(self.index), *self.fragment.shape), store.data.dtype)
        found[:, rows, columns] = store.data[self.index]
        return found

    def put(self, matrices: Array) -> None:
        """Store matrices ``[units, rows, columns]``."""
        rows, columns = self.fragment.table()
        store = self.store
        assert store.valid is not None
        store.data[self.index] = matrices[:, rows, columns]
        store.valid[self.index] = store.full

    def note_write(self, lanes: Lanes) -> None:
        """The threads write them directly: the next wgmma that uses them needs a fence."""
        if self.store.owned is not None:
            self.memory.unfenced.update((lanes.ids // WARP).tolist())


def factor(values: Values, array: Array, dtype: DType, accumulator: DType) -> Array:
    """Operand elements as a tensor core multiplies them, in the type of the sums: of float32 the upper 19 bits (tf32)."""
    if dtype is float32 and values is NATIVE:
        return np.asarray((array.view(np.uint32) & _TF32).view(np.float32))
    return values.cast(array, dtype, accumulator)


_ADD = ELEMENTWISE["add"]


def _addressing(agent: Agent, count: int) -> Lanes:
    """The lanes whose addresses an instruction on ``count`` matrices uses: the first eight of each warp per matrix."""
    lanes = agent.lanes
    used = fragments.MATRIX_ROWS * count
    return lanes if used == WARP else agent.block.machine.table.get(lanes.ids[lanes.ids % WARP < used])


def _rows(agent: Agent, site: Site, stmt: LdMatrix | StMatrix, name: str) -> StorePlace:
    """The rows that the lanes of whole warps address, index ``[rows, elements]``."""
    check_warps(agent, name)
    region = agent.block.memory.regions[site.buffer]
    check_alignment(agent, site, fragments.MATRIX_ROW_BYTES)
    return site.place(_addressing(agent, stmt.matrices), agent.env, region)


def stmatrix(names: Names, stmt: StMatrix) -> Instruction:
    """``stmatrix`` by every warp of the agent."""
    size = names.dtypes[stmt.out.buffer].itemsize
    out, source = names.site(stmt.out, width=fragments.MATRIX_ROW_BYTES // size), names.site(stmt.source)
    fragment = fragments.matrices(stmt.matrices, size, transpose=stmt.transpose)

    def run(agent: Agent) -> Signal:
        memory = agent.block.memory
        place = _rows(agent, out, stmt, "stmatrix")
        held = Registers.of(memory, source, agent.lanes, agent.env, fragment, "stmatrix")
        region, target = memory.regions[out.buffer], memory.stores[out.buffer]
        assert target.valid is not None
        held.check_free()
        matrices = held.matrices()
        if not place.unique:
            raise Fault("stmatrix rows overlap")
        if memory.observer is not None:
            memory.observer.access(memory, region, place.index, write=True)
        if target.proxy is not None:
            stamp(memory, target.proxy, place, _addressing(agent, stmt.matrices), region)
        target.data[place.index] = matrices.reshape(-1, fragment.shape[1])
        target.valid[place.index] = target.full
        return Signal.POINT

    return run


def ldmatrix(names: Names, stmt: LdMatrix) -> Instruction:
    """``ldmatrix`` by every warp of the agent."""
    size = names.dtypes[stmt.out.buffer].itemsize
    out, source = names.site(stmt.out), names.site(stmt.source, width=fragments.MATRIX_ROW_BYTES // size)
    fragment = fragments.matrices(stmt.matrices, size, transpose=stmt.transpose)

    def run(agent: Agent) -> Signal:
        memory = agent.block.memory
        place = _rows(agent, source, stmt, "ldmatrix")
        held = Registers.of(memory, out, agent.lanes, agent.env, fragment, "ldmatrix")
        region, store = memory.regions[source.buffer], memory.stores[source.buffer]
        assert store.valid is not None
        held.check_free()
        if memory.observer is not None:
            memory.observer.access(memory, region, place.index, write=False)
        if store.proxy is not None:
            check_incoming(store.proxy, place.index, region)
        if (store.valid[place.index] != store.full).any():
            raise Fault(f"read of uninitialized {region}")
        found = store.data[place.index] if store.dtype is None else store.data[place.index].astype(store.dtype)
        held.put(np.asarray(found).reshape(-1, *fragment.shape))
        held.note_write(agent.lanes)
        return Signal.POINT

    return run


def mma(names: Names, stmt: Mma) -> Instruction:
    """``mma.sync`` by every warp of the agent."""
    values, dtype, row = names.values, names.dtypes[stmt.acc.buffer], stmt.row
    assert row.a_registers is not None
    assert row.b_registers is not None
    sites = [names.site(access) for access in (stmt.acc, stmt.a, stmt.b)]
    parts = (stmt.accumulators, row.a_registers, row.b_registers)

    def run(agent: Agent) -> None:
        check_warps(agent, "mma")
        memory = agent.block.memory
        acc, a, b = (Registers.of(memory, site, agent.lanes, agent.env, f, "mma") for site, f in zip(sites, parts, strict=True))
        for operand in (acc, a, b):
            operand.check_free()
        factors = factor(values, a.matrices(), row.a, dtype), factor(values, b.matrices(), row.b, dtype)
        acc.put(values.apply(_ADD, (acc.matrices(), values.matmul(*factors, dtype)), (dtype, dtype), dtype, dtype))
        acc.note_write(agent.lanes)

    return run


MEANINGS: Meanings = {LdMatrix: Meaning(ldmatrix), StMatrix: Meaning(stmatrix), Mma: Meaning(mma)}
