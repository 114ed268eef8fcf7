"""Copies of a tensor: between it and its readers (cache_after), between its definition and it (cache_before), between both and it (cache_fork);
and a second computation for some of its readers (duplicate).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.errors import TaskError
from taskfuse.ir.axes import Axis, axis, iteration_point
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.expr import Assemble, MathExpr, Operand, Pointwise, Read, Update, View, reads
from taskfuse.ir.storage import storage_operands, storage_uses, with_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.tensor_schedule import TensorSchedule
from taskfuse.location import caller
from taskfuse.schedule.call import Call
from taskfuse.schedule.replay import ancestors, replay


def cache_after(tv: TensorView, reader: TensorView | None = None, operand: int | None = None) -> TensorView:
    """See :meth:`TensorView.cache_after`. The copy has no schedule yet. It joins the task of ``tv``; that of the first reader for an input.

    Raises:
        ScheduleError: if nothing reads ``tv``, ``reader`` or its ``operand`` does not, it is an update or what ``reader`` updates, or it is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_after", tv)
    fusion = tv.fusion
    if reader is not None or operand is not None:
        return _copy_for(call, reader, operand)
    uses = tv.uses
    if not uses:
        raise call.error("no expression reads it", f"{tv.name}.cache_before() puts a copy in front of it" if not tv.is_input else None)
    call.check_no_update()
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


def _copy_for(call: Call, reader: TensorView | None, operand: int | None) -> TensorView:
    """A copy of the storage of ``call.tv`` that only operands of ``reader`` read, also those that read it through views."""
    tv, fusion = call.tv, call.tv.fusion
    if reader is None:
        raise call.error(f"operand {operand} is given without its reader", "give reader= as well")
    call.readers([reader], [use.output for use in storage_uses(fusion, tv)])
    definition = fusion.definition(reader)
    assert definition is not None
    if isinstance(definition, Assemble | View):
        raise call.error(f"{reader.name} has no operands: it only maps the elements of other tensors", "name what reads the result")
    call.check_not_inlined()
    fusion.check()
    found = storage_operands(fusion, definition)
    places = [k for k, o in enumerate(found) if isinstance(o, Read) and o.tensor is tv and not (k == 0 and isinstance(definition, Update))]
    if not places:
        call.check_not_updated([reader])
    if operand is not None and operand not in places:
        raise call.error(f"operand {operand} of {reader.name} is another tensor", f"it is at {', '.join(map(str, places))}")
    copy = fusion.new_tensor([axis(e) for e in tv.shape], tv.dtype, location=caller(), origin=tv)
    fusion.define(copy_of(tv, copy))
    wanted = places if operand is None else [operand]
    operands = tuple(_moved(o, copy) if k in wanted else old for k, (o, old) in enumerate(zip(found, definition.operands, strict=True)))
    fusion.define(replace(definition, operands=operands))
    fusion.remove_unread([r.tensor for r in reads(definition)])
    if tv.is_input:
        fusion.set_owner(copy, reader)
    else:
        join_task(copy, tv)
    return copy


def _moved(operand: Operand, copy: TensorView) -> Operand:
    return Read(copy, operand.index, operand.valid) if isinstance(operand, Read) else operand


def cache_before(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.cache_before`. The new tensor takes over the schedule of the computation, ``tv`` keeps its memory.

    Without reductions, the loop transforms and their index types are replayed on ``tv``.

    Raises:
        ScheduleError: if ``tv`` is an input or an update, or is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_before", tv)
    if tv.definition is None:
        raise call.error("an input has no definition", f"{tv.name}.cache_after() copies it for its readers")
    call.check_no_update()
    return _taken_over(call, ())


def cache_fork(tv: TensorView) -> TensorView:
    """See :meth:`TensorView.cache_fork`. Schedules, memory and task are as after :func:`cache_before`.

    Raises:
        ScheduleError: if ``tv`` is not an output, nor part of one, nothing reads it, or it is inlined.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("cache_fork", tv)
    call.check_no_update()
    readers = [use for use in tv.uses if not isinstance(use, Assemble) and not (isinstance(use, Update) and use.target.tensor is tv)]
    if tv.is_input or not (tv.is_output or len(readers) < len(tv.uses)):
        raise call.error("it is not an output")
    if not readers:
        raise call.error("no expression reads it", f"{tv.name}.cache_before() puts a copy in front of it")
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
    tv.schedule = TensorSchedule(loop, transforms, ptypes, memory=old.memory, allocation=allocation, stages=old.stages, ring=old.ring)
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


def duplicate(tv: TensorView, readers: Sequence[TensorView]) -> TensorView:
    """See :meth:`TensorView.duplicate`. The new tensor has the definition of ``tv`` and no schedule yet. It joins the task of ``tv``.

    A tensor that is cheap to compute or to read need not be kept from its first reader to its last, nor passed from one role to another.

    Raises:
        ScheduleError: ``tv`` is an input, an update, an assembly of parts, has been split by ``rfactor``, or is inlined; a reader does not read it, or updates
            it; or no reader is left.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("duplicate", tv)
    fusion = tv.fusion
    definition = fusion.definition(tv)
    if definition is None:
        raise call.error("an input has no definition", f"{tv.name}.cache_after().duplicate(...) reads it a second time")
    if isinstance(definition, Assemble):
        raise call.error("it is assembled from parts, each of which has one place", "duplicate the parts")
    if [a for a in tv.root if not a.is_reduction] != list(tv.logical):
        raise call.error("rfactor made it, or took a part of it", "duplicate it before rfactor")
    call.check_no_update()
    call.check_not_inlined()
    fusion.check()
    chosen = _chosen(call, readers)
    call.check_not_updated(chosen)
    new = fusion.new_tensor([axis(a.extent, a.kind) for a in tv.root], tv.dtype, location=caller(), origin=tv)
    fusion.define(replace(definition, output=new))
    for use in tv.uses:
        if use.output in chosen:
            fusion.define(with_reads(use, tv, new))
    join_task(new, tv)
    return new


def _chosen(call: Call, readers: Sequence[TensorView]) -> set[TensorView]:
    uses = [use.output for use in call.tv.uses]
    chosen = set(call.readers(readers, uses))
    if len(chosen) == len(uses) and not call.tv.is_output:
        raise call.error("all of its readers are given, so the original would have no reader", "leave out one of them")
    return chosen
