"""Instructions that synchronize threads: misuse, grid barriers, named barriers."""

import numpy as np
import numpy.typing as npt
import pytest

from taskfuse.errors import SimulationError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import Interleaving, simulate
from tests.sim.kernels import INTERLEAVINGS, X, error, kernel, load, replaced, run_all, without


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
    assert found[-1] == "help: all threads of a warp must execute it; let a part of one wait at an mbarrier"


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
        "k: deadlock: no thread can continue",
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
