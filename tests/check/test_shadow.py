"""Elements of a launch: conflicting accesses of which the later one does not know, and what engines see."""

import numpy as np
import pytest

from taskfuse.check.clocks import Clocks
from taskfuse.check.counterexample import counterexample
from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.shadow import Shadow
from taskfuse.check.touched_elements import places
from taskfuse.check.trace import Event, Trace
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.kir.nodes import AsyncCopy, Compute

KERNEL = parse_kernel("""KERNEL k(x: float32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  SHARED s: float32[4] align 16 @ 0

COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
COMMIT copy
WAIT_GROUP copy <= 0
y[threadIdx.x] = copy(s[threadIdx.x])
""")


def launched(kernel: Kernel = KERNEL) -> tuple[Clocks, Shadow]:
    trace = Trace(kernel, {}, (0, 0, 0), WorkBudget())
    time = Clocks(kernel, [trace])
    return time, Shadow(time, trace.memory, places(kernel, {}))


def event(kind: type) -> Event:
    return next(e for e in Trace(KERNEL, {}, (0, 0, 0), WorkBudget()).events[0] if isinstance(e.stmt, kind))


def test_accesses_that_know_of_each_other_are_no_race() -> None:
    time, shadow = launched()
    store = event(Compute)
    shadow.touch(0, store, "s", np.array([1]), True, time.clocks[0], 0)
    with pytest.raises(Refuted, match="nothing orders a write and a read of one element"):
        shadow.touch(1, store, "s", np.array([1]), False, time.clocks[1], 1)
    shadow.touch(1, store, "s", np.array([2]), False, time.clocks[1], 1)
    np.maximum(time.clocks[1], time.clocks[0], out=time.clocks[1])
    shadow.touch(1, store, "s", np.array([1]), False, time.clocks[1], 1)
    with pytest.raises(Refuted, match="nothing orders a read and a write of one element"):
        shadow.touch(2, store, "s", np.array([2]), True, np.maximum(time.clocks[2], time.clocks[0]), 2)


def test_an_engine_sees_what_its_writer_has_fenced() -> None:
    time, shadow = launched()
    time.copies.clear()  # as if the operation were one of the asynchronous proxy
    copy = event(AsyncCopy)
    shadow.touch(0, event(Compute), "s", np.array([0]), True, time.clocks[0], 0)
    with pytest.raises(Refuted, match=r"without FENCE proxy\.async of the writer"):
        shadow.touch(0, copy, "s", np.array([0]), False, time.fork(0, 4), 4)
    shadow.fence(0, MemoryType.Shared)
    shadow.touch(0, copy, "s", np.array([0]), False, time.fork(0, 4), 4)


UPDATES = """KERNEL k(t: int32[40], s: float32[40]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (40, 1, 1)

UPDATE y[v] by add of s[threadIdx.x] at v = t[threadIdx.x] of 2
"""


def test_updates_by_one_function_need_no_order() -> None:
    kernel = parse_kernel(UPDATES)
    assert counterexample(kernel, {}) is None
    other = parse_kernel(UPDATES + "UPDATE y[v] by maximum of s[threadIdx.x] at v = t[threadIdx.x] of 2\n")
    found = counterexample(other, {})
    assert found is not None
    assert "nothing orders a write and a write of one element" in found.reason


@pytest.mark.parametrize("other", ["y[1] = copy(s[0])", "z[] = copy(y[1])"])
def test_updates_and_other_accesses_need_an_order(other: str) -> None:
    """Any thread may update any element."""
    text = UPDATES.replace("(y: float32[2])", "(y: float32[2], z: float32[])") + f"SYNC block\nIF threadIdx.x == 7:\n  {other}\n"
    assert counterexample(parse_kernel(text), {}) is None
    found = counterexample(parse_kernel(text.replace("SYNC block\n", "")), {})
    assert found is not None
    assert found.subject == "y"
    assert "race" in found.reason
    computed = text.replace("SYNC block\n", "").replace("UPDATE", "l = copy(t[threadIdx.x])\nUPDATE").replace("v = t[threadIdx.x]", "v = l")
    computed = computed.replace("BLOCK (40, 1, 1)\n", "BLOCK (40, 1, 1)\n  LOCAL l: int32[]\n")
    assert counterexample(parse_kernel(computed), {}) is None  # it may be that no integer says so
