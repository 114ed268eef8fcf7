"""unscatter: a tensor that is assembled from parts gets code in gather form: the loops of the result select the part of each element.

The inverse of :mod:`taskfuse.schedule.scatter`. It is needed if another tensor is assembled from the same parts, or if the loops of the parts do
not suit a reader of the whole.

If a part is an update, the loops of the result find the points that go to an element: a reduction over all of them (:mod:`taskfuse.ops.points`), which is
then combined with the first part. Nothing is updated then, and the result does not depend on an order.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.axes import axis, iteration_point, iteration_symbol
from taskfuse.ir.expr import Assemble, FirstValid, Literal, Operand, Pointwise, Read, Update
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, and_, eq, le, lt, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.ops.build import broadcast_read
from taskfuse.ops.points import Points, gathered
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call


def unscatter(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.unscatter`.

    Raises:
        ScheduleError: ``tv`` is not assembled from parts, or a part does not lie along the axes of ``tv``.
    """
    call = Call("unscatter", tv)
    fusion = tv.fusion
    expr = fusion.definition(tv)
    if not isinstance(expr, Assemble):
        raise call.error("it is not assembled from parts", "tf.cat(..., form='scatter') and tv.scatter() assemble tensors")
    fusion.check()
    updates = [e for part in expr.parts if isinstance(e := fusion.definition(part.tensor), Update)]
    if updates:
        return _gathered(call, expr, updates)
    operands = tuple(_operand(call, part, place) for part, place in zip(expr.parts, expr.places, strict=True))
    fusion.define(FirstValid(tv, "cat", operands, expr.location))
    return tv


def _gathered(call: Call, expr: Assemble, updates: list[Update]) -> TensorView:
    """The first part combined with what goes to each of its elements."""
    tv, fusion = call.tv, call.tv.fusion
    points: list[Points] = []
    for update, place in zip(updates, expr.places[1:], strict=True):
        values = tuple(v for v in update.operands[2:] if isinstance(v, Read))
        points.append(Points(tuple(a.extent for a in update.output.root), place, values, update.extents))
    if not all(p.is_plain() for p in points):
        raise call.error("an index is neither an axis of the updates nor an element of a tensor")
    found: Read = expr.parts[0]
    for k, (update, mine) in enumerate(zip(updates, points, strict=True)):
        neutral = Literal(update.combine.neutral(tv.dtype), tv.dtype)
        terms = gathered(fusion, tuple(tv.shape), mine, update.combine, _sent(call, expr.parts[1 + k], update, neutral), neutral)
        join_task(terms, tv)
        last = k == len(updates) - 1
        out = tv if last else fusion.new_tensor([axis(e) for e in tv.shape], tv.dtype, location=expr.location)
        made = Pointwise(out, update.combine.op, (found, broadcast_read(terms, terms.shape)), expr.location)
        found = broadcast_read(fusion.define(made), tv.shape)
    fusion.remove_unread([u.output for u in updates])
    return tv


def _sent(call: Call, part: Read, update: Update, neutral: Literal) -> Operand:
    """What each point of an update sends: where it is not valid, nothing."""
    value = update.operands[1]
    if part.valid is TRUE:
        return value
    if not isinstance(value, Read):
        raise call.error(f"{part.tensor.name} sends a constant where {part.valid}", "copy the constant into a tensor first")
    made = call.tv.fusion.new_tensor([axis(a.extent) for a in part.tensor.root], call.tv.dtype, location=update.location, origin=call.tv)
    call.tv.fusion.define(FirstValid(made, "where", (replace(value, valid=and_(part.valid, value.valid)), neutral), update.location))
    join_task(made, call.tv)
    return Read(made, iteration_point(made.ndim))


def _operand(call: Call, part: Read, place: tuple[Expr, ...]) -> Read:
    """A part at the point of the result: the inverse of its place, where it is there."""
    own = {str(iteration_symbol(k)): extent for k, extent in enumerate(part.tensor.shape)}
    index: dict[str, Expr] = {}
    valid: Expr = TRUE
    for d, (e, own_axis) in enumerate(zip(place, call.tv.root, strict=True)):
        here = iteration_symbol(d)
        names = [name for name in e.free if name in own]
        if not names:
            valid = and_(valid, TRUE if own_axis.extent is ONE and e is ZERO else eq(here, e))
            continue
        start = e - sym(names[0])
        if len(names) > 1 or names[0] in index or not start.free.isdisjoint(own):
            raise call.error(f"a part lies at {e} of axis {d}, which is not a single axis of the part")
        end = start + own[names[0]]
        valid = and_(valid, TRUE if start is ZERO else le(start, here), TRUE if end is own_axis.extent else lt(here, end))
        index[names[0]] = here - start
    if any(name not in index and extent is not ONE for name, extent in own.items()):
        raise call.error(f"{part.tensor.name} has an axis that is not an axis of {call.tv.name}")
    alone: dict[str, Expr] = dict.fromkeys(own, ZERO)
    return Read(part.tensor, tuple(substitute(e, alone | index) for e in part.index), and_(valid, substitute(part.valid, alone | index)))
