"""Binding axes to what executes them: index types, Unroll, vectors."""

from __future__ import annotations

from taskfuse.ir.atoms import VECTOR
from taskfuse.ir.axes import Axis
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule.atoms import cover, uncover
from taskfuse.schedule.call import Call, constant, described
from taskfuse.schedule.spread import bind_allocation


def parallelize(tv: TensorView, axis: Axis, ptype: object) -> None:
    """See :meth:`AxisRef.parallelize`.

    Several axes on one index type are its digits, outermost first. An axis that is only in the allocation domain may be bound to an index
    type if the tensor lives in Local memory (or none is set yet): its elements are then spread over the threads. The binding of an input's
    axis, or of a view's, is kept and means nothing.
    """
    call = Call("parallelize", tv)
    if not isinstance(ptype, ParallelType):
        raise call.error(f"{ptype!r} is no parallel type", "use a member of ParallelType, such as ParallelType.TIDx")
    schedule = tv.schedule
    if axis not in schedule.loop:
        if schedule.allocation is None or axis not in schedule.allocation:
            raise call.error(f"the axis of extent {axis.extent} is in no domain of {tv.name} any more", "take the axis again: tensor.axis(k)")
        bind_allocation(call, axis, ptype)
        return
    position = schedule.loop.index(axis)
    old = schedule.ptype(axis)
    if ptype is old:
        return
    if ptype is not ParallelType.Serial and old is not ParallelType.Serial:
        raise call.error(f"{described(position, axis)} is bound to {old.value} already", "bind it to Serial first")
    match ptype:
        case ParallelType.Serial:
            if old.is_atom:
                uncover(tv)
            else:
                schedule.ptypes.pop(axis)
        case ParallelType.Vectorize:
            cover(call, VECTOR, (position,))
        case ParallelType.Mma | ParallelType.Bulk:
            raise call.error(f"an axis is bound to {ptype.value} only by an atom that executes it", f"{tv.name}.set_atom(atom, axes)")
        case ParallelType.Unroll if constant(axis) is None:
            raise call.error(f"{described(position, axis)} has no constant extent, which Unroll needs", "split it by a constant and unroll the inner axis")
        case _:
            schedule.ptypes[axis] = ptype
