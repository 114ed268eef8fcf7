"""Axes of an allocation domain bound to indices: registers that several threads hold together."""

import pytest

from taskfuse.errors import ScheduleError
from taskfuse.ir.types import MemoryType
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.call import Call
from taskfuse.schedule.spread import bind_allocation
from tests.schedule.points import pair


@pytest.mark.parametrize("ptype", [P.TIDx, P.TIDz, P.BIDy])
def test_bound_and_unbound_again(ptype: P) -> None:
    _, a, _ = pair(4, 6)
    bind_allocation(Call("allocation", a), a.logical[0], ptype)
    assert a.schedule.ptype(a.logical[0]) is ptype
    bind_allocation(Call("allocation", a), a.logical[0], P.Serial)
    assert a.schedule.ptype(a.logical[0]) is P.Serial


@pytest.mark.parametrize("ptype", [P.Vectorize, P.Unroll, P.Bulk, P.Mma])
def test_indices_alone(ptype: P) -> None:
    _, a, _ = pair(4, 6)
    with pytest.raises(ScheduleError, match=f"the allocation axis of extent 4 cannot be bound to {ptype.value}"):
        bind_allocation(Call("allocation", a), a.logical[0], ptype)


@pytest.mark.parametrize("memory", [MemoryType.Shared, MemoryType.Global])
def test_registers_alone(memory: MemoryType) -> None:
    _, a, _ = pair(4, 6)
    a.set_memory_type(memory)
    with pytest.raises(ScheduleError, match=f"bound in Local memory only, but tv1 lives in {memory.value}"):
        bind_allocation(Call("allocation", a), a.logical[0], P.TIDx)
    a.set_memory_type(MemoryType.Local)
    bind_allocation(Call("allocation", a), a.logical[0], P.TIDx)
