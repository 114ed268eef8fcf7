"""cut_reduction: one reduction as two, of the first elements of a reduced axis and of the others, whose results are combined element by element.

``y[m] = sum of x[m, k]`` becomes ``first[m] = sum of x[m, k]`` over ``k < n``, ``rest[m] = sum of x[m, n + k]``, and ``y[m] = first[m] + rest[m]``. The first
part may then be divided, as by ``chunk_reduction``, by what does not divide the whole.
"""

from __future__ import annotations

from taskfuse.errors import shown
from taskfuse.ir.axes import AxisKind, axis, iteration_point, iteration_symbol
from taskfuse.ir.expr import Literal, Pointwise, Read, Reduction, at_point
from taskfuse.ir.scalar import Expr, const, gt, prove, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call
from taskfuse.schedule.chunk_reduction import divided_axis


def cut_reduction(tv: TensorView, position: int, at: object) -> tuple[TensorView, TensorView]:
    """See :meth:`TensorView.cut_reduction`.

    Raises:
        ScheduleError: ``tv`` is not a reduction over that axis, has a schedule or an initial value that is not neutral, or nothing is certain to be left
            behind ``at``.
        TaskError: a law of tasks and groups is broken.
    """
    call = Call("cut_reduction", tv)
    k, length, definition = divided_axis(call, position, at, "the first part", is_whole=False)
    fusion, whole = tv.fusion, tv.root[k].extent
    facts = fusion.facts()
    if not prove(gt(whole, length), facts):
        raise call.error(f"behind {shown(at)} elements of an axis of {whole} none may be left", "use a smaller part")
    if not definition.starts_neutral:
        raise call.error(f"{tv.name} starts at a value of its own", "combine that with the result")
    neutral = Literal(definition.combine.neutral(tv.dtype), tv.dtype)
    made: list[TensorView] = []
    for begin, extent in ((0, const(length)), (length, simplify(whole - length, facts))):
        root = [axis(extent if p == k else a.extent, a.kind) for p, a in enumerate(tv.root)]
        new = fusion.new_tensor(root, tv.dtype, location=caller(), origin=tv)
        place: dict[str, Expr] = {str(iteration_symbol(k)): iteration_symbol(k) + begin}
        operands = tuple(at_point(operand, place) for operand in definition.operands)
        made.append(fusion.define(Reduction(new, definition.combine, definition.body, operands, neutral, definition.location)))
        join_task(new, tv)
    first, rest = made
    tv.root = tuple(a for a in tv.root if a.kind is not AxisKind.REDUCTION)
    tv.schedule = TensorSchedule(list(tv.root))
    here = iteration_point(len(tv.root))
    fusion.define(Pointwise(tv, definition.combine.op, (Read(first, here), Read(rest, here)), definition.location))
    return first, rest
