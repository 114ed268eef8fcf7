"""How long kernels take: graphs of calls, replayed in turn."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from taskfuse.cuda import timing
from taskfuse.cuda.arrays import Kinds
from taskfuse.cuda.timing import CALLS, in_turn
from tests.cuda.fakes import FakeDriver


class Recording(FakeDriver):
    """A driver that records graphs: replayed, the k-th takes as long as its list says."""

    def __init__(self, times: list[list[float]]) -> None:
        super().__init__()
        self.times = [iter(found) for found in times]
        self.replayed: list[int] = []
        self.recorded: list[int] = []
        self.open = 0

    @contextmanager
    def captured(self, stream: int, record: Callable[[], object]) -> Generator[int]:
        self.recorded.append(stream)
        record()
        self.open += 1
        yield len(self.recorded) - 1
        self.open -= 1

    def replay(self, graph: int, stream: int) -> float:
        assert self.open == len(self.recorded)
        self.replayed.append(graph)
        return next(self.times[graph])


class Call:
    """What takes arrays, and says how it was called."""

    def __init__(self) -> None:
        self.outs: list[Any] = []

    def __call__(self, *args: Any, out: Any = None, stream: int) -> tuple[str, ...]:
        self.outs.append(out)
        return ("made",)


class OnGpu:
    """An array on the first GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def measured(monkeypatch: pytest.MonkeyPatch, times: list[list[float]], rounds: int) -> tuple[list[float], list[Call], Recording]:
    driver = Recording(times)
    found = Kinds(driver)
    monkeypatch.setattr(timing, "kinds", lambda: found)
    calls = [Call() for _ in times]
    return in_turn(calls, (OnGpu(), 2.0), rounds), calls, driver


def test_the_median_of_one_call_after_a_round_that_warms_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, _ = measured(monkeypatch, [[1e6, 10.0, 500.0, 30.0], [1e6, 7.0, 8.0, 9.0]], 3)
    assert found == [30.0 / CALLS, 8.0 / CALLS]


def test_graphs_are_replayed_in_turn_and_destroyed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, driver = measured(monkeypatch, [[1.0] * 3, [1.0] * 3], 2)
    assert driver.replayed == [0, 1, 0, 1, 0, 1]
    assert driver.open == 0
    assert driver.recorded == [0x0517, 0x0517]  # a stream of our own: a default stream is not captured


def test_outputs_are_made_before_anything_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    _, calls, driver = measured(monkeypatch, [[1.0, 1.0]], 1)
    assert calls[0].outs == [None, *[("made",)] * CALLS]
    assert driver.log == [("synchronize", 0x0517)]
