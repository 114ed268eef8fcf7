"""cache_after, cache_before, cache_fork: a copy of a tensor between it and its readers, between its definition and it, or between both and it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.errors import TaskError
from taskfuse.ir.axes import Axis, axis, iteration_point
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, MathExpr, Pointwise, Read
from taskfuse.ir.storage import with_reads
from taskfuse.ir.tensor import TensorSchedule, TensorView
from taskfuse.location import caller
from taskfuse.schedule.call import Call
from taskfuse.schedule.replay import ancestors, replay


def cache_after(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.cache_after`. The copy has no schedule yet. It joins the task of ``tv``; that of the first reader for an input.

    Raises:
        ScheduleError: if nothing reads ``tv``, or it is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_after", tv)
    fusion = tv.fusion
    uses = tv.uses
    if not uses:
        raise call.error("nothing reads it", f"{tv.name}.cache_before() puts a copy in front of it" if not tv.is_input else None)
    call.check_not_inlined()
    fusion.check()
    copy = fusion.new_tensor([axis(e) for e in tv.shape], tv.dtype, location=caller(), origin=tv)
    fusion.define(copy_of(tv, copy))
    for use in uses:
        fusion.define(with_reads(use, tv, copy))
    if tv.is_input:
        _follow_a_reader(copy)
    else:
        join_task(copy, tv)
    return copy


def cache_before(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.cache_before`. The new tensor takes over the schedule of the computation, ``tv`` keeps its memory.

    Without reductions, the loop transforms and their index types are replayed on ``tv``.

    Raises:
        ScheduleError: if ``tv`` is an input, or is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_before", tv)
    if tv.definition is None:
        raise call.error("an input has no definition", f"{tv.name}.cache_after() copies it for its readers")
    return _taken_over(call, ())


def cache_fork(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.cache_fork`. Schedules, memory and task are as after :func:`cache_before`.

    Raises:
        ScheduleError: if ``tv`` is no output, nor part of one, nothing reads it, or it is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_fork", tv)
    readers = [use for use in tv.uses if not isinstance(use, Assemble)]
    if tv.is_input or not (tv.is_output or len(readers) < len(tv.uses)):
        raise call.error("it is no output")
    if not readers:
        raise call.error("nothing reads it", f"{tv.name}.cache_before() puts a copy in front of it")
    return _taken_over(call, readers)


def _taken_over(call: Call, readers: Sequence[MathExpr]) -> TensorView:
    """A tensor with the definition and the schedule of the call's tensor, which becomes its copy; ``readers`` read the new one."""
    tv, fusion = call.tv, call.tv.fusion
    definition = fusion.definition(tv)
    assert definition is not None
    call.check_not_inlined()
    fusion.check()
    old = tv.schedule
    new = fusion.new_tensor(tv.root, tv.dtype, logical=tv.logical, location=caller(), origin=tv)
    new.schedule = TensorSchedule(old.loop, old.transforms, dict(old.ptypes), atom=old.atom, atom_axes=old.atom_axes)
    mapping: dict[Axis, Axis] = {a: axis(a.extent) for a in tv.logical}
    root = tuple(mapping[a] for a in tv.logical)
    foreign = [a for a in _starts(old) if a.is_foreign]
    mapping.update({a: axis(a.extent, a.kind, a.source) for a in foreign})
    transforms = replay(old.transforms, mapping)
    loop = [mapping[a] for a in old.loop] if all(a in mapping for a in old.loop) else list(root)
    allocation = None if old.allocation is None else tuple(mapping[a] for a in old.allocation)
    transforms, _ = ancestors(transforms, (*loop, *(allocation or ())))
    present = {*loop, *(allocation or ())}
    ptypes = {mapping[a]: p for a, p in old.ptypes.items() if mapping.get(a) in present and not p.is_atom}
    tv.root, tv.logical = root, root
    tv.schedule = TensorSchedule(loop, transforms, ptypes, memory=old.memory, allocation=allocation, stages=old.stages)
    fusion.define(replace(definition, output=new))
    fusion.define(copy_of(new, tv))
    for use in readers:
        fusion.define(with_reads(use, tv, new))
    join_task(new, tv)
    return new


def copy_of(source: TensorView, output: TensorView) -> Pointwise:
    """The expression that makes ``output`` a copy of ``source``."""
    return Pointwise(output, ELEMENTWISE["copy"], (Read(source, iteration_point(source.ndim)),), output.location)


def _starts(schedule: TensorSchedule) -> list[Axis]:
    """The axes that the schedule's axes derive from."""
    made = {a for t in schedule.transforms for a in t.outputs}
    return list(dict.fromkeys(a for group in (*(t.inputs for t in schedule.transforms), schedule.loop) for a in group if a not in made))


def join_task(new: TensorView, tv: TensorView) -> None:
    """Let ``new``, made from ``tv``, lie in the task of ``tv``."""
    if tv.task is not None:
        tv.task.add(new)
    else:
        new.fusion.set_owner(new, tv)


def _follow_a_reader(copy: TensorView) -> None:
    """Let the copy of an input lie in the task of its first reader, in an order in which producers come first, that leaves the tasks convex.

    There is one: a reader whose task depends on no other reader's.
    """
    fusion = copy.fusion
    for expr in fusion.exprs():
        if expr not in copy.uses:
            continue
        fusion.set_owner(copy, expr.output)
        try:
            fusion.check()
        except TaskError:
            continue
        return
