"""Calls that compute tensors elsewhere: which one is tried follows from what the tensor is."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import TensorView
from taskfuse.testing import RandomChooser
from taskfuse.testing.program import Recorder
from taskfuse.testing.rewrites import rewrite
from tests.testing.choosers import Highest, Lowest


def concatenated(r: Recorder, x: TensorView) -> None:
    r.call(r.fusion, "add_output", r.call(tf, "cat", [x, r.call(tf, "exp", x)], 0))


def running(r: Recorder, x: TensorView) -> None:
    r.call(r.fusion, "add_output", r.call(tf, "cumsum", x, 0))


def total(r: Recorder, x: TensorView) -> None:
    r.call(r.fusion, "add_output", r.call(tf, "sum", x, 0))


def twice(r: Recorder, x: TensorView) -> None:
    y = r.call(tf, "exp", x)
    for op in ("sin", "cos"):
        r.call(r.fusion, "add_output", r.call(tf, op, y))


@pytest.mark.parametrize(
    ("build", "call"),
    [(concatenated, "scatter"), (running, "chunk_scan"), (total, "cut_reduction"), (twice, "through_view")],
)
def test_each_kind_has_its_call(build: Callable[[Recorder, TensorView], None], call: str) -> None:
    recorder = Recorder()
    build(recorder, recorder.call(tf, "define_tensor", [12]))
    rewrite(Highest(), recorder, 100)
    assert recorder.made[call] + recorder.refused[call] > 0
    assert str(recorder.program().run()) == str(recorder.fusion)


def test_reductions_are_divided_in_every_way() -> None:
    made: set[str] = set()
    for seed in range(30):
        recorder = Recorder()
        total(recorder, recorder.call(tf, "define_tensor", [12]))
        rewrite(RandomChooser(seed), recorder, 100)
        made |= {*recorder.made}
    assert {"chunk_reduction", "cut_reduction", "unroll_reduction"} <= made


def test_a_tensor_with_several_readers_is_computed_for_some_of_them() -> None:
    made: set[str] = set()
    for seed in range(20):
        recorder = Recorder()
        twice(recorder, recorder.call(tf, "define_tensor", [12]))
        rewrite(RandomChooser(seed), recorder, 100)
        made |= {*recorder.made}
    assert {"duplicate", "recompute"} <= made


def test_none_without_a_share() -> None:
    recorder = Recorder()
    twice(recorder, recorder.call(tf, "define_tensor", [12]))
    lines = list(recorder.lines)
    rewrite(Highest(), recorder, 0)
    assert recorder.lines == lines


def test_readers_compute_it_themselves() -> None:
    recorder = Recorder()
    y = recorder.call(tf, "exp", recorder.call(tf, "define_tensor", [12]))
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "sin", y))
    rewrite(Lowest(), recorder, 100)
    assert recorder.made["recompute"] == 1
