"""Indices: from loop indices to any axis of a tensor, and from an element to its address.

``backward`` follows transforms from loop axes to root and logical axes (which element an iteration computes); ``forward`` follows them
from logical axes to allocation axes (where an element is stored). Together: loop -> own axes -> op map -> producer logical -> allocation.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.errors import LoweringError
from taskfuse.ir.axes import Axis, Rasterize, Split, axis
from taskfuse.ir.scalar import Expr, Facts, const, eq, lt, prove, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.schedule.allocation import default_allocation
from taskfuse.target import WARP, WARPGROUP

ZERO = const(0)


def backward(tv: TensorView, loop: Mapping[Axis, Expr]) -> dict[Axis, Expr]:
    """The indices of all axes that the loop axes of ``tv`` determine, from the indices of its loop axes."""
    values = dict(loop)
    for t in reversed(tv.schedule.transforms):
        if all(o in values for o in t.outputs):
            for source, value in zip(t.inputs, t.backward(tuple(values[o] for o in t.outputs)), strict=True):
                values.setdefault(source, value)
    for a in tv.root:
        if a.extent is const(1):
            values.setdefault(a, ZERO)
    return values


def forward(tv: TensorView, logical: tuple[Expr, ...], facts: Facts) -> dict[Axis, Expr]:
    """The indices of all axes derived from the logical axes of ``tv``, from the indices of its logical axes."""
    return onward(tv, dict(zip(tv.logical, logical, strict=True)), facts)


def onward(tv: TensorView, known: Mapping[Axis, Expr], facts: Facts) -> dict[Axis, Expr]:
    """The indices of all axes that follow from known ones along the transforms, each from its sources."""
    values = dict(known)
    for t in tv.schedule.transforms:
        if not isinstance(t, Rasterize) and all(i in values for i in t.inputs):
            for out, value in zip(t.outputs, t.forward(tuple(values[i] for i in t.inputs)), strict=True):
                if out not in values:
                    values[out] = simplify(value, facts)
    return values


def ancestors(tv: TensorView, axes: tuple[Axis, ...]) -> set[Axis]:
    """``axes`` and every axis that they are derived from."""
    found = set(axes)
    for t in reversed(tv.schedule.transforms):
        if any(o in found for o in t.outputs):
            found.update(t.inputs)
    return found


def allocation_axes(tv: TensorView) -> tuple[Axis, ...]:
    """The allocation domain: the explicit one, or the loop axes that are derived only from the tensor's own axes."""
    return default_allocation(tv) if tv.schedule.allocation is None else tv.schedule.allocation


_LANES = {lanes: axis(lanes) for lanes in (2, 4, WARP, WARPGROUP)}
"""The digits of TIDx formed by the lanes of an atom."""


def digits(tv: TensorView, ptype: ParallelType) -> tuple[Axis, ...]:
    """The loop axes bound to an index type, outermost first: the digits of its index. The lanes of an atom are the innermost digit of TIDx.

    If several units of a warp execute an atom side by side, the innermost axes, with that number of values together, number the units: they stand
    between the lanes of a unit.
    """
    own = tuple(a for a in tv.schedule.loop if tv.schedule.ptype(a) is ptype)
    atom = tv.schedule.atom
    if atom is None or atom.lanes == 1 or ptype is not THREAD_TYPES[0]:
        return own
    above, _, below = atom.lane_digits
    return _around_units(tv, own, tuple(_LANES[n] for n in (above,) if n > 1), (_LANES[below],))


def owner_digits(tv: TensorView, ptype: ParallelType) -> tuple[Axis, ...]:
    """The digits of the index that owns an element: those that compute it; the lanes of an atom that spreads it are those of the allocation domain."""
    if tv.schedule.atom is None or not tv.schedule.atom.spreads:
        return digits(tv, ptype)
    lanes = tuple(a for a in tv.schedule.allocation or () if a not in tv.loop and tv.schedule.ptype(a) is ptype)
    if not lanes:
        return digits(tv, ptype)
    above = 0
    while product(lanes[:above]) is not const(tv.schedule.atom.lane_digits[0]) and above < len(lanes):
        above += 1
    return _around_units(tv, tuple(a for a in tv.loop if tv.schedule.ptype(a) is ptype), lanes[:above], lanes[above:])


def _around_units(tv: TensorView, own: tuple[Axis, ...], above: tuple[Axis, ...], below: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The digits of TIDx where lanes stand above and below those of ``own`` that number the units of the atom. Raises :class:`LoweringError`."""
    atom = tv.schedule.atom
    assert atom is not None
    units = atom.lane_digits[1]
    at = len(own)
    while at and product(own[at:]) is not const(units):
        at -= 1
    if product(own[at:]) is not const(units):
        reason = f"{units} parts of a warp execute the atom {atom.name} side by side, and no axes of {units} values together say which"
        raise refused(tv, reason, f"bind axes with {units} values together to TIDx, inside those of warps")
    return (*own[:at], *above, *own[at:], *below)


def product(axes: tuple[Axis, ...]) -> Expr:
    """The product of the extents of axes."""
    total = const(1)
    for a in axes:
        total = total * a.extent
    return total


def digit_values(axes: tuple[Axis, ...], base: Expr, facts: Facts) -> dict[Axis, Expr]:
    """The index of each digit, from their combined index."""
    values: dict[Axis, Expr] = {}
    for k, a in enumerate(axes):
        stride = product(axes[k + 1 :])
        value = base // stride
        values[a] = simplify(value if k == 0 else value % a.extent, facts)
    return values


def divides(t: Split, facts: Facts) -> bool:
    """True if a split has no remainder, so that no index is out of range."""
    return prove(eq(t.outer.extent * t.inner.extent, t.source.extent), facts)


def bound(value: Expr, extent: Expr, facts: Facts) -> list[Expr]:
    """The condition that an index is below an extent; none if it always holds."""
    cond = lt(simplify(value, facts), extent)
    return [] if prove(cond, facts) else [cond]


def refused(tv: TensorView, what: str, help: str) -> LoweringError:
    """A lowering error about one tensor."""
    return LoweringError(what=tv.name, reason=what, help=help, location=tv.location)
