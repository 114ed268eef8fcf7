"""rfactor: one reduction in two steps, the first of which reduces only some of the axes."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.axes import Axis, AxisKind, axis, iteration_point
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Read, Reduction
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, described, inlined_producers
from taskfuse.schedule.replay import ancestors, expand, replay


def rfactor(tv: TensorView, axes: Sequence[int]) -> TensorView:
    """See :meth:`TensorView.rfactor`.

    The new tensor has the root domain of ``tv`` and, as logical domain, what is left of it after the transforms that lead to the reduced
    axes: the other reduction axes are iteration axes there. It starts at the neutral element. ``tv`` keeps its iteration axes, the other
    reduction axes, its start value, and what was made from them; its root domain is the new tensor's logical domain.

    Raises:
        ScheduleError: if ``tv`` is not a reduction, ``axes`` are not some but not all of its reduction axes, an axis derives from a foreign one,
            or loops are shared already.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("rfactor", tv)
    fusion, old = tv.fusion, tv.schedule
    definition = call.reduction()
    selected = _selected(call, axes)
    if old.inline:
        raise call.error(f"{tv.name} is inlined at {old.inline}", f"call rfactor before inlining, or {tv.name}.inline_at(0)")
    for producer in inlined_producers(tv):
        raise call.error(f"{producer.name} is inlined into it at {producer.schedule.inline}", f"call rfactor before inlining, or {producer.name}.inline_at(0)")
    fusion.check()
    needed, starts = ancestors(old.transforms, (*selected, *tv.logical))
    for a in starts:
        if a.is_foreign:
            raise call.error(f"a reduction axis derives from a foreign axis of extent {a.extent}", "rfactor before propagate")
    frontier = expand(tv.root, needed)
    producer = _producer(tv, definition, selected, frontier)
    dropped = set(needed)
    tv.root = tuple(a for a in frontier if a not in selected)
    old.transforms = [t for t in old.transforms if t not in dropped]
    old.loop = [a for a in old.loop if a not in selected]
    for a in selected:
        old.ptypes.pop(a, None)
    point = iteration_point(len(tv.root))
    fusion.define(Reduction(tv, definition.combine, ELEMENTWISE["copy"], (Read(producer, point),), definition.init, definition.location))
    join_task(producer, tv)
    return producer


def _selected(call: Call, axes: Sequence[int]) -> dict[Axis, None]:
    loop = call.tv.schedule.loop
    positions = call.positions(axes)
    if not positions or len(set(positions)) < len(positions):
        raise call.error(f"axes {list(axes)} are not a set of one or more axes")
    for p in positions:
        if not loop[p].is_reduction:
            raise call.error(f"{described(p, loop[p])} is not a reduction axis", _reductions(loop))
    selected = {loop[p]: None for p in positions}
    if all(a in selected for a in loop if a.is_reduction):
        raise call.error("all reduction axes are given: one must be left", "split a reduction axis first")
    return selected


def _reductions(loop: Sequence[Axis]) -> str:
    return f"the reduction axes are {', '.join(str(k) for k, a in enumerate(loop) if a.is_reduction)}"


def _producer(tv: TensorView, definition: Reduction, selected: dict[Axis, None], frontier: list[Axis]) -> TensorView:
    """The new tensor: fresh copies of all axes of ``tv``, of which those that lead to ``selected`` alone or also to others still reduce."""
    old = tv.schedule
    reducing = set(selected)
    for t in reversed(old.transforms):
        if any(a in reducing for a in t.outputs):
            reducing.update(t.inputs)

    def kind_of(a: Axis, kind: AxisKind) -> AxisKind:
        if not a.is_reduction:
            return a.kind
        return AxisKind.REDUCTION if a in reducing else AxisKind.ITERATION

    made = {a for t in old.transforms for a in t.outputs}
    starts = dict.fromkeys((*tv.root, *(a for t in old.transforms for a in t.inputs if a not in made), *(a for a in old.loop if a not in made)))
    mapping = {a: axis(a.extent, kind_of(a, a.kind), a.source) for a in starts}
    transforms = replay(old.transforms, mapping, kind_of)
    root = [mapping[a] for a in tv.root]
    logical = [mapping[a] for a in frontier if a not in selected]
    new = tv.fusion.new_tensor(root, tv.dtype, logical=logical, location=caller(), origin=tv)
    ptypes = {mapping[a]: p for a, p in old.ptypes.items() if a in mapping and not p.is_atom}
    new.schedule = TensorSchedule([mapping[a] for a in old.loop], transforms, ptypes)
    neutral = Literal(definition.combine.neutral(tv.dtype), tv.dtype)
    tv.fusion.define(Reduction(new, definition.combine, definition.body, definition.operands, neutral, definition.location))
    return new
