"""Atoms: which instruction executes the innermost loop axes of a tensor."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.atoms import SCALAR, Atom, Instruction
from taskfuse.ir.axes import AxisKind
from taskfuse.ir.expr import Gather, is_copy
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule.call import Call, constant, described, inlined_producers, is_power_of_two
from taskfuse.schedule.layouts import fragment


def set_atom(tv: TensorView, atom: Atom, axes: Sequence[int]) -> None:
    """See :meth:`TensorView.set_atom`. ``SCALAR`` takes the atom away again."""
    call = Call("set_atom", tv)
    positions = tuple(call.position(a, tv.schedule.loop) for a in axes)
    least, most = atom.axes
    if not least <= len(positions) <= most:
        count = str(least) if least == most else f"{least} to {most}"
        raise call.error(f"the atom {atom.name} covers {count} axes, not {len(positions)}")
    if atom is SCALAR:
        uncover(tv)
    else:
        cover(call, atom, positions)


def cover(call: Call, atom: Atom, positions: tuple[int, ...]) -> None:
    """Let an atom execute the loop axes at ``positions``. Raises :class:`ScheduleError`."""
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
        wanted = AxisKind.REDUCTION if atom.contraction is not None and p == positions[-1] else AxisKind.ITERATION
        if a.kind is not wanted:
            what = "a reduction" if a.is_reduction else "a foreign" if a.is_foreign else "an iteration"
            takes = "a reduction axis" if wanted is AxisKind.REDUCTION else "an iteration axis" if atom.contraction is not None else "iteration axes"
            raise call.error(f"{shown} is {what} axis: the atom {atom.name} executes {takes}" + (" there" if atom.contraction is not None else ""))
        if any(p < x.schedule.inline for x in (tv, *inlined_producers(tv))):
            raise call.error(f"{shown} is a loop that inlining shares: an atom makes no loop", "inline less deep")
        size = constant(a)
        if size is None or (atom.power_of_two and not is_power_of_two(size)):
            what = "constant power-of-two extent" if atom.power_of_two else "constant extent"
            raise call.error(f"{shown} has no {what}, which the atom {atom.name} needs", "split it by a constant such as 4")
        if atom.tile is not None and size != atom.tile[p - positions[0]]:
            raise call.error(f"{shown} is not the {atom.tile[p - positions[0]]} of the atom {atom.name}", f"split it by {atom.tile[p - positions[0]]}")
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
    expr = tv.definition
    if atom.copies_only and not (expr is None or is_copy(expr) or (atom.instruction is Instruction.VECTOR and isinstance(expr, Gather))):
        raise call.error(
            f"the atom {atom.name} copies, but the definition of {tv.name} computes", f"vectorize a copy: {tv.name}.cache_before() or cache_after()"
        )
    if atom.contraction is not None:
        _check_contraction(call, atom)
    if atom.spreads:
        call.check_internal(f"the atom {atom.name} leaves its result in registers", "let a copy have it")
    tv.schedule.atom, tv.schedule.atom_axes = atom, covered
    if atom.binds is not None:
        tv.schedule.ptypes.update(dict.fromkeys(covered, atom.binds))
    if atom.spreads:
        tv.set_allocation_domain(fragment())


def _check_contraction(call: Call, atom: Atom) -> None:
    row = atom.contraction
    assert row is not None
    if not row.is_made_by(call.tv.definition):
        raise call.error(f"the atom {atom.name} computes a reduction by {row.combine.name} of {row.body.name}, and its definition is another")


def uncover(tv: TensorView) -> None:
    """Take the atom of a tensor away; its axes are Serial again."""
    schedule = tv.schedule
    for a in schedule.atom_axes:
        schedule.ptypes.pop(a, None)
    schedule.atom, schedule.atom_axes = None, ()
