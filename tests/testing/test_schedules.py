"""Random schedules: each call does what its name says, and is written down."""

from collections.abc import Callable
from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse.ir.axes import Split
from taskfuse.ir.scalar import evaluate
from taskfuse.ir.types import MemoryType
from taskfuse.testing.options import USUAL, CaseOptions
from taskfuse.testing.program import Recorder
from taskfuse.testing.schedules import CaseScheduler
from tests.testing.choosers import Highest

OPTIONS = replace(USUAL, caches=100, rows=100, rfactors=100, nests=100, memory=100, transforms=100)


def scheduled(call: str, options: CaseOptions = OPTIONS) -> Recorder:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [8, 12])
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "sum", recorder.call(tf, "exp", x), 1))
    scheduler = CaseScheduler(Highest(), options, recorder, lambda e: int(evaluate(e, {})))
    getattr(scheduler, call)()
    assert str(recorder.program().run()) == str(recorder.fusion)
    return recorder


def has_copies(fusion: tf.Fusion) -> bool:
    return len(fusion.tensors()) > 3


def is_shared(fusion: tf.Fusion) -> bool:
    return any(tv.schedule.memory is MemoryType.Shared and tv.origin is not None for tv in fusion.tensors())


def has_two_reductions(fusion: tf.Fusion) -> bool:
    return sum(any(a.is_reduction for a in tv.root) for tv in fusion.tensors()) == 2


def is_split_more_than_once(fusion: tf.Fusion) -> bool:
    return any(sum(isinstance(t, Split) for t in tv.schedule.transforms) > 1 for tv in fusion.tensors())


def has_memory_types(fusion: tf.Fusion) -> bool:
    return any(tv.schedule.memory is not None for tv in fusion.tensors())


@pytest.mark.parametrize(
    ("call", "holds"),
    [
        ("cache", has_copies),
        ("rows", is_shared),
        ("rfactor", has_two_reductions),
        ("loops", is_split_more_than_once),
        ("memory", has_memory_types),
    ],
)
def test_calls(call: str, holds: Callable[[tf.Fusion], bool]) -> None:
    assert holds(scheduled(call).fusion)
    none = replace(OPTIONS, caches=0, copies=0, rows=0, rfactors=0, nests=0, persistent=0, transforms=0, memory=0)
    assert not holds(scheduled(call, none).fusion)
