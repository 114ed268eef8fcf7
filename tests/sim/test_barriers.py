"""Barriers at which threads meet, mbarriers, and deadlocks."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.kir import parse_kernel
from taskfuse.sim import simulate
from taskfuse.sim.barriers import MbarrierCell
from taskfuse.sim.fault import Fault
from tests.sim.kernels import X, exchanged, kernel, load, replaced, run_all, without

SHARED = "SHARED s: float32[32] align 4"
REVERSE = "s[threadIdx.x] = copy(x[threadIdx.x])\n{sync}\ny[threadIdx.x] = copy(s[31 - threadIdx.x])"


@pytest.mark.parametrize("sync", ["SYNC block", "SYNC warp", "SYNC named 3, 32"])
def test_barriers_order_memory(sync: str) -> None:
    run_all(kernel(REVERSE.format(sync=sync), SHARED), [X], X[::-1])


def _cell(count: int) -> MbarrierCell:
    cell = MbarrierCell("m[0]")
    cell.init(count, 0)
    return cell


def test_a_phase_completes_with_its_last_arrival_and_its_last_byte() -> None:
    cell = _cell(2)
    assert cell.parity == 0
    cell.arrive(1, _nobody)
    assert (cell.pending, cell.phases) == (1, 0)
    cell.arrive(1, _nobody, expect=8)
    assert (cell.pending, cell.bytes, cell.phases) == (0, 8, 0)
    cell.complete_bytes(8, _nobody)
    assert (cell.pending, cell.bytes, cell.phases, cell.parity) == (2, 0, 1, 1)


def test_bytes_may_come_before_they_are_announced() -> None:
    cell = _cell(1)
    cell.complete_bytes(8, _nobody)
    assert cell.describe() == "phase 0 (parity 0): 1 of 1 arrivals and -8 bytes pending"
    cell.arrive(1, _nobody, expect=8)
    assert cell.phases == 1


def test_too_many_bytes() -> None:
    with pytest.raises(Fault, match="1048576 bytes pending, outside"):
        _cell(2).arrive(1, _nobody, expect=1 << 20)


def _nobody(agents: object) -> None:
    assert agents == []


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_ring(trips: int) -> None:
    x = np.random.default_rng(0).standard_normal((trips, 32)).astype(np.float32)
    run_all(parse_kernel(load("ring")), [x], 2 * x + 1)


def _ring_faults() -> dict[str, str]:
    text = load("ring")
    return {
        "producer does not wait": without(text, "WAIT empty"),
        "consumer does not wait": without(text, "WAIT full"),
        "producer does not arrive": without(text, "ARRIVE full"),
        "consumer does not arrive": without(text, "ARRIVE empty"),
        "producer starts with the wrong parity": replaced(text, "p = CURSOR(slots 2, slot 0, parity 1)", "p = CURSOR(slots 2, slot 0, parity 0)"),
        "consumer starts with the wrong parity": replaced(text, "c = CURSOR(slots 2, slot 0, parity 0)", "c = CURSOR(slots 2, slot 0, parity 1)"),
        "consumer starts in the wrong slot": replaced(text, "c = CURSOR(slots 2, slot 0,", "c = CURSOR(slots 2, slot 1,"),
        "producer does not advance": without(text, "p.advance"),
        "consumer does not advance": without(text, "c.advance"),
        "full counts too many": replaced(text, "full[i] count 32", "full[i] count 33"),
        "empty counts too few": replaced(text, "empty[i] count 32", "empty[i] count 31"),
        "no barrier after the initialization": without(text, "SYNC block"),
        "arrival before the read": exchanged(text, "y[k, threadIdx.x]", "ARRIVE empty"),
        "arrival before the write": exchanged(text, "s[p.slot, threadIdx.x]", "ARRIVE full"),
    }


@pytest.mark.parametrize("fault", _ring_faults())
def test_faults_of_a_ring_are_found(fault: str) -> None:
    k = parse_kernel(_ring_faults()[fault])
    x = np.random.default_rng(0).standard_normal((7, 32)).astype(np.float32)

    def is_found(seed: int) -> bool:
        try:
            (y,) = simulate(k, [x], seed=seed)
        except SimulationError:
            return True
        return not np.array_equal(y, 2 * x + 1)

    assert any(is_found(seed) for seed in range(24))
