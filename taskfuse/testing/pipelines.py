"""Random software pipelines and turns, in loops of schedules that lower.

Which tensors may run a trip behind follows from the loops that tensors share: those that read a tensor in its loop, and those that read them there. Lowering
decides: a copy of the fusion is lowered first, and where an error says which other tensor belongs to a stage, that one is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from taskfuse.errors import LoweringError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import has_code, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType
from taskfuse.kir import Kernel
from taskfuse.lowering import LoweringOptions, lower
from taskfuse.schedule.copy import copy_fusion
from taskfuse.testing.chooser import Chooser
from taskfuse.testing.program import Recorder

TRIES = 4
"""Tensors at which a pipeline or turns are tried."""
STEPS = 3
"""Errors whose advice is followed."""
ADVICE = re.compile(r"(\w+)\.pipeline_stage\(1\)")


def run_behind(chooser: Chooser, recorder: Recorder) -> Kernel | None:
    """Let the readers of a tensor that shares loops run one trip behind it. Returns the kernel; ``None`` if lowering refuses what was tried."""
    fusion = recorder.fusion
    for tv in chooser.order([tv for tv in _computed(fusion) if tv.schedule.inline])[:TRIES]:
        late = _behind(fusion, _readers(fusion, tv))
        for _ in range(STEPS):
            error = _refusal(fusion, [tv.name for tv in late], lambda x: x.pipeline_stage(1))
            if error is None:
                return _made(recorder, late, "pipeline_stage", 1)
            advised = ADVICE.fullmatch(error.help or "")
            other = None if advised is None else fusion.tensor(advised[1])
            if other is None or other.is_input or among(other, late):
                break
            late = _behind(fusion, [*late, other])
    return None


def take_turns(chooser: Chooser, recorder: Recorder) -> Kernel | None:
    """Let the instances of some code in a shared loop take turns. Returns the kernel; ``None`` if lowering refuses what was tried."""
    fusion = recorder.fusion
    for tv in chooser.order([tv for tv in _computed(fusion) if tv.schedule.inline])[:TRIES]:
        types = _instances(fusion, tv)
        if not types:
            continue
        ptype = chooser.pick(types)
        taking = [tv, *chooser.some([x for x in _behind(fusion, _readers(fusion, tv)) if ptype in _instances(fusion, x)], 30)]
        for given in (taking, [tv]) if len(taking) > 1 else (taking,):
            if _refusal(fusion, [x.name for x in given], lambda x, p=ptype: x.take_turns(p)) is None:
                return _made(recorder, given, "take_turns", ptype)
    return None


def _made(recorder: Recorder, tensors: Iterable[TensorView], call: str, argument: object) -> Kernel:
    for tv in tensors:
        recorder.call(tv, call, argument)
    return lower(recorder.fusion, LoweringOptions(verify=False))


def _refusal(fusion: Fusion, names: Sequence[str], call: Callable[[TensorView], object]) -> LoweringError | None:
    """Why lowering refuses a fusion with a call on some tensors; other errors propagate, also those of lowering it twice."""
    tried, _ = copy_fusion(fusion)
    for name in names:
        call(tried.tensor(name))
    try:
        lower(tried, LoweringOptions(verify=False))
    except LoweringError as error:
        return error
    return None


def _computed(fusion: Fusion) -> list[TensorView]:
    return [e.output for e in fusion.exprs() if has_code(fusion, e)]


def _readers(fusion: Fusion, tv: TensorView) -> list[TensorView]:
    return list(dict.fromkeys(use.output for use in storage_uses(fusion, tv) if has_code(fusion, use)))


def _behind(fusion: Fusion, tensors: Iterable[TensorView]) -> list[TensorView]:
    """Tensors, and those that read them in loops that they share."""
    found: dict[TensorView, None] = {}
    left = list(tensors)
    while left:
        tv = left.pop(0)
        if tv not in found:
            found[tv] = None
            left += _readers(fusion, tv) if tv.schedule.inline else []
    return list(found)


def _instances(fusion: Fusion, tv: TensorView) -> list[ParallelType]:
    """The thread index types on which the role of a tensor has a constant number of instances, two or more."""
    home = fusion.tasks.home(tv)
    mates = [x for x in _computed(fusion) if fusion.tasks.home(x) is home]
    bound = [(x.schedule.ptype(a), a.extent) for x in mates for a in x.loop]
    return list(dict.fromkeys(p for p, e in bound if p.is_thread and isinstance(e, Const) and e.value > 1))
