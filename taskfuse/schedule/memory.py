"""The memory of a tensor: memory type, allocation domain, circular buffer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import SupportsIndex

from taskfuse.errors import shown
from taskfuse.ir.atoms import Completion
from taskfuse.ir.axes import Axis, Rasterize
from taskfuse.ir.calls import AllocationLayout
from taskfuse.ir.scalar import ONE
from taskfuse.ir.tensor import AxisRef, TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.schedule.call import Call


def set_memory_type(tv: TensorView, memory: object) -> None:
    """See :meth:`TensorView.set_memory_type`. A view that is given memory becomes a copy."""
    call = Call("set_memory_type", tv)
    if not isinstance(memory, MemoryType):
        raise call.error(f"{shown(memory)} is not a memory type", f"use {', '.join(f'MemoryType.{m.value}' for m in MemoryType)}")
    if memory is not MemoryType.Global:
        call.check_internal(f"it lives in Global memory, not in {memory.value}", "make a copy that may")
    if tv.fusion.is_view(tv):
        call.check_not_inlined()
    bound = [(a, tv.schedule.ptype(a)) for a in tv.schedule.allocation or () if a not in tv.schedule.loop and tv.schedule.ptype(a).is_bound]
    if bound and memory is not MemoryType.Local:
        raise call.error(
            f"its allocation axis of extent {bound[0][0].extent} is bound to {bound[0][1].value}: only Local memory is spread over indices",
            "bind the axis to Serial first",
        )
    tv.schedule.memory = memory


def set_allocation_domain(tv: TensorView, axes: Sequence[Axis | AxisRef] | AllocationLayout) -> None:
    """See :meth:`TensorView.set_allocation_domain`. The axes must cover every logical axis exactly once (those of extent 1 may be left out)."""
    call = Call("set_allocation_domain", tv)
    call.check_internal("the caller decides where its elements are", "lay out a copy")
    call.check_storage()
    schedule = tv.schedule
    transforms, ptypes = list(schedule.transforms), dict(schedule.ptypes)
    done = False
    try:
        allocation = tuple(axes(tv)) if callable(axes) else tuple(_axis(call, a) for a in call.several(axes, "axes"))
        _check_cover(call, allocation)
        done = True
    finally:
        if not done:
            schedule.transforms, schedule.ptypes = transforms, ptypes
    schedule.allocation = allocation


def _axis(call: Call, given: object) -> Axis:
    """An axis, or that of a reference to one of this tensor."""
    match given:
        case Axis():
            return given
        case AxisRef(tensor=tensor, axis=axis) if tensor is call.tv:
            return axis
        case AxisRef(tensor=tensor):
            raise call.error(f"an axis of {tensor.name} is given", f"give axes of {call.tv.name} itself: {call.tv.name}.axis(0)")
        case _:
            axes = f"{call.tv.name}.axis(0), {call.tv.name}.loop[0], {call.tv.name}.logical[0]"
            raise call.error(f"{shown(given)} is not an axis", f"give axes ({axes}), outermost first, or a layout of tf.layouts")


def _check_cover(call: Call, allocation: tuple[Axis, ...]) -> None:
    """Undo the transforms from the allocation axes: what is left must be the logical axes."""
    tv = call.tv
    present = dict.fromkeys(allocation)
    if len(present) < len(allocation):
        twice = next(a for k, a in enumerate(allocation) if a in allocation[:k])
        raise call.error(f"the axis of extent {twice.extent} is given twice")
    logical = set(tv.logical)
    for t in reversed(tv.schedule.transforms):
        if not any(a in present for a in t.outputs) or any(a in logical for a in t.outputs):
            continue
        missing = [a for a in t.outputs if a not in present and a.extent is not ONE]
        if missing:
            raise call.error(f"the axis of extent {missing[0].extent} is missing", "give every axis of a split or swizzle, or none")
        if isinstance(t, Rasterize):
            raise call.error("a rasterized axis is not an allocation axis", "an element must find its place: use merge and swizzle")
        for a in t.outputs:
            present.pop(a, None)
        for a in t.inputs:
            if a in present:
                raise call.error(f"the axis of extent {a.extent} is covered twice", "give an axis, or those that it was split into")
            present[a] = None
    foreign = [a for a in present if a not in logical]
    if foreign:
        kind = "a reduction axis" if foreign[0].is_reduction else "a foreign axis" if foreign[0].is_foreign else "not an axis of it"
        raise call.error(f"the axis of extent {foreign[0].extent} is {kind}: {tv.name} has no element per index of it", _logical_text(tv.logical))
    left = [k for k, a in enumerate(tv.logical) if a not in present and a.extent is not ONE]
    if left:
        raise call.error(f"logical axis {left[0]} (extent {tv.logical[left[0]].extent}) is not covered", _logical_text(tv.logical))


def _logical_text(axes: Iterable[Axis]) -> str:
    return f"derive the axes from the logical axes [{', '.join(str(a.extent) for a in axes)}]"


def in_flight(tv: TensorView, batches: object) -> None:
    """See :meth:`TensorView.in_flight`."""
    call = Call("in_flight", tv)
    if not isinstance(batches, SupportsIndex) or batches.__index__() < 0:
        raise call.error(f"{shown(batches)} is not a number of batches", "use an integer such as 1")
    if tv.schedule.atom is None or tv.schedule.atom.completion is not Completion.FIFO:
        raise call.error(f"{tv.name} has no atom that completes in batches", "set_atom first: a tensor-core or bulk store atom")
    tv.schedule.in_flight = batches.__index__()


def circular_buffer(tv: TensorView, stages: object, ring: object = "") -> None:
    """See :meth:`TensorView.circular_buffer`. One stage is not a ring."""
    call = Call("circular_buffer", tv)
    if not isinstance(stages, SupportsIndex):
        raise call.error(f"{shown(stages)} is not a number of slots", "use an integer such as 2")
    slots = stages.__index__()
    if slots < 1:
        raise call.error(f"a ring has at least 1 slot, not {slots}")
    if not isinstance(ring, str):
        raise call.error(f"{shown(ring)} is not the name of a ring", "give a text, the same for all tensors that share the ring")
    if ring and slots == 1:
        raise call.error(f"the ring '{ring}' has 1 slot, which is not a ring", "give two or more slots, or no name")
    call.check_internal("it has one copy", "buffer a copy")
    call.check_storage()
    tv.schedule.stages, tv.schedule.ring = slots, ring
