"""rfactor: one reduction in two steps, the first of which reduces only some of the axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from taskfuse.ir.axes import Axis, AxisKind, Split, Transform, axis, iteration_point, iteration_symbol
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Literal, Read, Reduction
from taskfuse.ir.scalar import Expr, Max, Min, is_multiple, simplify, substitute
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.block_bounds import pieces
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call, described, inlined_producers
from taskfuse.schedule.replay import ancestors, expand, replay


def rfactor(tv: TensorView, axes: Sequence[int]) -> TensorView:
    """See :meth:`TensorView.rfactor`.

    The new tensor has the root domain of ``tv`` and, as logical domain, what is left of it after the transforms that lead to the reduced
    axes: the other reduction axes are iteration axes there. It starts at the neutral element. ``tv`` keeps its iteration axes, the other
    reduction axes, its start value, and what was made from them; its root domain is the new tensor's logical domain. Where terms start late or end early, so do
    the parts that have terms, and, if a start or an end lies inside a part, the terms of the new tensor.

    Raises:
        ScheduleError: if ``tv`` is not a reduction or is a rescaled sum, ``axes`` are not some but not all of its reduction axes, an axis derives from a
            foreign one, or loops are shared already.
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
    if definition.rescaled is not None:
        raise call.error("it is a rescaled sum, whose steps have an order", "rfactor before cascade")
    needed, begins = ancestors(old.transforms, (*selected, *tv.logical))
    for a in begins:
        if a.is_foreign:
            raise call.error(f"a reduction axis derives from a foreign axis of extent {a.extent}", "rfactor before propagate")
    frontier = expand(tv.root, needed)
    left = tuple(a for a in frontier if a not in selected)
    starts, ends = (_of_parts(call, bounds, needed, selected, left, is_end=bounds is definition.ends) for bounds in (definition.starts, definition.ends))
    producer = _producer(tv, replace(definition, starts=starts.inside, ends=ends.inside), selected, frontier)
    dropped = set(needed)
    tv.root = left
    old.transforms = [t for t in old.transforms if t not in dropped]
    old.loop = [a for a in old.loop if a not in selected]
    for a in selected:
        old.ptypes.pop(a, None)
    point = iteration_point(len(tv.root))
    joined = Reduction(tv, definition.combine, ELEMENTWISE["copy"], (Read(producer, point),), definition.init, definition.location)
    fusion.define(replace(joined, starts=starts.of_parts, ends=ends.of_parts))
    join_task(producer, tv)
    return producer


class _Bounds(NamedTuple):
    """Bounds of terms, by positions of axes: those inside the parts, and those of which parts have terms."""

    inside: tuple[tuple[int, Expr], ...]
    of_parts: tuple[tuple[int, Expr], ...]


def _of_parts(
    call: Call, bounds: Sequence[tuple[int, Expr]], needed: Sequence[Transform], selected: Collection[Axis], left: Sequence[Axis], *, is_end: bool
) -> _Bounds:
    """Bounds of the terms of a reduction in two steps: where they divide a split axis between parts, there are none inside these."""
    root, facts = call.tv.root, call.tv.fusion.facts()
    at: dict[str, Expr] = {}
    for p, a in enumerate(root):
        if a in left:
            at[str(iteration_symbol(p))] = iteration_symbol(left.index(a))
            facts = facts.with_range(str(iteration_symbol(left.index(a))), 0, a.extent - 1)
    inside, of_parts = list[tuple[int, Expr]](), list[tuple[int, Expr]]()
    for k, bound in bounds:
        names = {str(iteration_symbol(p)) for p in range(len(root))} & bound.free
        split = next((t for t in needed if isinstance(t, Split) and t.source is root[k]), None)
        said = substitute(bound, at) if names <= at.keys() else None
        if root[k] in left:
            if said is None:
                raise call.error(f"terms {'end' if is_end else 'start'} at {bound}, which depends on an axis that is split", "rfactor before that split")
            of_parts.append((left.index(root[k]), said))
        elif said is not None and split is not None and split.inner in selected and split.outer in left:
            size = split.inner.extent
            of_parts.append((left.index(split.outer), simplify(pieces(said, size, up=is_end), facts)))
            if not all(is_multiple(e, size, facts) for e in (said.args if isinstance(said, Min | Max) else (said,))):
                inside.append((k, bound))
        else:
            inside.append((k, bound))
    return _Bounds(tuple(inside), tuple(sorted(of_parts, key=lambda found: found[0])))


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
    tv.fusion.define(replace(definition, output=new, init=neutral))
    return new
