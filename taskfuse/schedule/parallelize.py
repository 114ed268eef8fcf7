"""Binding axes to what executes them: index types, Unroll, and the atoms."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.atoms import SCALAR, VECTOR, Atom
from taskfuse.ir.axes import Axis, AxisKind
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Pointwise, Read, View
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.schedule.call import Call, constant, described, inlined_producers, is_power_of_two


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
                _unset_atom(tv)
            else:
                schedule.ptypes.pop(axis)
        case ParallelType.Vectorize:
            _set_atom(call, VECTOR, (position,))
        case ParallelType.Mma | ParallelType.Bulk:
            raise call.error(f"an axis is bound to {ptype.value} only by an atom that executes it", f"{tv.name}.set_atom(atom, axes)")
        case ParallelType.Unroll if constant(axis) is None:
            raise call.error(f"{described(position, axis)} has no constant extent, which Unroll needs", "split it by a constant and unroll the inner axis")
        case _:
            schedule.ptypes[axis] = ptype


def set_atom(tv: TensorView, atom: Atom, axes: Sequence[int]) -> None:
    """See :meth:`TensorView.set_atom`. ``SCALAR`` takes the atom away again."""
    call = Call("set_atom", tv)
    positions = tuple(call.position(a, tv.schedule.loop) for a in axes)
    least, most = atom.axes
    if not least <= len(positions) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise call.error(f"the atom {atom.name} covers {count} axes, not {len(positions)}")
    if atom is SCALAR:
        _unset_atom(tv)
    else:
        _set_atom(call, atom, positions)


def _set_atom(call: Call, atom: Atom, positions: tuple[int, ...]) -> None:
    tv, loop = call.tv, call.tv.schedule.loop
    covered = tuple(loop[p] for p in positions)
    if tv.schedule.atom is atom and tv.schedule.atom_axes == covered:
        return
    if tv.schedule.atom is not None:
        raise call.error(f"{tv.name} has the atom {tv.schedule.atom.name} already", f"{tv.name}.set_atom(tf.atoms.SCALAR, ()) takes it away")
    if positions != tuple(range(len(loop) - len(positions), len(loop))):
        at = f"{described(positions[0], covered[0])} is not the last loop axis"
        raise call.error(f"{at}: the atom {atom.name} executes the innermost axes", f"{tv.name}.reorder moves it")
    elements = 1
    for p, a in zip(positions, covered, strict=True):
        shown = described(p, a)
        ptype = tv.schedule.ptype(a)
        if ptype is not ParallelType.Serial:
            raise call.error(f"{shown} is bound to {ptype.value} already", "bind it to Serial first")
        if a.kind is not AxisKind.ITERATION:
            what = "a reduction" if a.is_reduction else "a foreign"
            raise call.error(f"{shown} is {what} axis: the atom {atom.name} executes iteration axes")
        if any(p < x.schedule.inline for x in (tv, *inlined_producers(tv))):
            raise call.error(f"{shown} is a loop that inlining shares: an atom makes no loop", "inline less deep")
        size = constant(a)
        if size is None or (atom.power_of_two and not is_power_of_two(size)):
            what = "constant power-of-two extent" if atom.power_of_two else "constant extent"
            raise call.error(f"{shown} has no {what}, which the atom {atom.name} needs", "split it by a constant such as 4")
        elements *= size
    if elements * tv.dtype.bits > 8 * atom.max_bytes:
        most = 8 * atom.max_bytes // tv.dtype.bits
        raise call.error(
            f"{elements} elements of {tv.dtype.name} are more than the {atom.max_bytes} bytes of the atom {atom.name}", f"use an extent of {most} or less"
        )
    if elements * tv.dtype.bits < 8 * atom.min_bytes:
        least = 8 * atom.min_bytes // tv.dtype.bits
        raise call.error(
            f"{elements} element{'s' * (elements > 1)} of {tv.dtype.name} are less than the {atom.min_bytes} bytes of the atom {atom.name}",
            f"let it cover an axis of {least} or more",
        )
    if atom.copies_only and not _is_copy(tv):
        raise call.error(
            f"the atom {atom.name} copies, but the definition of {tv.name} computes", f"vectorize a copy: {tv.name}.cache_before() or cache_after()"
        )
    tv.schedule.atom, tv.schedule.atom_axes = atom, covered
    if atom.binds is not None:
        tv.schedule.ptypes.update(dict.fromkeys(covered, atom.binds))


def _unset_atom(tv: TensorView) -> None:
    schedule = tv.schedule
    for a in schedule.atom_axes:
        schedule.ptypes.pop(a, None)
    schedule.atom, schedule.atom_axes = None, ()


def _is_copy(tv: TensorView) -> bool:
    match tv.fusion.definition(tv):
        case None | View():
            return True
        case Pointwise(op=op, operands=(Read(),)):
            return op is ELEMENTWISE["copy"]
        case _:
            return False


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
