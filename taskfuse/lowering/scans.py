"""Axes along which a tensor accumulates, and the requirements of scans and folds on their schedules.

A scan carries its total, and a fold its state, from one index of its axis to the next, in registers. So the loops over that axis are serial loops of one
thread, in the order of the axis; the schedule determines all other axes.
"""

from __future__ import annotations

from taskfuse.ir.axes import Axis, Split
from taskfuse.ir.expr import Fold, MathExpr, Reduction, Scan
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.domains import ancestors, refused


def accumulates(expr: MathExpr, axis: Axis) -> bool:
    """True if the code of ``expr`` accumulates along a loop axis: the reduced ones of a reduction, those derived from a scan's axis."""
    match expr:
        case Reduction():
            return axis.is_reduction
        case Scan() | Fold():
            return expr.output.root[expr.axis] in ancestors(expr.output, (axis,))
        case _:
            return False


def first_accumulated(expr: MathExpr) -> int | None:
    """The depth of the outermost loop along which the code of ``expr`` accumulates."""
    return next((d for d, a in enumerate(expr.output.loop) if accumulates(expr, a)), None)


def rescaled_at(expr: MathExpr) -> int | None:
    """The depth of the loop along the axis of a sum's rescaling; ``None`` if the sum is not rescaled, or has no such loop."""
    if not isinstance(expr, Reduction) or expr.rescaled is None:
        return None
    return next((d for d, a in enumerate(expr.output.loop) if a is expr.output.root[expr.rescaled]), None)


def check_rescaled(expr: Reduction) -> None:
    """Check that a sum is rescaled once per index of the axis, by one loop around all others that take its terms. Raises :class:`LoweringError`."""
    tv, depth = expr.output, rescaled_at(expr)
    if expr.rescaled is None:
        return
    if depth is None or depth != first_accumulated(expr) or not tv.schedule.ptype(tv.loop[depth]).is_loop:
        raise refused(
            tv,
            "the axis along which it is rescaled is not its outermost loop over reduced axes: what was summed is multiplied before the terms of each index",
            "leave that axis as it is, Serial, and reorder it to the front of the other reduced axes",
        )


def carried_axes(expr: Scan) -> tuple[Axis, ...]:
    """The other loop axes inside a scan's outermost loop along its axis: there is one total per index of them."""
    tv, first = expr.output, first_accumulated(expr)
    assert first is not None
    return tuple(a for a in tv.loop[first:] if tv.schedule.ptype(a).is_loop and not accumulates(expr, a))


def check_in_order(expr: Scan | Fold) -> None:
    """Check that the loops along the axis of a scan or a fold run over it serially, in order. Raises :class:`LoweringError`."""
    tv = expr.output
    what, made = ("scan", "total") if isinstance(expr, Scan) else ("fold", "state")
    along = [a for a in tv.loop if accumulates(expr, a)]
    for a in along:
        ptype = tv.schedule.ptype(a)
        if not ptype.is_loop:
            raise refused(
                tv,
                f"loop axis {tv.loop.index(a)} runs along the axis of its {what} and is bound to {ptype.value}: each {made} needs the one before it",
                f"leave that axis Serial, and bind others; or read the {what} from a tensor of its own, in its own loops",
            )
    if _in_order(tv, tv.root[expr.axis]) != along:
        raise refused(
            tv,
            f"its loops do not run along the axis of its {what} in order: each {made} needs the one before it",
            "split that axis only, and keep the outer part outside; merge, swizzle and rasterize other axes",
        )


def _in_order(tv: TensorView, axis: Axis) -> list[Axis]:
    """The loop axes into which splits divide an axis, outermost first."""
    made = next((t for t in tv.schedule.transforms if isinstance(t, Split) and t.source is axis and axis not in tv.loop), None)
    return [axis] if made is None else [*_in_order(tv, made.outer), *_in_order(tv, made.inner)]
