"""Matrices in the registers of warps and warpgroups: fragments gathered into matrices, and scattered back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, float32
from taskfuse.ir.elementwise import Array
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.values import NATIVE, Values
from taskfuse.kir.limits import WARP
from taskfuse.sim.fault import Fault
from taskfuse.sim.lanes import Env, Lanes
from taskfuse.sim.memory import Memory, Place, Region, Site, Store, check_registers

Ints = npt.NDArray[np.int64]
_TF32 = np.uint32(0xFFFFE000)


@dataclass(frozen=True, slots=True, eq=False)
class Registers:
    """The registers that hold a fragment in some warps or warpgroups (units).

    Attributes:
        index: ``[units, threads, count]``, into the store of the buffer.
    """

    memory: Memory
    region: Region
    fragment: Fragment
    index: Ints

    @staticmethod
    def of(memory: Memory, site: Site, lanes: Lanes, env: Env, fragment: Fragment, what: str) -> Registers:
        """The registers from ``site`` on, of lanes that are whole units. Raises :class:`Fault` where there are too few."""
        region = memory.regions[site.buffer]
        first = site.offset(lanes, env, region)
        if not isinstance(first, int) or first + fragment.count > region.elements:
            notes = (f"first register {first}",)
            raise Fault(f"{what} needs {fragment.count} registers of {region}, which does not have them", thread=lanes.first, notes=notes)
        numbers = first + np.arange(fragment.count)
        return Registers(memory, region, fragment, numbers * region.threads + lanes.ids.reshape(-1, fragment.threads, 1))

    @property
    def store(self) -> Store:
        """Where they are."""
        return self.memory.stores[self.region.number]

    def check_free(self) -> None:
        """Raises :class:`Fault` if a wgmma in flight uses one of them."""
        if self.memory.busy and self.store.owned is not None:
            check_registers(self.store, Place(self.index, unique=True), self.region)

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
        """The threads themselves write them: the next wgmma that uses them needs a fence."""
        if self.store.owned is not None:
            self.memory.unfenced.update((lanes.ids // WARP).tolist())


def factor(values: Values, array: Array, dtype: DType, accumulator: DType) -> Array:
    """Operand elements as a tensor core multiplies them, in the type of the sums: of float32 it reads the upper 19 bits (tf32)."""
    if dtype is float32 and values is NATIVE:
        return np.asarray((array.view(np.uint32) & _TF32).view(np.float32))
    return values.cast(array, dtype, accumulator)
