"""What is run to measure a product with what follows it, and when that is done."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from taskfuse.torch import measuring
from taskfuse.torch.measuring import Measurement, microseconds, random_like
from taskfuse.torch.partition import PartitionLimits, planned
from tests.torch.graphs import traced


def gate(x: Any, w: Any, v: Any) -> Any:
    return torch.sigmoid(x @ w) * (x @ v) + 1


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Any]]]:
    """The texts of fusions that are compiled, and their arguments in each call; nothing is computed."""
    found: list[tuple[str, list[Any]]] = []

    def compile(fusion: object, **arguments: object) -> Any:
        def run(*args: Any) -> None:
            found.append((str(fusion), [*args]))

        return run

    monkeypatch.setattr(measuring, "compile", compile)
    return found


def test_both_ways_are_run_once(ran: list[tuple[str, list[Any]]]) -> None:
    x, w = torch.empty(64, 48, dtype=torch.bfloat16).t(), torch.empty(64, 32, dtype=torch.bfloat16)
    limits = PartitionLimits("cpu", measure=Measurement({}))
    graph = traced(gate, x, w, w.clone()).graph
    for _ in range(2):
        planned(graph, limits)
    whole, rest = ran[0], ran[-1]
    assert whole[0].count("reduce add of mul") == 2
    assert "reduce" not in rest[0]
    assert [(a.shape, a.stride(), a.dtype) for a in whole[1]] == [((48, 64), (1, 48), x.dtype), ((64, 32), (32, 1), x.dtype), ((64, 32), (32, 1), x.dtype)]
    assert [a.shape for a in rest[1]] == [(48, 32)] * 2
    assert len(ran) == 4  # of each the first call, and a timed one


def test_symbols_are_not_measured(ran: list[tuple[str, list[Any]]]) -> None:
    gm = traced(gate, torch.empty(48, 64), torch.empty(64, 32), torch.empty(64, 32), symbolic=True)
    planned(gm.graph, PartitionLimits("cpu", measure=Measurement({})))
    assert not ran


def test_tensors_of_random_numbers() -> None:
    """The caller's generator is not asked."""
    before = torch.get_rng_state()
    for t in (torch.empty(3, 4).t(), torch.empty(3, 1).expand(3, 4), torch.empty(0, 3), torch.empty(()), torch.empty(2, 3, dtype=torch.float8_e4m3fn)):
        made = random_like(t)
        assert (made.shape, made.stride(), made.dtype) == (t.shape, t.stride(), t.dtype)
    assert not random_like(torch.ones(5, dtype=torch.int64)).any()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_takes_time() -> None:
    calls: list[int] = []
    assert microseconds(lambda: calls.append(1), torch.device("cpu")) > 0
    assert calls == [1]
