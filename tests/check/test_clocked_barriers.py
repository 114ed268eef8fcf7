"""Barriers at which threads come together: all of them know then what each of them did."""

import pytest

from taskfuse.check.clocked_barriers import ClockedBarriers
from taskfuse.check.clocks import Clocks
from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.trace import Event, Trace
from taskfuse.kir.synchronization import Barrier
from tests.sim.kernels import kernel


def launched(body: str, block: str = "(4, 1, 1)") -> tuple[Clocks, ClockedBarriers, list[list[Event]]]:
    k = kernel(body, block=block)
    trace = Trace(k, {}, (0, 0, 0), WorkBudget())
    time = Clocks(k, [trace])
    return time, ClockedBarriers(time, trace.events, [0] * len(trace.events)), trace.events


def meet(barriers: ClockedBarriers, t: int, e: Event) -> bool:
    assert isinstance(e.stmt, Barrier)
    return barriers.meet(t, e, e.stmt.scope, e.values)


def test_the_last_one_lets_all_go_on() -> None:
    time, barriers, events = launched("SYNC block")
    time.tick(2)
    assert [meet(barriers, t, events[t][0]) for t in range(4)] == [False, False, False, True]
    assert meet(barriers, 0, events[0][0])
    assert [time.clocks[t, 2] >= 1 for t in range(4)] == [True] * 4


def test_two_barriers_of_a_block() -> None:
    _, barriers, events = launched("IF threadIdx.x < 2:\n  SYNC block\nELSE:\n  SYNC block")
    assert not meet(barriers, 0, events[0][0])
    with pytest.raises(Refuted, match="threads wait at two different barriers of the block"):
        meet(barriers, 3, events[3][0])


def test_named_barriers_of_different_counts() -> None:
    _, barriers, events = launched("IF threadIdx.x < 32:\n  SYNC named 1, 64\nELSE:\n  SYNC named 1, 32", "(64, 1, 1)")
    assert not meet(barriers, 0, events[0][0])
    with pytest.raises(Refuted, match="participants expect different numbers of threads"):
        meet(barriers, 40, events[40][0])


def test_a_warp_comes_whole() -> None:
    _, barriers, events = launched("IF threadIdx.x < 2:\n  SYNC warp")
    with pytest.raises(Refuted, match="2 of 4 lanes of a warp reach it") as caught:
        meet(barriers, 0, events[0][0])
    assert caught.value.subject == "SYNC warp"
