"""The search for parameters by measurement, with a clock of our own in place of a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import UnsupportedError
from taskfuse.runtime.executable import Executable
from taskfuse.schedulers import Chosen, MatmulConfig, Option, Trial, Tuned, matmul, tune
from taskfuse.schedulers.script import Script
from taskfuse.target import DEFAULT, Target

TIMES = {32: 7.0, 64: 3.0, 128: 5.0, 256: 4.0}
"""Microseconds by threads of a block."""


@dataclass(frozen=True)
class Threads:
    """Parameters of :func:`by_threads`."""

    threads: int

    @property
    def words(self) -> str:
        return f"{self.threads} threads"


def by_threads(fusion: tf.Fusion, config: Threads | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Chosen[Threads]:
    """One axis over blocks and threads; the model takes more threads to be better."""
    options = tuple(Option(Threads(t), 1000.0 / t) for t in (256, 128, 64, 32))
    chosen = config or options[0].config
    if chosen.threads > 1024:
        raise UnsupportedError(what="this schedule", reason=f"a block has 1024 threads, not {chosen.threads}", help="use fewer")
    script = Script(fusion)
    call = script.on(fusion.outputs[0]).split(0, chosen.threads)
    call.bind(0, P.BIDx)
    call.bind(1, P.TIDx)
    return Chosen("by_threads", fusion.name, Option(chosen, 1000.0 / chosen.threads), options, config is not None, script.text)


class Clock:
    """Knows how long each block size takes, and remembers what it was asked. ``stops_at``: the measurement in which somebody ends the program."""

    def __init__(self, stops_at: int | None = None) -> None:
        self.asked: list[tuple[int, ...]] = []
        self._stops_at = stops_at

    def __call__(self, calls: Sequence[Executable], args: Sequence[Any], rounds: int) -> list[float]:
        threads = tuple(call.kernel.launch_shape().block[0] for call in calls)
        if len(self.asked) == self._stops_at:
            raise KeyboardInterrupt
        self.asked.append(threads)
        return [TIMES[t] for t in threads]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKFUSE_CACHE_DIR", str(tmp_path))


def fusion() -> tf.Fusion:
    with tf.Fusion("twice") as found:
        found.add_output(tf.define_tensor([1024], dtype=tf.float32, name="x") * 2.0)
    return found


X = np.ones(1024, np.float32)


def search(clock: Clock, **more: Any) -> Tuned:
    return tune(fusion(), X, scheduler=by_threads, timer=clock, **more)


def test_the_fastest_is_taken_in_the_order_of_the_model() -> None:
    clock = Clock()
    seen: list[tuple[Trial, int, int]] = []

    def noted(trial: Trial, done: int, of: int) -> None:
        seen.append((trial, done, of))

    tuned = search(clock, progress=noted)
    assert clock.asked == [(256,), (128,), (64,), (32,), (64, 256, 128)]
    assert [t.config for t in tuned.trials] == [Threads(t) for t in (64, 256, 128, 32)]
    assert tuned.schedule.config == Threads(64)
    assert tuned.left == 0
    assert [(t.config, done, of) for t, done, of in seen] == [(Threads(t), k + 1, 4) for k, t in enumerate((256, 128, 64, 32))]
    np.testing.assert_array_equal(tf.compile(tuned.fusion)(X)[0], X * 2)
    assert tuned.explain().splitlines() == [
        "by_threads: 4 candidates measured, 0 do not run, 0 left out",
        "",
        "     us  expected  parameters",
        "    3.0      15.6  Threads(threads=64)",
        "    4.0       3.9  Threads(threads=256)",
        "    5.0       7.8  Threads(threads=128)",
        "    7.0      31.2  Threads(threads=32)",
    ]


def test_a_search_that_ended_costs_nothing() -> None:
    search(Clock())
    clock = Clock()
    assert search(clock).schedule.config == Threads(64)
    assert clock.asked == []
    assert search(clock, remember=False).schedule.config == Threads(64)
    assert len(clock.asked) == 5


def test_a_search_that_was_stopped_goes_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        search(Clock(stops_at=2))
    clock = Clock()
    assert search(clock).schedule.config == Threads(64)
    assert clock.asked == [(64,), (32,), (64, 256, 128)]


def test_other_shapes_are_another_search() -> None:
    search(Clock())
    with tf.Fusion("twice") as other:
        other.add_output(tf.define_tensor([2048], dtype=tf.float32, name="x") * 2.0)
    clock = Clock()
    tune(other, np.ones(2048, np.float32), scheduler=by_threads, timer=clock)
    assert len(clock.asked) == 5


def test_the_budget_ends_the_search() -> None:
    clock = Clock()
    tuned = search(clock, seconds=0.0)
    assert clock.asked == [(256,)]
    assert (tuned.schedule.config, tuned.left) == (Threads(256), 3)
    assert search(clock).schedule.config == Threads(64)
    assert clock.asked == [(256,), (128,), (64,), (32,), (64, 256, 128)]


def test_candidates_that_do_not_run_are_told() -> None:
    tuned = search(Clock(), configs=[Threads(4096), Threads(32)])
    assert tuned.schedule.config == Threads(32)
    assert [(t.config, t.us) for t in tuned.trials] == [(Threads(32), 7.0), (Threads(4096), None)]
    assert "a block has 1024 threads, not 4096" in tuned.trials[1].reason


def test_what_cannot_be_searched() -> None:
    with pytest.raises(UnsupportedError, match=r"all 1 candidates fail: .*a block has 1024 threads, not 2048"):
        search(Clock(), configs=[Threads(2048)])
    with pytest.raises(UnsupportedError, match="configs= is empty"):
        search(Clock(), configs=[])
    scheduled = fusion()
    scheduled.outputs[0].split(0, 32)
    with pytest.raises(UnsupportedError, match="it has a schedule already"):
        tune(scheduled, X, scheduler=by_threads, timer=Clock())
    with pytest.raises(UnsupportedError, match="its arguments are on the host"):
        tune(fusion(), X, scheduler=by_threads)


def test_the_scheduler_that_takes_the_fusion() -> None:
    tuned = tune(fusion(), X, timer=lambda calls, args, rounds: [float(call.kernel.launch_shape().block[0]) for call in calls])
    assert tuned.schedule.scheduler == "pointwise"
    assert len(tuned.trials) > 1
    assert tuned.schedule.config == tuned.trials[0].config
    np.testing.assert_array_equal(tf.compile(tuned.fusion)(X)[0], X * 2)


def test_a_matmul() -> None:
    """A real scheduler: its parameters, its cost model, its refusals."""
    with tf.Fusion("product") as product:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16, name=name) for name in "ab")
        product.add_output(tf.cast(tf.matmul(a, b.T, dtype=tf.float32), tf.bfloat16))
    small = MatmulConfig(64, 64, 64, 1, 2, 1, 1, 2)
    deeper, too_deep = MatmulConfig(64, 64, 64, 1, 3, 1, 1, 2), MatmulConfig(64, 64, 64, 1, 64, 1, 1, 2)
    args = [np.ones((64, 64), ml_dtypes.bfloat16)] * 2

    def timer(calls: Sequence[Executable], args: Sequence[Any], rounds: int) -> list[float]:
        return [9.0 - 0.5 * str(call.kernel).count("full[3]") for call in calls]

    tuned = tune(product, *args, scheduler=matmul, configs=[small, deeper, too_deep], timer=timer)
    assert [(t.config, t.us is None) for t in tuned.trials] == [(deeper, False), (small, False), (too_deep, True)]
    assert "Shared memory" in tuned.trials[-1].reason
