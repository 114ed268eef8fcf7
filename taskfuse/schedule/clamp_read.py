"""clamp_read: load an element first, choose then.

``y[i] = x[i - 1] if i >= 1 else 0`` loads an element or none, so neighbors are no vector. ``t[i] = x[max(i - 1, 0)]`` loads one for each point, at a place
that always exists, and ``y[i] = t[i] if i >= 1 else 0`` chooses in registers.
"""

from __future__ import annotations

from taskfuse.ir.axes import axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import FirstValid, Literal, Pointwise, Read
from taskfuse.ir.scalar import Expr, ge, le, maximum, minimum, prove, simplify
from taskfuse.ir.storage import resolve
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers
from taskfuse.schedule.tile_windows import facts_of


def clamp_read(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.clamp_read`.

    Raises:
        ScheduleError: ``tv`` is no choice between an element of one tensor and a constant, or has a schedule; the tensor may be empty.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("clamp_read", tv)
    fusion = tv.fusion
    match fusion.definition(tv):
        case FirstValid(operands=(Read() as given, Literal() as fill)) as definition:
            read = resolve(fusion, given)
        case _:
            raise call.error("it is no choice between an element and a constant", "clamp what pads a tensor")
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", "call clamp_read before split, merge and reorder")
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"clamp first, or {producer.name}.inline_at(0)")
    fusion.check()
    facts = facts_of(fusion, tv)
    index: list[Expr] = []
    for e, extent in zip(read.index, read.tensor.shape, strict=True):
        if not prove(ge(extent, 1), facts):
            raise call.error(f"{read.tensor.name} may be empty", "declare the extent with tf.dim(..., min=1)")
        low = e if prove(ge(e, 0), facts) else maximum(e, 0)
        index.append(simplify(low if prove(le(e, extent - 1), facts) else minimum(low, extent - 1), facts))
    made = fusion.new_tensor([axis(a.extent) for a in tv.root], tv.dtype, location=caller(), origin=tv)
    join_task(made, tv)
    fusion.define(Pointwise(made, ELEMENTWISE["copy"], (Read(read.tensor, tuple(index)),), definition.location))
    here = tuple(map(iteration_symbol, range(len(tv.root))))
    fusion.define(FirstValid(tv, definition.label, (Read(made, here, read.valid), fill), definition.location))
    return made
