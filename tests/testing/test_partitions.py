"""Random tasks and groups: all tensors belong somewhere, groups are convex, and few enough threads are taken."""

from collections.abc import Callable
from dataclasses import replace

import taskfuse as tf
from taskfuse.ir.scalar import Expr, evaluate
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.testing import RandomChooser
from taskfuse.testing.options import USUAL
from taskfuse.testing.partitions import is_vertical, launched, parallelize, partition, readers
from taskfuse.testing.program import Recorder
from tests.testing.choosers import Lowest

SIZE: Callable[[Expr], int] = lambda e: int(evaluate(e, {}))  # noqa: E731


def branches() -> Recorder:
    """Two chains that share an input."""
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [8, 4])
    for op in ("sin", "cos"):
        recorder.call(recorder.fusion, "add_output", recorder.call(tf, "exp", recorder.call(tf, op, x)))
    return recorder


def test_readers_are_found_through_views() -> None:
    recorder = Recorder()
    y = recorder.call(tf, "exp", recorder.call(tf, "define_tensor", [8, 4]))
    z = recorder.call(tf, "sin", recorder.call(tf, "transpose", y))
    recorder.call(recorder.fusion, "add_output", z)
    assert readers(recorder.fusion) == {y: {z: None}, z: {}}


def test_every_tensor_has_a_task() -> None:
    kinds: set[bool] = set()
    for seed in range(30):
        recorder = branches()
        found = partition(RandomChooser(seed), replace(USUAL, unclaimed=0), recorder)
        assert {tv for task in found.tasks for tv in task.tensors} == set(readers(recorder.fusion))
        recorder.fusion.check()
        kinds |= {is_vertical(g) for g in found.groups}
        parallelize(RandomChooser(seed), replace(USUAL, groups=100, threads=4), recorder, found, SIZE)
        assert launched(recorder.fusion, THREAD_TYPES, SIZE) <= 4 or not any(g.ptype for g in found.groups)
    assert kinds == {True, False}


def test_nothing_is_claimed_where_all_stays_unclaimed() -> None:
    recorder = branches()
    assert partition(Lowest(), replace(USUAL, unclaimed=100), recorder).tasks == []


def test_threads_of_a_group_are_added_up() -> None:
    recorder = branches()
    fusion = recorder.fusion
    for tv in fusion.tensors()[1:]:
        tv.axis(0).parallelize(ParallelType.TIDx)
    one, two = (fusion.task(tensors) for tensors in ([*fusion.tensors()[1:3]], [*fusion.tensors()[3:]]))
    group = fusion.group([one, two])
    assert launched(fusion, THREAD_TYPES, SIZE) == 8
    assert launched(fusion, THREAD_TYPES, SIZE, (group, ParallelType.TIDx)) == 16
