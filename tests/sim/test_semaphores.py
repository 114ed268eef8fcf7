"""Semaphores in the simulator: counting, waiting, reports, exploration, timelines, blocks that are not resident."""

import numpy as np
import pytest

from taskfuse.errors import DeadlockError, SimulationError
from taskfuse.kir import parse_kernel
from taskfuse.sim import explore, simulate, timeline
from tests.sim.kernels import INTERLEAVINGS, X, error, kernel, load, replaced, run_all

TEXT = load("blocks")
SMALL = """\
KERNEL small(x: float32[N]) -> (y: float32[N])
  DIM N
  GRID (2, 1, 1)  BLOCK (2, 1, 1)
  GLOBAL w: float32[2, 2]
  SEMAPHORE full[2] count 1, empty[2] count 1

IF blockIdx.x == 0:  # producer
  p = CURSOR(slots 2, slot 0, parity 1)
  FOR i in 0..N:
    IF threadIdx.x == 0:
      ACQUIRE empty[p.slot] phases p.phase
    SYNC warp 2
    w[p.slot, threadIdx.x] = mul(x[i], 2.0)
    SYNC warp 2
    IF threadIdx.x == 0:
      RELEASE full[p.slot]
    p.advance(1)
ELSE:  # consumer
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR i in 0..N:
    IF threadIdx.x == 0:
      ACQUIRE full[c.slot] phases c.phase + 1
    SYNC warp 2
    IF threadIdx.x == 1:
      y[i] = add(w[c.slot, 1], 1.0)
    SYNC warp 2
    IF threadIdx.x == 0:
      RELEASE empty[c.slot]
    c.advance(1)
"""


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 9])
def test_any_number_of_trips(trips: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, trips, 4)).astype(np.float32)
    run_all(parse_kernel(TEXT), [x], x * 2 + 1)


def test_a_release_by_many_threads_completes_several_phases() -> None:
    body = """
    IF blockIdx.x == 0:
      RELEASE done[0]
    ELSE:
      ACQUIRE done[0] phases 4
      y[threadIdx.x] = copy(x[threadIdx.x])
    """
    run_all(kernel(body, "SEMAPHORE done[1] count 8", grid="(2, 1, 1)"), [X], X)
    assert error(kernel(body.replace("phases 4", "phases 5"), "SEMAPHORE done[1] count 8", grid="(2, 1, 1)")).splitlines() == [
        "k: deadlock: no thread can continue",
        "note: block (1, 0, 0), threads 0-31: ACQUIRE done[0] phases 5: done[0] wants 5 phases; 4 phases are complete, 8 of 8 releases are missing in the next",
    ]


def test_threads_of_one_statement_may_use_different_counters() -> None:
    body = """
    RELEASE done[threadIdx.x//8]
    ACQUIRE done[threadIdx.x//8] phases 1
    y[threadIdx.x] = copy(x[threadIdx.x])
    """
    run_all(kernel(body, "SEMAPHORE done[4] count 8"), [X], X)
    assert "semaphore 'done' of shape [3] has no counter [3]" in error(kernel(body, "SEMAPHORE done[3] count 8"))


def test_blocks_that_are_not_resident() -> None:
    x = np.ones((2, 5, 4), np.float32)
    for resident in (2, 3):
        with pytest.raises(DeadlockError, match="ACQUIRE empty"):
            simulate(parse_kernel(TEXT), [x], resident=resident)
    (y,) = simulate(parse_kernel(TEXT), [x[:, :2]], resident=1)  # no more trips than slots
    assert (y == 3).all()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    SYNC warp 2\n    w[", "    w["),  # others write before the first thread has acquired
        ("    SYNC warp 2\n    IF threadIdx.x == 1", "    IF threadIdx.x == 1"),  # others read before it has
        ("    SYNC warp 2\n    IF threadIdx.x == 0:\n      RELEASE empty", "    IF threadIdx.x == 0:\n      RELEASE empty"),  # it gives back what others read
        ("phases c.phase + 1", "phases c.phase"),
        ("      ACQUIRE empty[p.slot] phases p.phase\n", "      PASS\n"),
    ],
)
def test_exploration_finds_what_is_wrong(old: str, new: str) -> None:
    x = [np.arange(4, dtype=np.float32)]
    assert explore(parse_kernel(SMALL), x, in_step=1).failure is None
    assert explore(parse_kernel(replaced(SMALL, old, new)), x, in_step=1).failure is not None


def test_exploration_agrees_with_a_search_in_full() -> None:
    x = [np.arange(3, dtype=np.float32)]
    found = explore(parse_kernel(SMALL), x, in_step=1, reduce=False)
    assert found.holds


def test_the_timeline_shows_which_release_ended_a_wait() -> None:
    x = np.arange(3, dtype=np.float32)
    recorded = timeline(parse_kernel(SMALL), [x], interleaving=INTERLEAVINGS[0])
    assert {"full[0]", "full[1]"} <= {f.name for f in recorded.flows}
    assert {c.barrier for c in recorded.completions} == {"full", "empty"}
    with pytest.raises(SimulationError, match=r"semaphore 'full' of shape \[1\] has no counter \[1\]"):
        simulate(parse_kernel(SMALL.replace("SEMAPHORE full[2]", "SEMAPHORE full[1]")), [x])
