"""Spreading the elements of a tensor in registers over index types."""

from __future__ import annotations

from taskfuse.ir.axes import Axis
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.call import Call


def bind_allocation(call: Call, axis: Axis, ptype: ParallelType) -> None:
    """Bind an axis of the allocation domain alone: its elements are spread over the indices, which only Local memory can be."""
    tv = call.tv
    if ptype is ParallelType.Serial:
        tv.schedule.ptypes.pop(axis, None)
        return
    if not ptype.is_bound:
        raise call.error(f"the allocation axis of extent {axis.extent} cannot be bound to {ptype.value}", "use a block or thread index")
    if tv.schedule.memory not in (None, MemoryType.Local):
        raise call.error(f"an allocation axis is bound in Local memory only, but {tv.name} lives in {tv.schedule.memory.value}")
    tv.schedule.ptypes[axis] = ptype
