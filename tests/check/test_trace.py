"""The events of a launch, thread by thread, in the order of the text."""

import numpy as np
import pytest

from taskfuse.check.refuted import Refuted, TooLarge, WorkBudget
from taskfuse.check.trace import Event, Trace
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute
from taskfuse.kir.synchronization import Barrier

TEXT = """\
KERNEL k(x: float32[N, 4], t: int32[4]) -> (y: float32[N, 4])
  DIM N
  GRID (2, 1, 1)  BLOCK (4, 1, 1)
  SHARED s: float32[2, 4] align 16

c = CURSOR(slots 2, slot 0, parity 0)
FOR i in threadIdx.x..N step 2:
  s[c.slot, threadIdx.x] = copy(x[i, threadIdx.x])
  c.advance(1)
IF threadIdx.x == 3:  # last
  s[0, 0] = copy(x[0, blockIdx.x])
SYNC block
"""


def traced(text: str = TEXT, n: int = 5, block: int = 1) -> list[list[Event]]:
    return Trace(parse_kernel(text), {"N": n}, (block, 0, 0), WorkBudget()).events


def test_each_thread_has_its_trips_and_its_slots() -> None:
    events = traced()
    stores = [[int(e.values[0]) for e in of if isinstance(e.stmt, Compute) and e.is_write] for of in events]
    assert stores == [[0, 4, 0], [1, 5], [2, 6], [3, 0]]
    assert [sum(isinstance(e.stmt, Barrier) for e in of) for of in events] == [1] * 4
    assert {e.role for e in events[3]} == {"", "last"}


def test_inputs_have_no_events() -> None:
    assert all(e.key == "s" for of in traced() for e in of if isinstance(e.stmt, Compute))


def test_what_is_outside_is_refuted() -> None:
    with pytest.raises(Refuted) as caught:
        traced(TEXT.replace("s[0, 0]", "s[0, N]"))
    assert (caught.value.subject, caught.value.reason) == ("s", "index 5 of axis 1 is outside 0..4")
    with pytest.raises(Refuted, match="the step of the loop over i: N - 5 is 0, and must be at least 1"):
        traced(TEXT.replace("step 2", "step N - 5"))


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = parse_kernel(TEXT)
    monkeypatch.setattr("taskfuse.check.trace.EVENTS", 500)
    Trace(kernel, {"N": 100}, (0, 0, 0), WorkBudget(10**9, 10**9))
    with pytest.raises(TooLarge):
        Trace(kernel, {"N": 4 * 500}, (0, 0, 0), WorkBudget(10**9, 10**9))
    with pytest.raises(TooLarge):
        Trace(kernel, {"N": 50}, (0, 0, 0), WorkBudget(statements=20))


def test_an_update_may_reach_each_element() -> None:
    text = TEXT.replace("s[0, 0] = copy(x[0, blockIdx.x])", "UPDATE y[v, 0] by add of x[0, 0] at v = t[0] of N")
    (event,) = [e for e in traced(text)[3] if e.key == "y"]
    assert np.array_equal(event.values, 4 * np.arange(5))
