"""unscatter: a tensor that is assembled from parts becomes a concatenation in gather form: the loops of the result select the part that has an element.

The inverse of :mod:`taskfuse.schedule.scatter`. It is needed where another tensor is assembled from the same parts, or where the loops of the parts do
not suit a reader of the whole.
"""

from __future__ import annotations

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Assemble, Read, Select
from taskfuse.ir.scalar import ONE, TRUE, ZERO, Expr, and_, eq, le, lt, substitute, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.call import Call


def unscatter(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.unscatter`.

    Raises:
        ScheduleError: ``tv`` is not assembled of parts, or one of these does not lie along the axes of ``tv``.
    """
    call = Call("unscatter", tv)
    fusion = tv.fusion
    expr = fusion.definition(tv)
    if not isinstance(expr, Assemble):
        raise call.error("it is not assembled of parts", "tf.cat(..., form='scatter') and tv.scatter() assemble tensors")
    fusion.check()
    operands = tuple(_operand(call, part, place) for part, place in zip(expr.parts, expr.places, strict=True))
    fusion.define(Select(tv, "cat", operands, expr.location))
    return tv


def _operand(call: Call, part: Read, place: tuple[Expr, ...]) -> Read:
    """A part at the point of the result: the inverse of its place, where it is there."""
    own = {str(iteration_symbol(k)): extent for k, extent in enumerate(part.tensor.shape)}
    index: dict[str, Expr] = {}
    valid: Expr = TRUE
    for d, (e, axis) in enumerate(zip(place, call.tv.root, strict=True)):
        here = iteration_symbol(d)
        names = [name for name in e.free if name in own]
        if not names:
            valid = and_(valid, TRUE if axis.extent is ONE and e is ZERO else eq(here, e))
            continue
        start = e - sym(names[0])
        if len(names) > 1 or names[0] in index or not start.free.isdisjoint(own):
            raise call.error(f"a part lies at {e} of axis {d}, which is not a single axis of the part")
        end = start + own[names[0]]
        valid = and_(valid, TRUE if start is ZERO else le(start, here), TRUE if end is axis.extent else lt(here, end))
        index[names[0]] = here - start
    if any(name not in index and extent is not ONE for name, extent in own.items()):
        raise call.error(f"{part.tensor.name} has an axis that is not an axis of {call.tv.name}")
    alone: dict[str, Expr] = dict.fromkeys(own, ZERO)
    return Read(part.tensor, tuple(substitute(e, alone | index) for e in part.index), and_(valid, substitute(part.valid, alone | index)))
