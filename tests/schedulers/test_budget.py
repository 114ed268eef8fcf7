"""Budgets: a search is bounded by its work, so that it finds the same on most machines, and by the seconds of the processor on all of them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import thread_time

import pytest

import taskfuse as tf
from taskfuse.deadline import DeadlineError, checkpoint
from taskfuse.schedulers import budget
from taskfuse.schedulers.budget import Budget, Ended, Work
from taskfuse.schedulers.schedule import Schedule
from taskfuse.schedulers.segmenter import choose_segments
from tests.schedulers.tried import built


def layer() -> list[tf.TensorView]:
    """A product, and sums along both axes of a function of it: several kernels, found by several searches."""
    x, w = (tf.define_tensor(s, dtype=tf.bfloat16, name=n) for s, n in (([256, 64], "x"), ([64, 64], "w")))
    h = tf.exp(x) @ w
    return [tf.sum(tf.reshape(h, [128, 128]), 0), tf.sum(h, 1)]


class Clock:
    """Seconds that pass from one question to the next."""

    def __init__(self, steps: Iterator[float]) -> None:
        self.steps = steps
        self.now = 0.0

    def __call__(self) -> float:
        self.now += next(self.steps)
        return self.now


def steps(each: float) -> Iterator[float]:
    while True:
        yield each


def test_work_is_spent_by_count_and_size() -> None:
    spent = Budget(Work.MADE.each + 3 * Work.MADE.size, Clock(steps(0.0)))
    spent.spend(Work.MADE, 2)
    assert not spent.is_spent
    spent.spend(Work.MADE, 1)
    assert spent.is_spent
    assert spent.ended is Ended.WORK


def test_a_spent_budget_is_extended_once() -> None:
    """By a part of its seconds, of work and of the processor; what ended it is remembered."""
    made = Budget(10.0, Clock(steps(0.0)))
    assert not made.extend()
    made.spend(Work.MADE, 10**4)
    assert made.is_spent
    assert made.extend()
    assert not made.is_spent
    made.spend(Work.MADE, 10**3)
    assert made.is_spent
    assert not made.extend()
    assert made.extended is Ended.WORK
    late = Budget(1.0, Clock(steps(0.28)))
    assert [late.is_spent for _ in range(4)][-1]
    assert late.extend()
    assert not late.is_spent
    assert late.is_spent
    assert late.ended is late.extended is Ended.CLOCK


def test_seconds_of_the_processor_are_spent_whatever_was_counted() -> None:
    late = Budget(2.0, Clock(steps(0.9)))
    assert not late.is_spent
    assert not late.is_spent
    assert late.why_spent is Ended.CLOCK
    late.spend(Work.MADE, 10**9)
    assert late.why_spent is Ended.CLOCK, "what ended it first is what ended it"


def test_a_part_is_for_the_kernels_that_are_made_at_the_end() -> None:
    small, large = (Budget(10.0, Clock(steps(0.0)), tensors=n) for n in (100, 10**6))
    for one, left in ((small, 10.0 - Work.MADE.size * 100), (large, 7.5)):
        one.spend(Work.MADE, int((left - 0.1) / Work.MADE.size))
        assert not one.is_spent
        one.spend(Work.MADE, int(0.2 / Work.MADE.size))
        assert one.is_spent


def test_alternatives_are_given_up_when_it_is_spent() -> None:
    ample, spent = Budget(1.0, Clock(steps(0.0))), Budget(0.0, Clock(steps(0.0)))
    with ample.limit():
        checkpoint()
    with pytest.raises(DeadlineError), spent.limit():
        checkpoint()
    checkpoint()


@pytest.mark.parametrize("seconds", [0.05, 10.0])
def test_a_search_finds_the_same_however_slow_the_clock_says_the_machine_is(seconds: float) -> None:
    """With all the work it wants, and where the work that it may do ends it early."""
    found = [choose_segments(built(layer), budget=Budget(seconds, Clock(steps(each)))) for each in (0.0, seconds / 1e4)]
    assert len({segmentation.code for segmentation in found}) == 1
    assert [segmentation.ended for segmentation in found] == 2 * [Ended.WORK if seconds < 1 else None]


def test_what_has_ended_a_search_is_said_and_what_it_found_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TASKFUSE_CACHE_PLANS")
    asked: list[float] = []

    def compiled(each: float, seconds: float = 10.0) -> Schedule:
        clock = Clock(steps(each))
        asked.clear()
        monkeypatch.setattr(budget, "thread_time", lambda: asked.append(clock()) or clock.now)
        run = tf.compile(built(layer), backend="sim", budget=seconds)
        assert run.schedule is not None
        return run.schedule

    hurried = compiled(1e6, 9.0)
    assert "ended at its budget of processor seconds" in hurried.explain()
    assert compiled(0.0, 9.0).code == hurried.code
    assert not asked, "a search that was ended is not searched again with the same budget"
    whole = compiled(0.0)
    assert "ended" not in whole.explain(), "with another one it is"
    assert whole.us <= hurried.us
    assert compiled(0.0).code == whole.code
    assert not asked
    short = compiled(0.0, 0.0)
    assert "ended at its budget of work" in short.explain()


@pytest.mark.parametrize("seconds", [0.2, 0.6])
def test_a_search_takes_little_longer_than_its_budget(seconds: float) -> None:
    """What it found is made at the end, in the part of the seconds that is for that, or a little more."""
    begun = thread_time()
    tf.compile(built(layer), backend="sim", budget=seconds, cache=False)
    assert thread_time() - begun < seconds + 1.0


def test_every_process_finds_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of names and of objects have another order in each process: no search may follow it."""
    script = "from tests.schedulers.test_budget import *; print(choose_segments(built(layer), budget=Budget(0.05, lambda: 0.0)).code)"
    found: list[str] = []
    for seed in "12":
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.append(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)
    assert "tf.segment" in found[0]
    assert found[0] == found[1]


def test_a_share_leaves_the_rest() -> None:
    budget = Budget(1.0, lambda: 0.0)
    with budget.share(0.25):
        while not budget.is_spent:
            budget.spend(Work.MADE, 1)
        assert budget.why_spent is Ended.WORK
    assert budget.why_spent is None
    with budget.share(0.5):
        assert not budget.is_spent
    budget.spend(Work.MADE, 1000)
    assert budget.is_spent
