"""drop_axes: a tensor computed without the axes that its elements do not depend on, and broadcast along them.

``y[b, m] = sum over k of x[0, k] * w[k, m]`` becomes ``new[m] = sum over k of x[0, k] * w[k, m]`` and ``y[b, m] = new[m]``: a factor that a model expands
before a product is multiplied once, not for each copy. An elementwise tensor that ``recompute`` makes at the points of a product has axes of both factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, FirstValid, IndexValue, MathExpr, Operand, Pointwise, Read, Reduction, View, at_point
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE, Expr
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.through_view import own_index


def drop_axes(tv: TensorView, positions: Sequence[int] = ()) -> TensorView:
    """See :meth:`TensorView.drop_axes`.

    Raises:
        ScheduleError: ``tv`` is neither a reduction nor elementwise, depends on all of its axes or on one that is given, or has a schedule.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("drop_axes", tv)
    fusion, definition = tv.fusion, tv.definition
    if not isinstance(definition, Reduction | Pointwise | FirstValid):
        raise call.error(f"{tv.name} is neither a reduction nor elementwise", "call it on one")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call drop_axes before split, merge, reorder and rfactor")
    dropped = free_axes(fusion, definition)
    if not dropped or (isinstance(definition, Reduction) and (definition.rescaled is not None or not definition.is_whole)):
        raise call.error("its elements depend on all of its axes", "leave it as it is")
    if positions:
        wanted = {call.position(p, list(tv.root), "logical") for p in positions}
        if not wanted <= set(dropped):
            raise call.error(f"its elements depend on axis {min(wanted - set(dropped))}", f"drop {', '.join(map(str, dropped))}")
        dropped = tuple(sorted(wanted))
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"drop axes before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    kept = [k for k in range(len(tv.root)) if k not in dropped]
    place: dict[str, Expr] = {str(iteration_symbol(k)): iteration_symbol(q) for q, k in enumerate(kept)}
    operands = tuple(at_point(_own(fusion, definition, o), place) for o in definition.operands)
    new = fusion.new_tensor([axis(tv.root[k].extent, tv.root[k].kind) for k in kept], tv.dtype, location=caller(), origin=tv)
    join_task(new, tv)
    fusion.define(replace(definition, output=new, operands=operands))
    left = [k for k, a in enumerate(tv.root) if not a.is_reduction]
    at = tuple(iteration_symbol(q) for q, k in enumerate(left) if k not in dropped)
    tv.root = tuple(tv.root[k] for k in left)
    tv.schedule = TensorSchedule(list(tv.root))
    read = Read(new, at)
    is_stored = tv.is_output or any(isinstance(use, Assemble) for use in tv.uses)
    fusion.define(Pointwise(tv, ELEMENTWISE["copy"], (read,), definition.location) if is_stored else View(tv, "broadcast_to", read, definition.location))
    fusion.remove_unread([o.tensor for o in definition.operands if isinstance(o, Read)])
    return new


def free_axes(fusion: Fusion, expr: MathExpr) -> tuple[int, ...]:
    """The axes of a reduction or an elementwise tensor, of more than one element and not reduced, that its elements do not depend on."""
    if not isinstance(expr, Reduction | Pointwise | FirstValid):
        return ()
    bounds = (*expr.starts, *expr.ends) if isinstance(expr, Reduction) else ()
    names = {n for o in expr.operands for e in _expressions(fusion, expr, o) for n in e.free}.union(*(bound.free for _, bound in bounds))
    return tuple(k for k, a in enumerate(expr.output.root) if not a.is_reduction and a.extent is not ONE and str(iteration_symbol(k)) not in names)


def _expressions(fusion: Fusion, expr: MathExpr, operand: Operand) -> tuple[Expr, ...]:
    """Where an operand is read."""
    match operand:
        case Read():
            read = resolve(fusion, operand)
            return (*own_index(fusion, expr, read), read.valid)
        case IndexValue(index=index):
            return (index,)
        case _:
            return ()


def _own(fusion: Fusion, expr: MathExpr, operand: Operand) -> Operand:
    """An operand without the views between."""
    if not isinstance(operand, Read):
        return operand
    read = resolve(fusion, operand)
    return Read(read.tensor, own_index(fusion, expr, read), read.valid)
