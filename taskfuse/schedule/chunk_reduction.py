"""chunk_reduction: one reduction as reductions of chunks, whose results are a tensor, and a reduction of that tensor.

``y[m, n] = sum of a[m, k] * b[k, n]`` becomes ``parts[s, m, n] = sum of a[m, C*s + k] * b[C*s + k, n]`` and ``y[m, n] = sum of parts[s, m, n]``.
``rfactor`` does the same to the loops of one kernel; this call comes before all scheduling, so that two kernels can compute the two.
"""

from __future__ import annotations

from taskfuse.errors import shown
from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Read, Reduction, at_point
from taskfuse.ir.scalar import Expr, const, is_multiple, simplify
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers


def chunk_reduction(tv: TensorView, position: int, extent: object) -> TensorView:
    """See :meth:`TensorView.chunk_reduction`.

    Raises:
        ScheduleError: ``tv`` is not a reduction over that axis or has a schedule, or ``extent`` does not provably divide the axis.
        TaskError: a law of tasks and groups is broken.
    """
    k, length, definition = divided_axis(Call("chunk_reduction", tv), position, extent, "a chunk")
    fusion, facts, whole = tv.fusion, tv.fusion.facts(), tv.root[k].extent
    chunks = simplify(whole // length, facts)
    parts = fusion.new_tensor(_root(tv, k, chunks, length), tv.dtype, location=caller(), origin=tv)
    place: dict[str, Expr] = {str(iteration_symbol(p)): iteration_symbol(p + 1) for p in range(len(tv.root))}
    place[str(iteration_symbol(k))] = iteration_symbol(0) * length + iteration_symbol(k + 1)
    operands = tuple(at_point(operand, place) for operand in definition.operands)
    neutral = Literal(definition.combine.neutral(tv.dtype), tv.dtype)
    fusion.define(Reduction(parts, definition.combine, definition.body, operands, neutral, definition.location))
    left = [p for p, a in enumerate(tv.root) if p == k or not a.is_reduction]
    root = [axis(chunks, AxisKind.REDUCTION) if p == k else tv.root[p] for p in left]
    at = {p: iteration_symbol(q) for q, p in enumerate(left)}
    tv.root = tuple(root)
    tv.schedule = TensorSchedule(list(root))
    whole_of = Read(parts, (at[k], *(at[p] for p in left if p != k)))
    fusion.define(Reduction(tv, definition.combine, ELEMENTWISE["copy"], (whole_of,), definition.init, definition.location))
    join_task(parts, tv)
    return parts


def divided_axis(call: Call, position: object, extent: object, what: str, *, is_whole: bool = True) -> tuple[int, int, Reduction]:
    """The reduced axis that a call divides, the length of the parts, and the reduction.

    Args:
        is_whole: whether the parts have to make up the axis.

    Raises:
        ScheduleError: see :func:`chunk_reduction`.
    """
    tv, fusion = call.tv, call.tv.fusion
    definition = call.reduction()
    (k,) = call.positions([position])
    if tv.loop != tv.root:
        raise call.error(f"the loops of {tv.name} are not the axes of its math", f"call {call.name} before split, merge, reorder and rfactor")
    if not tv.root[k].is_reduction:
        raise call.error(f"axis {k} of {tv.name} is not a reduction axis")
    if not isinstance(extent, int) or isinstance(extent, bool) or extent < 1:
        raise call.error(f"{what} has {shown(extent)} elements", "use a positive integer")
    if is_whole and not is_multiple(tv.root[k].extent, extent, fusion.facts()):
        raise call.error(f"{extent} does not divide the axis of {tv.root[k].extent} for all extents", "use a divisor")
    call.check_not_inlined()
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"chunk it before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    return k, extent, definition


def _root(tv: TensorView, k: int, chunks: Expr, extent: int) -> list[Axis]:
    """The chunks, then the axes of the reduction, of which that along ``k`` is as long as a chunk."""
    return [axis(chunks), *(axis(const(extent) if p == k else a.extent, a.kind) for p, a in enumerate(tv.root))]
