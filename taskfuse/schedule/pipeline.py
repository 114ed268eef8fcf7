"""Software pipelining of a loop, and turns of the instances that run it."""

from __future__ import annotations

from typing import SupportsIndex

from taskfuse.errors import shown
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.schedule.call import Call


def pipeline_stage(tv: TensorView, stage: object) -> None:
    """See :meth:`TensorView.pipeline_stage`."""
    call = Call("pipeline_stage", tv)
    call.check_storage()
    if not isinstance(stage, SupportsIndex) or not 0 <= stage.__index__() <= 1:
        raise call.error(f"{shown(stage)} is not a stage", "use 1 for code that runs one trip behind, 0 for other code")
    _check_code(call)
    tv.schedule.pipeline_stage = stage.__index__()


def take_turns(tv: TensorView, ptype: object) -> None:
    """See :meth:`TensorView.take_turns`."""
    call = Call("take_turns", tv)
    call.check_storage()
    if not isinstance(ptype, ParallelType) or not ptype.is_thread:
        raise call.error(f"{shown(ptype)} is not a thread index type", f"use {', '.join(f'ParallelType.{p.value}' for p in THREAD_TYPES)}")
    _check_code(call)
    tv.schedule.turns = ptype


def _check_code(call: Call) -> None:
    if call.tv.is_input:
        raise call.error("an input has no code", f"use a tensor that is computed, such as {call.tv.name}.cache_after()")
