"""Mbarriers with clocks: initialized once, phases in order, waits that cannot pass early."""

import numpy as np
import pytest

from taskfuse.check.clocked_mbarriers import ClockedMbarriers
from taskfuse.check.clocks import Clocks
from taskfuse.check.refuted import Refuted, WorkBudget
from taskfuse.check.trace import Event, Trace
from tests.sim.kernels import kernel

BODY = """
IF threadIdx.x == 0:
  INIT full[0] count 1
SYNC block
ARRIVE full[0]
WAIT full[0] parity 0
"""


def launched() -> tuple[Clocks, ClockedMbarriers, Event, Event, Event]:
    """The clocks, the mbarriers, and what the first thread does with them."""
    k = kernel(BODY, "MBARRIER full[1]", block="(4, 1, 1)")
    trace = Trace(k, {}, (0, 0, 0), WorkBudget())
    time = Clocks(k, [trace])
    init, _, arrive, wait = trace.events[0]
    return time, ClockedMbarriers(k, {}, time), init, arrive, wait


def test_it_is_initialized_once_and_before_its_use() -> None:
    time, mbarriers, init, arrive, _ = launched()
    with pytest.raises(Refuted, match="it is used before it is initialized"):
        mbarriers.cell(0, arrive)
    mbarriers.initialize(0, init)
    with pytest.raises(Refuted, match="it is initialized twice"):
        mbarriers.initialize(0, init)
    with pytest.raises(Refuted, match="nothing orders its initialization and this use"):
        mbarriers.cell(1, arrive)
    np.maximum(time.clocks[1], time.clocks[0], out=time.clocks[1])
    assert mbarriers.cell(1, arrive).count == 1


def test_a_phase_completes_with_its_arrivals() -> None:
    time, mbarriers, init, arrive, wait = launched()
    mbarriers.initialize(0, init)
    assert not mbarriers.wait(0, wait)
    cell = mbarriers.cell(0, arrive)
    mbarriers.arrive(0, arrive, cell, 0)
    assert mbarriers.wait(0, wait)
    assert len(cell.done) == 2
    np.maximum(time.clocks[1], cell.done[0], out=time.clocks[1])
    with pytest.raises(Refuted, match="an arrival of phase 1 may come before phase 0 is complete"):
        mbarriers.arrive(1, arrive, cell, 0)
    np.maximum(time.clocks[1], cell.done[1], out=time.clocks[1])
    with pytest.raises(Refuted, match="phase 1 may complete before a wait for phase 0 is over"):
        mbarriers.arrive(1, arrive, cell, 0)


def test_bytes_keep_a_phase_open() -> None:
    _, mbarriers, init, arrive, _ = launched()
    mbarriers.initialize(0, init)
    cell = mbarriers.cell(0, arrive)
    mbarriers.arrive(0, arrive, cell, 16)
    assert (cell.pending, cell.bytes, len(cell.done)) == (0, 16, 1)
    with pytest.raises(Refuted, match="more than 1 arrivals in phase 0"):
        mbarriers.arrive(0, arrive, cell, 0)
    cell.bytes -= 16
    mbarriers.settle(arrive, cell)
    assert len(cell.done) == 2
