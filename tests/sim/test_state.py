"""The state of a machine: equal where nothing that may come depends on the difference, different where it may."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Queue
from taskfuse.sim import explore
from taskfuse.sim.state import state
from tests.sim.kernels import X, kernel, load
from tests.sim.machines import Launched

BODY = """
IF threadIdx.x == 0:
  INIT b[0] count 32
SYNC block
s[threadIdx.x] = copy(x[threadIdx.x])
c = CURSOR(slots 2, slot 0, parity 0)
ARRIVE b[0]
c.advance(1)
WAIT b[0] parity 0
COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1
COMMIT copy
WAIT_GROUP copy <= 0
y[threadIdx.x] = copy(s[threadIdx.x])
"""
KERNEL = kernel(BODY, "SHARED s: float32[32] align 16 @ 0", "MBARRIER b[1]", "COUNTER everybody")


def launched(steps: int = 3) -> Launched:
    """Behind the initialization of the mbarrier and the store."""
    return Launched(KERNEL, [X]).take(*[0] * steps)


def code(found: Launched) -> int:
    return state(found.machine, found.order)


def test_two_machines_after_the_same_steps_are_equal() -> None:
    codes = [code(launched(steps)) for steps in range(5)]
    assert codes == [code(launched(steps)) for steps in range(5)]
    assert len(set(codes)) == 5


def mbarrier(found: Launched, name: str, value: int) -> None:
    ((cell,),) = found.blocks[0].mbarriers.values()
    assert getattr(cell, name) != value
    setattr(cell, name, value)


CHANGES: dict[str, Callable[[Launched], object]] = {
    "arrivals are pending": lambda m: mbarrier(m, "pending", 5),
    "bytes are pending": lambda m: mbarrier(m, "bytes", 64),
    "a phase is complete": lambda m: mbarrier(m, "phases", 1),
    "arrivals per phase": lambda m: mbarrier(m, "count", 31),
    "visible to the copy engine": lambda m: mbarrier(m, "fenced", True),
    "another value in memory": lambda m: m.blocks[0].memory.stores[-1].data.__setitem__(0, 77),
    "another place of the program": lambda m: setattr(m.machine.ready[0], "pc", m.machine.ready[0].pc + 1),
    "another loop variable": lambda m: m.machine.ready[0].env.__setitem__("i", 3),
    "a torn warp": lambda m: setattr(m.machine.ready[0], "torn", True),
    "threads at the barrier of the block": lambda m: setattr(m.blocks[0].barrier, "arrived", 4),
    "threads at a barrier of the grid": lambda m: setattr(m.machine.counters["everybody"], "arrived", 4),
    "threads that have exited": lambda m: setattr(m.blocks[0], "exited", 1),
    "a load in flight": lambda m: setattr(m.blocks[0].engines, "loads", 1),
    "a batch": lambda m: m.blocks[0].engines.fifo(Queue.COPY, 0).commit(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_may_come_depends_on(change: str) -> None:
    found = launched()
    before = code(found)
    CHANGES[change](found)
    assert code(found) != before


def test_a_writer_that_has_fenced_is_as_good_as_one_long_ago() -> None:
    """Times of clocks differ between equal states."""
    found = launched()
    before = code(found)
    block = found.blocks[0]
    assert block.memory.stores[-1].proxy is not None
    block.memory.stores[-1].proxy.stamps += 1000  # later writes, none of them fenced
    block.memory.clock += 1000
    assert code(found) == before
    block.engines.fence(block.machine.table.span(0, 32))
    assert code(found) != before


def test_the_full_search_does_not_take_two_states_for_one() -> None:
    """A ring that lacks a wait fails in some interleaving: the search that remembers states finds it."""
    text = load("ring")
    assert explore(parse_kernel(text), [np.zeros((2, 32), np.float32)], reduce=False).holds
    broken = parse_kernel(text.replace("    WAIT full[c.slot] parity c.parity\n", ""))
    assert explore(broken, [np.zeros((2, 32), np.float32)], reduce=False).failure is not None
