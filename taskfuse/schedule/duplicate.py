"""duplicate: a tensor computed a second time, for some of its readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from taskfuse.ir.axes import axis
from taskfuse.ir.expr import Assemble
from taskfuse.ir.storage import with_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.location import caller
from taskfuse.schedule.caching import join_task
from taskfuse.schedule.call import Call


def duplicate(tv: TensorView, readers: Sequence[TensorView]) -> TensorView:
    """See :meth:`TensorView.duplicate`. The new tensor has the definition of ``tv`` and no schedule yet. It joins the task of ``tv``.

    What is cheap to compute, or to read, need not be kept from its first reader to its last, nor travel from one role to another.

    Raises:
        ScheduleError: ``tv`` is an input, an assembly of parts, has been split by ``rfactor``, or is inlined; a reader does not read it; or no reader is left.
        TaskError: if a law of tasks and groups is broken.
    """
    call = Call("duplicate", tv)
    fusion = tv.fusion
    definition = fusion.definition(tv)
    if definition is None:
        raise call.error("an input has no definition", f"{tv.name}.cache_after().duplicate(...) reads it a second time")
    if isinstance(definition, Assemble):
        raise call.error("it is made of its parts, which have one place each", "duplicate the parts")
    if [a for a in tv.root if not a.is_reduction] != list(tv.logical):
        raise call.error("rfactor made it, or took a part of it", "duplicate it before rfactor")
    call.check_not_inlined()
    fusion.check()
    chosen = _chosen(call, readers)
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
        raise call.error("all of its readers are given: it would be computed for nobody", "leave out one of them")
    return chosen
