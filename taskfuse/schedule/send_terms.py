"""send_terms: a sum in scatter form, whose terms are combined where their element lies, each by one atomic step.

In gather form one statement combines the terms of an element, in order. In scatter form each is sent to its element (:class:`~taskfuse.ir.expr.Update`), which
holds the initial value before, so the blocks and threads that compute terms need nothing of each other. After ``rfactor``, the terms are partial results:
blocks that divide a reduced axis among them join theirs so. The order of floats then differs from run to run (``kernel.is_deterministic``). If terms begin late
or end early, only the points between are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import Axis, axis, iteration_point, iteration_symbol
from taskfuse.ir.combine import is_atomic
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, Operand, Pointwise, Read, Reduction, Update
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import TRUE, Expr, Max, Min, and_, le, lt, prove, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, inlined_producers

COPY = ELEMENTWISE["copy"]


def send_terms(call: Call) -> tuple[TensorView, TensorView]:
    """The parts of the reduction of a call, which becomes an assembly: what each element begins with, and the updates.

    Raises:
        ScheduleError: the reduction has a schedule or is a rescaled sum, or no single step combines its elements in memory.
        TaskError: if a law of tasks and groups is broken.
    """
    tv, fusion = call.tv, call.tv.fusion
    expr = call.reduction()
    if not is_atomic(expr.combine, tv.dtype):
        reason = f"no single step of a GPU combines {tv.dtype} in memory by {expr.combine.name}"
        raise call.error(reason, "reduce in another dtype, such as float32, and cast the result")
    kept = tuple(a for a in tv.root if not a.is_reduction)
    if tv.logical != kept or tv.loop != tv.root or tv.schedule.ptypes or tv.schedule.inline or inlined_producers(tv):
        raise call.error(f"{tv.name} is scheduled already", "scatter first; behind split and rfactor, scatter what joins the partial results")
    if expr.rescaled is not None:
        raise call.error("it is a rescaled sum, whose steps have an order", "scatter before cascade")
    fusion.check()
    location = caller()
    place = tuple(iteration_symbol(p) for p, a in enumerate(tv.root) if among(a, kept))
    whole, outer = _memory(call)
    if whole is not tv:
        place = tuple(substitute(e, {str(iteration_symbol(k)): p for k, p in enumerate(place)}) for e in outer)
    start = _defined(call, Pointwise(_new(call, whole.logical), COPY, (expr.init,), location))
    term = _term(call, expr)
    sent = _defined(call, Update(_new(call, tv.root), expr.combine, (Read(start, place), term), (), location))
    if whole is tv:
        tv.root = kept
        tv.schedule = TensorSchedule(list(kept))
    parts = Read(start, iteration_point(whole.ndim)), Read(sent, iteration_point(sent.ndim), _is_term(expr))
    fusion.define(Assemble(whole, parts, (iteration_point(whole.ndim), place), location))
    if whole is not tv:
        fusion.remove_unread([tv])
    return start, sent


def _is_term(expr: Reduction) -> Expr:
    """Whether a point of its iteration space is in a reduction: behind the starts of terms, and before their ends."""
    facts = expr.output.fusion.facts()
    for k, a in enumerate(expr.output.root):
        facts = facts.with_range(str(iteration_symbol(k)), 0, a.extent - 1)
    found = [le(e, iteration_symbol(k)) for k, start in expr.starts for e in (start.args if isinstance(start, Max) else (start,))]
    found += [lt(iteration_symbol(k), e) for k, end in expr.ends for e in (end.args if isinstance(end, Min) else (end,))]
    return and_(*(c for c in found if not prove(c, facts)))


def _memory(call: Call) -> tuple[TensorView, tuple[Expr, ...]]:
    """The tensor in whose memory the elements lie, and where: another one that consists of them, or their own."""
    tv = call.tv
    match tv.uses:
        case [Assemble(output=whole, parts=(Read(valid=valid, index=index),), places=(place,))] if valid is TRUE and index == iteration_point(tv.ndim):
            return whole, place
        case _:
            return tv, iteration_point(tv.ndim)


def _term(call: Call, expr: Reduction) -> Operand:
    """The term of a point: the operand itself, or a function of the operands as a tensor of its own."""
    (first, *others) = expr.operands
    if expr.body is COPY and not others and isinstance(first, Read) and first.tensor.dtype is call.tv.dtype:
        return first
    made = _defined(call, Pointwise(_new(call, call.tv.root), expr.body, expr.operands, expr.location))
    return Read(made, iteration_point(made.ndim))


def _new(call: Call, like: Sequence[Axis]) -> TensorView:
    return call.tv.fusion.new_tensor([axis(a.extent) for a in like], call.tv.dtype, location=caller(), origin=call.tv)


def _defined(call: Call, expr: Pointwise | Update) -> TensorView:
    made = call.tv.fusion.define(expr)
    join_task(made, call.tv)
    return made
