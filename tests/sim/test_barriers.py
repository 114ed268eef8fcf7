"""Barriers at which threads meet, mbarriers, and deadlocks."""

from random import Random

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.errors import SimulationError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import Interleaving, simulate
from taskfuse.sim.barriers import MbarrierCell
from taskfuse.sim.fault import Fault
from tests.sim.kernels import INTERLEAVINGS, X, error, exchanged, kernel, load, replaced, run_all, without

SHARED = "SHARED s: float32[32] align 4"
REVERSE = "s[threadIdx.x] = copy(x[threadIdx.x])\n{sync}\ny[threadIdx.x] = copy(s[31 - threadIdx.x])"


@pytest.mark.parametrize("sync", ["SYNC block", "SYNC warp", "SYNC named 3, 32"])
def test_barriers_order_memory(sync: str) -> None:
    run_all(kernel(REVERSE.format(sync=sync), SHARED), [X], X[::-1])


def test_warp_barrier_of_the_warps_that_a_condition_selects() -> None:
    """The block has 8 threads of its last warp."""
    body = """
    FOR i in 0..2:
      IF threadIdx.x >= 32:
        s[threadIdx.x] = add.int64(index(threadIdx.x), index(i))
        SYNC warp
        y[i, threadIdx.x] = copy(s[xor(threadIdx.x, 1)])
        SYNC warp
      ELSE:
        y[i, threadIdx.x] = copy(0.0)
    """
    k = kernel(body, "SHARED s: float32[72] align 4", outputs="y: float32[2, 72]", block="(72, 1, 1)")
    t = np.arange(72)
    run_all(k, [X], np.stack([np.where(t >= 32, (t ^ 1) + i, 0) for i in range(2)]).astype(np.float32))


@pytest.mark.parametrize(("condition", "threads", "warp"), [("threadIdx.x < 16", "16 of the 32", 0), ("threadIdx.x >= 8", "24 of the 32", 0)])
def test_a_warp_barrier_of_a_part_of_a_warp(condition: str, threads: str, warp: int) -> None:
    found = error(kernel(f"IF {condition}:\n  SYNC warp", block="(64, 1, 1)")).splitlines()
    assert found[0] == f"k: warp barrier executed by {threads} threads of warp {warp}"
    assert found[-1] == "help: all threads of a warp must execute it; let a part of one meet at an mbarrier"


def test_a_warp_barrier_that_some_threads_do_not_reach() -> None:
    body = """
    IF threadIdx.x == 0:
      INIT m[0] count 1
    SYNC block
    FOR i in 0..threadIdx.x//16:
      WAIT m[0] parity 0
    SYNC warp
    """
    assert error(kernel(body, "MBARRIER m[1]"), interleaving=Interleaving.LOW_FIRST).splitlines() == [
        "k: deadlock: no thread can go on",
        "note: block (0, 0, 0), threads 0-15: SYNC warp: warp 0: 16 of 32 threads are there",
        "note: block (0, 0, 0), threads 16-31: WAIT m[0] parity 0: m[0] wants parity 0 to complete; phase 0 (parity 0): 1 of 1 arrivals and 0 bytes pending",
    ]


def test_named_barriers_of_pairs_of_warps() -> None:
    k = parse_kernel(load("exchange"))
    x = np.random.default_rng(0).standard_normal((5, 4, 32)).astype(np.float32)
    run_all(k, [x], x - x[:, [1, 0, 3, 2]])
    for note in ("# RAW", "# WAR"):
        broken = parse_kernel(without(load("exchange"), note))
        assert any(_differs(broken, x, s) for s in INTERLEAVINGS), note


def _differs(k: Kernel, x: npt.NDArray[np.float32], interleaving: Interleaving) -> bool:
    try:
        (y,) = simulate(k, [x], seed=5, interleaving=interleaving)
    except SimulationError:
        return True
    return not np.array_equal(y, x - x[:, [1, 0, 3, 2]])


def test_grid_barrier() -> None:
    x = np.random.default_rng(0).standard_normal((40, 32)).astype(np.float32)
    run_all(parse_kernel(load("rotate")), [x], np.roll(x * x, -1, axis=0))
    few = parse_kernel(replaced(load("rotate"), "32*B", "31*B"))
    assert error(few, [x[:2]]).splitlines()[0] == "rotate: grid barrier 'written': 64 threads arrive where 62 are expected"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("SYNC block 64", "k: block barrier of 64 threads in a block of 32"),
        ("IF threadIdx.x < 16:\n  SYNC block\nELSE:\n  SYNC block", "k: block barrier reached while other threads of the block wait at another one"),
        ("IF threadIdx.x < 16:\n  SYNC block", "k: threads exit while 16 threads of the block wait at a block barrier"),
        ("SYNC named threadIdx.x//32 + 16, 32", "k: named barrier 16: the ids are 1..15"),
        ("SYNC named 1, N", "k: named barrier 1 of 20 threads, not a multiple of 32"),
        ("IF threadIdx.x < 16:\n  SYNC named 1, 32\nELSE:\n  SYNC named 1, 64", "k: named barrier 1: 64 threads expected here, 32 where others wait"),
        ("INIT m[threadIdx.x//16] count 1", "k: 16 threads initialize one mbarrier of 'm'"),
        ("IF threadIdx.x < 2:\n  INIT m[threadIdx.x] count 8\nARRIVE m[threadIdx.x//8]", "k: mbarrier 'm' has no slot 2"),
        ("IF threadIdx.x == 0:\n  INIT m[0] count N - 20", "k: mbarrier m[0] initialized with 0 arrivals, outside 1..2^20-1"),
        ("IF threadIdx.x == 0:\n  FOR i in 0..2:\n    INIT m[0] count 1", "k: mbarrier m[0] initialized twice"),
        ("ARRIVE m[1]", "k: mbarrier m[1] used before it was initialized"),
        ("WAIT m[1] parity 1", "k: mbarrier m[1] used before it was initialized"),
        ("IF threadIdx.x == 0:\n  INIT m[0] count 3\nSYNC block\nARRIVE m[0]", "k: mbarrier m[0]: 32 arrivals while 3 are pending"),
    ],
)
def test_misuse(body: str, message: str) -> None:
    k = kernel(body, "DIM N", "MBARRIER m[2]", inputs="x: float32[N]")
    assert error(k, [X[:20]], interleaving=Interleaving.ROUND_ROBIN).splitlines()[0] == message


def test_a_barrier_after_an_exit() -> None:
    k = kernel("IF threadIdx.x < 16:\n  SYNC block")
    assert error(k, interleaving=Interleaving.HIGH_FIRST).splitlines()[0] == "k: block barrier after 16 threads of the block have exited"


# -- mbarriers ------------------------------------------------------------------------------------------------------------------------------


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


# -- rings ----------------------------------------------------------------------------------------------------------------------------------


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


def test_deadlock_report() -> None:
    k = parse_kernel(replaced(load("ring"), "parity 1", "parity 0"))
    x = np.zeros((3, 32), np.float32)
    assert error(k, [x]).splitlines() == [
        "ring: deadlock: no thread can go on",
        "note: block (0, 0, 0), threads 0-31 in producer: WAIT empty[p.slot] parity p.parity: "
        "empty[0] wants parity 0 to complete; phase 0 (parity 0): 32 of 32 arrivals and 0 bytes pending; its ring carries s",
        "note: block (0, 0, 0), threads 32-63 in consumer: WAIT full[c.slot] parity c.parity: "
        "full[0] wants parity 0 to complete; phase 0 (parity 0): 32 of 32 arrivals and 0 bytes pending; its ring carries s",
    ]


def test_deadlock_reports_other_barriers_and_stay_short() -> None:
    k = kernel(
        """
        IF threadIdx.x < 16:
          SYNC block
        ELSE IF threadIdx.x % 2 == 0:
          SYNC named 2, 32
        ELSE IF threadIdx.x == 17:
          SYNC grid all, 64
        ELSE:
          SYNC named 3, 32
        """,
        "COUNTER all",
        grid="(8, 1, 1)",
    )
    lines = error(k).splitlines()
    assert lines[1:5] == [
        "note: block (0, 0, 0), threads 0-15: SYNC block: block barrier: 16 of 32 threads are there",
        "note: block (0, 0, 0), 8 threads from 16 to 30: SYNC named 2, 32: named barrier 2: 8 of 32 threads are there",
        "note: block (0, 0, 0), thread 17: SYNC grid all, 64: grid barrier 'all': 8 of 64 threads are there",
        "note: block (0, 0, 0), 7 threads from 19 to 31: SYNC named 3, 32: named barrier 3: 7 of 32 threads are there",
    ]
    assert len(lines) == 26
    assert lines[-1] == "note: and 8 more"


def test_seeds_explore_different_interleavings() -> None:
    """Two threads race for an element: both orders occur."""
    k = kernel(
        "IF threadIdx.x == 0:\n  s[0] = copy(1.0)\nELSE:\n  s[0] = copy(2.0)\nSYNC block\ny[threadIdx.x] = copy(s[0])",
        SHARED,
        block="(2, 1, 1)",
        outputs="y: float32[2]",
    )
    seeds = Random(0).sample(range(1000), 40)
    assert {float(simulate(k, [X], seed=seed)[0][0]) for seed in seeds} == {1.0, 2.0}
