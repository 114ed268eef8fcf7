"""Binding loop axes to parallel types and atoms, and distributing them over threads in the register layout of tensor cores."""

from __future__ import annotations

import math
from collections.abc import Sequence

from taskfuse.errors import shown
from taskfuse.ir.atoms import ATOMS, SCALAR, VECTOR, Atom, Bounds, Instruction
from taskfuse.ir.axes import Axis, AxisKind
from taskfuse.ir.contraction import computes
from taskfuse.ir.expr import Gather, MathExpr, Read, Update, is_copy, padded_read
from taskfuse.ir.fragments import Fragment
from taskfuse.ir.matrix_instructions import in_registers, rows
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.schedule import layouts
from taskfuse.schedule.allocation import bind_allocation
from taskfuse.schedule.call import Call, constant, described, inlined_producers, is_power_of_two
from taskfuse.schedule.layouts import FRAGMENT_COLUMNS, FRAGMENT_HALF, FRAGMENT_PAIR, FRAGMENT_ROWS
from taskfuse.schedule.transforms import reorder, split


def set_atom(tv: TensorView, atom: object, axes: Sequence[int]) -> None:
    """See :meth:`TensorView.set_atom`. ``SCALAR`` removes the atom."""
    call = Call("set_atom", tv)
    atom = _atom(call, atom)
    positions = tuple(call.positions(axes))
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
        raise call.error(f"{tv.name} has the atom {tv.schedule.atom.name} already", f"{tv.name}.set_atom(tf.atoms.SCALAR, ()) removes it")
    if positions != tuple(range(len(loop) - len(positions), len(loop))):
        at = f"{described(positions[0], covered[0])} is not the last loop axis"
        raise call.error(f"{at}: the atom {atom.name} executes the innermost axes", f"{tv.name}.reorder moves it")
    elements = 1
    for p, a in zip(positions, covered, strict=True):
        found = described(p, a)
        ptype = tv.schedule.ptype(a)
        if ptype is not ParallelType.Serial:
            raise call.error(f"{found} is bound to {ptype.value} already", "bind it to Serial first")
        wanted = AxisKind.REDUCTION if atom.contraction is not None and p == positions[-1] else AxisKind.ITERATION
        if a.kind is not wanted:
            what = "a reduction" if a.is_reduction else "a foreign" if a.is_foreign else "an iteration"
            takes = "a reduction axis" if wanted is AxisKind.REDUCTION else "an iteration axis" if atom.contraction is not None else "iteration axes"
            raise call.error(f"{found} is {what} axis: the atom {atom.name} executes {takes}" + (" there" if atom.contraction is not None else ""))
        if any(p < x.schedule.inline for x in (tv, *inlined_producers(tv))):
            raise call.error(f"{found} is a loop that inlining shares, and an atom's axes are not loops", "inline less deep")
        size = constant(a)
        if size is None or (atom.power_of_two and not is_power_of_two(size)):
            what = "constant power-of-two extent" if atom.power_of_two else "constant extent"
            raise call.error(f"{found} has no {what}, which the atom {atom.name} needs", "split it by a constant such as 4")
        if atom.tile is not None and size != atom.tile[p - positions[0]]:
            raise call.error(f"{found} is not the {atom.tile[p - positions[0]]} of the atom {atom.name}", f"split it by {atom.tile[p - positions[0]]}")
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
    if atom.copies_only and expr is not None and not (is_copy(expr) or _copies(atom, expr)):
        fills = "; zeros outside a tensor, as of tf.pad, it writes itself" if atom.bounds in (Bounds.FILL, Bounds.ZERO) else ""
        help = f"give a copy the atom: {tv.name}.cache_before() or cache_after() makes one{fills}"
        raise call.error(f"the atom {atom.name} copies, but the definition of {tv.name} computes", help)
    if atom.contraction is not None:
        _check_contraction(call, atom)
    if atom.spreads:
        call.check_internal(f"the atom {atom.name} leaves its result in registers", "let a copy have it")
    tv.schedule.atom, tv.schedule.atom_axes = atom, covered
    if atom.binds is not None:
        tv.schedule.ptypes.update(dict.fromkeys(covered, atom.binds))
    if atom.spreads:
        tv.set_allocation_domain(layouts.fragment(atom=atom))


def _copies(atom: Atom, expr: MathExpr) -> bool:
    """True if an atom copies what ``expr`` takes at indices that are data, sends it to elements, or writes zeros outside a part of a tensor."""
    if isinstance(expr, Update):
        return atom.instruction in (Instruction.VECTOR, Instruction.TMA_STORE)
    if atom.instruction is Instruction.VECTOR:
        return isinstance(expr, Gather)
    return atom.bounds in (Bounds.FILL, Bounds.ZERO) and padded_read(expr) is not None


def _check_contraction(call: Call, atom: Atom) -> None:
    row = atom.contraction
    assert row is not None
    if not computes(call.tv.definition, row):
        raise call.error(f"the atom {atom.name} computes a reduction by {row.combine.name} of {row.body.name}, but its definition is not one")
    factors = [o.tensor.dtype for o in call.tv.definition.operands if isinstance(o, Read)]
    if atom.shape is not None and len(factors) == 2:
        sums = {r.sums for r in rows(atom.shape.family, *factors)}
        if sums and call.tv.dtype not in sums:
            given = " or ".join(sorted(s.name for s in sums))
            reason = f"the atom {atom.name} adds products of {factors[0]} and {factors[1]} up in {given}, but {call.tv.name} is {call.tv.dtype}"
            raise call.error(reason, f"give the sum that dtype, as tf.matmul(..., dtype=tf.{given.split()[0]}) does, and convert the result")


def uncover(tv: TensorView) -> None:
    """Remove the atom of a tensor; its axes become Serial."""
    schedule = tv.schedule
    for a in schedule.atom_axes:
        schedule.ptypes.pop(a, None)
    schedule.atom, schedule.atom_axes = None, ()


def parallelize(tv: TensorView, axis: Axis, ptype: object) -> None:
    """See :meth:`AxisRef.parallelize`.

    Several axes on one index type are its digits, outermost first. An axis that is only in the allocation domain may be bound to an index
    type if the tensor lives in Local memory (or none is set yet): its elements are then spread over the threads. The binding of an input's
    axis, or of a view's, is kept and means nothing.
    """
    call = Call("parallelize", tv)
    if not isinstance(ptype, ParallelType):
        raise call.error(f"{shown(ptype)} is not a parallel type", "use a member of ParallelType, such as ParallelType.TIDx")
    schedule = tv.schedule
    if axis not in schedule.loop:
        if schedule.allocation is None or axis not in schedule.allocation:
            raise call.error(f"the axis of extent {axis.extent} is no longer in a domain of {tv.name}", "take the axis again: tensor.axis(k)")
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


def _atom(call: Call, given: object) -> Atom:
    if not isinstance(given, Atom):
        known = ", ".join(f"tf.atoms.{name.upper()}" for name in ATOMS)
        raise call.error(f"{shown(given)} is not an atom", f"use one of {known}, or tf.atoms.wgmma(m, n, k) and tf.atoms.mma(m, n, k)")
    return given


def fragment(tv: TensorView, axes: Sequence[int], atom: Atom | None = None, operand: str | None = None) -> None:
    """See :meth:`TensorView.fragment`."""
    call = Call("fragment", tv)
    loop = tv.schedule.loop
    positions = call.positions(axes)
    atom = None if atom is None else _atom(call, atom)
    if operand is not None:
        if atom is None:
            raise call.error(f"the factor {shown(operand)} is given without its atom", "give atom= as well")
        _as_held(call, _held_operand(call, atom, operand), tuple(positions))
        return
    if atom is not None and atom.shape is not None and (atom.units > 1 or atom.shape.m < FRAGMENT_ROWS):
        _as_held(call, atom.shape.accumulator(atom.shape.widths[0]), tuple(positions))
        return
    if len(positions) != 2 or positions[1] != positions[0] + 1:
        raise call.error(f"axes {positions} are not two axes side by side", "use axes such as (-2, -1), after reorder")
    for p, unit in zip(positions, (FRAGMENT_ROWS, FRAGMENT_COLUMNS), strict=True):
        size = constant(loop[p])
        if size is None or size % unit:
            raise call.error(f"{described(p, loop[p])} is not a constant multiple of {unit}", f"split it by a multiple of {unit}")
    m = positions[0]
    split(tv, m, FRAGMENT_ROWS)
    split(tv, m + 1, FRAGMENT_HALF)  # [w, half, row, n]
    split(tv, m + 3, FRAGMENT_COLUMNS)
    split(tv, m + 4, FRAGMENT_PAIR)  # [w, half, row, column/8, pair, element]
    reorder(tv, [*range(m), *(m + k for k in (0, 2, 4, 3, 1, 5)), *range(m + 6, len(loop))])
    for k in range(m, m + 3):
        parallelize(tv, tv.schedule.loop[k], ParallelType.TIDx)


def _held_operand(call: Call, atom: Atom, which: str) -> Fragment:
    """The fragment of a factor, rows or columns first, then k. Raises :class:`ScheduleError` if the atom takes none of such elements from registers."""
    sides = {"a": 0, "b": 1}
    if which not in sides:
        raise call.error(f"the factor {shown(which)}", "use 'a', the factor with the rows, or 'b'")
    known = (None, None) if atom.shape is None or atom.tile is None else in_registers(atom.shape, atom.tile[2], call.tv.dtype)
    held = known[sides[which]]
    if held is None or atom.tile is None or held.shape[1 - sides[which]] != atom.tile[2]:
        raise call.error(f"the atom {atom.name} takes no factor {which} of {call.tv.dtype.name} from registers")
    return held if which == "a" else held.transposed()


def _as_held(call: Call, held: Fragment, positions: tuple[int, ...]) -> None:
    """Axes that number the units of a warp, if there are several, then the rows and columns of a tile: [lanes above, units, lanes below, registers]."""
    tv = call.tv
    sizes = [constant(tv.schedule.loop[p]) for p in positions]
    numbers = f"axes of {held.units} values together, then " if held.units > 1 else ""
    wanted = f"{numbers}{held.shape[0]} rows and {held.shape[1]} columns"
    if len(positions) < 2 + (held.units > 1) or positions != tuple(range(positions[0], positions[0] + len(positions))) or None in sizes:
        raise call.error(f"axes {list(positions)} are not {wanted}, side by side")
    if math.prod(n or 0 for n in sizes[:-2]) != held.units or tuple(sizes[-2:]) != held.shape:
        raise call.error(f"axes of {sizes} values are not {wanted}")
    start, rows = positions[0], positions[-2]
    along_rows, along_columns = held.steps()
    for axis, steps in ((rows + 1, along_columns), (rows, along_rows)):
        for k, step in enumerate(steps[:-1]):
            split(tv, axis + k, step)
    units = len(positions) - 2
    above = next((k for k, d in enumerate(held.lanes) if d.is_unit), 0)
    order = [rows + k for k in held.places()]
    order[above:above] = range(start, start + units)
    reorder(tv, [*range(start), *order, *range(start + len(order), len(tv.schedule.loop))])
    for k in range(start, start + units + sum(not d.is_unit for d in held.lanes)):
        parallelize(tv, tv.schedule.loop[k], ParallelType.TIDx)
