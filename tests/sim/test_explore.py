"""Exhaustive exploration: verdicts, what they cost, replays, and that the reduced search says what the full one says."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from examples import pipeline, stream
from taskfuse.errors import InputError, SimulationError
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.sim import Exploration, explore, simulate
from tests.sim.explored import RING, ROWS, repeats
from tests.sim.kernels import INTERLEAVINGS, X, kernel, load, replaced, without


def small_stream(stages: int = 2) -> str:
    return str(tf.lower(stream.build(blocks=1, rows=4, columns=32, warps=1, stages=stages)))


@pytest.mark.parametrize("trips", [0, 1, 2, 3, 8])
def test_a_ring_in_full(trips: int) -> None:
    """Two stages: states grow with the trips, kinds of interleavings do not."""
    k = parse_kernel(RING)
    full, reduced = (explore(k, [ROWS[:trips]], reduce=reduce) for reduce in (False, True))
    assert full.holds
    assert full.states == {0: 16, 1: 25, 2: 43, 3: 58, 8: 133}[trips]
    assert reduced == Exploration("ring", reduced.states, 1, True, None)
    assert reduced.states <= full.states


def test_examples_have_one_kind_of_schedule() -> None:
    (x,) = kernel_x = [np.random.default_rng(1).standard_normal((9, 72)).astype(np.float32)]
    for k, args in ((tf.lower(stream.build(blocks=2, warps=2)), kernel_x), (tf.lower(pipeline.build()), [x[:2], x[0]])):
        found = k.explore(*args)
        assert found.holds
        assert found.interleavings == 1


def test_wgmma_pipelines_hold() -> None:
    a, b = (np.random.default_rng(2).standard_normal((n, 128)) for n in (128, 8))
    k = parse_kernel(load("gemm"))
    found = explore(k, [a.astype(k.inputs[0].dtype.numpy), b.astype(k.inputs[1].dtype.numpy)])
    assert found.holds
    assert found.interleavings == 1


def test_the_limit() -> None:
    found = parse_kernel(RING).explore(ROWS[:8], limit=20, reduce=False)
    assert (found.states, found.complete, found.holds) == (20, False, False)
    assert str(found).startswith("ring: no interleaving fails so far: the search stopped at its limit (20 states, ")


def test_texts() -> None:
    k = parse_kernel(RING)
    assert str(explore(k, [ROWS[:8]])) == "ring: all interleavings end with the same outputs (57 states, 1 interleaving)"
    racing = parse_kernel(without(RING, "WAIT empty"))
    assert str(explore(racing, [ROWS[:2]])).startswith("ring: ")
    k = kernel(
        "IF threadIdx.x == 0:\n  s[0] = copy(0.0)\nSYNC block\nIF threadIdx.y == 0:\n  s[0] = copy(1.0)\nELSE:\n  y[0] = copy(s[0])",
        "SHARED s: float32[1] align 4",
        outputs="y: float32[1]",
        block="(1, 2, 1)",
    )
    assert str(explore(k, [X], in_step=1)).splitlines() == [
        "k: an interleaving fails (11 states, 2 interleavings)",
        "'y' depends on the interleaving",
        "replay: kernel.simulate(..., choices=[0, 0, 1], in_step=1)",
    ]


def test_arguments_are_checked() -> None:
    with pytest.raises(InputError, match="0 arguments given, 1 expected"):
        parse_kernel(RING).explore()
    with pytest.raises(SimulationError, match="choice 9 is taken where there are 2"):
        simulate(parse_kernel(RING), [ROWS], choices=[9])


def test_a_loop_that_is_too_long() -> None:
    found = explore(parse_kernel(RING), [ROWS], max_steps=50)
    assert found.failure is not None
    assert "more than 50 steps" in str(found)


RELEASE_OUT = "IF threadIdx.x == 0:\n      ARRIVE ch1.full[ch1.p.slot]"
RELEASE_IN = "IF threadIdx.x == 0:\n      ARRIVE ch0.empty[ch0.c.slot]"
WAIT_OUT = "WAIT ch1.empty[ch1.p.slot] parity ch1.p.parity"
STREAM_FAULTS = {
    "no proxy fence": (("FENCE proxy.async", "PASS"),),
    "proxy fence after the arrival": (("FENCE proxy.async", "PASS"), (RELEASE_OUT, f"{RELEASE_OUT}\n    FENCE proxy.async")),
    "bytes too many": (("bytes 512", "bytes 528"),),
    "bytes too few": (("bytes 512", "bytes 496"),),
    "an arrival in the place of the bytes": (("EXPECT ch0.full[ch0.p.slot] bytes 512", "ARRIVE ch0.full[ch0.p.slot]"),),
    "no wait_group of the read": (("WAIT_GROUP bulk.read <= 0", "PASS"),),
    "wait for of the read too late": (("WAIT_GROUP bulk.read <= 0", "WAIT_GROUP bulk.read <= 1"),),
    "no wait_group at the end": (("WAIT_GROUP bulk <= 0", "PASS"),),
    "no commit": (("COMMIT bulk", "PASS"),),
    "no wait of the loader": (("WAIT ch0.empty[ch0.p.slot] parity ch0.p.parity", "PASS"),),
    "no wait for the load": (("WAIT ch0.full[ch0.c.slot] parity ch0.c.parity", "PASS"),),
    "no wait of the writer": (("WAIT ch1.empty[ch1.p.slot] parity ch1.p.parity", "PASS"),),
    "no wait of the storer": (("WAIT ch1.full[ch1.c.slot] parity ch1.c.parity", "PASS"),),
    "no arrival of the writer": (("ARRIVE ch1.full[ch1.p.slot]", "PASS"),),
    "no arrival of the reader": (("ARRIVE ch0.empty[ch0.c.slot]", "PASS"),),
    "no arrival of the storer": (("ARRIVE ch1.empty[ch1.c.slot]", "PASS"),),
    "two arrivals": (("ARRIVE ch1.empty[ch1.c.slot]", "ARRIVE ch1.empty[ch1.c.slot]\n      ARRIVE ch1.empty[ch1.c.slot]"),),
    "no advance of the loader": (("ch0.p.advance(1)", "PASS"),),
    "no advance of the reader": (("ch0.c.advance(1)", "PASS"),),
    "no advance of the writer": (("ch1.p.advance(1)", "PASS"),),
    "no advance of the storer": (("ch1.c.advance(1)", "PASS"),),
    "parity of the loader": (("parity ch0.p.parity", "parity 1 - ch0.p.parity"),),
    "parity of the reader": (("parity ch0.c.parity", "parity 1 - ch0.c.parity"),),
    "parity of the writer": (("parity ch1.p.parity", "parity 1 - ch1.p.parity"),),
    "parity of the storer": (("parity ch1.c.parity", "parity 1 - ch1.c.parity"),),
    "count of full": (("INIT ch1.full[0] count 1", "INIT ch1.full[0] count 2"),),
    "count of empty": (("INIT ch1.empty[0] count 1", "INIT ch1.empty[0] count 2"),),
    "no initialization": (("INIT ch0.full[1] count 1", "PASS"),),
    "no fence of the initialization": (("FENCE mbarrier_init", "PASS"),),
    "no barrier after the initialization": (("SYNC block  # barriers are initialized", "PASS"),),
    "arrival before the read": ((RELEASE_IN, "PASS"), (WAIT_OUT, f"{WAIT_OUT}\n    {RELEASE_IN}")),
}


@pytest.mark.parametrize("fault", STREAM_FAULTS)
def test_faults_of_a_stream(fault: str) -> None:
    """Exploration refutes each, and at least one of the eight interleavings finds it without."""
    text = small_stream()
    for old, new in STREAM_FAULTS[fault]:
        text = replaced(text, old, new)
    k = parse_kernel(text)
    k.check_ir()
    found = k.explore(ROWS)
    assert found.failure is not None, found
    assert repeats(k, [ROWS], found)
    expected = np.maximum(2 * ROWS - 1, 0)
    assert any(wrong(k, expected, interleaving, seed) for seed in range(8) for interleaving in INTERLEAVINGS), "no interleaving finds it"


def wrong(k: Kernel, expected: Any, interleaving: Any, seed: int) -> bool:
    try:
        return not np.array_equal(simulate(k, [ROWS], seed=seed, interleaving=interleaving)[0], expected)
    except SimulationError:
        return True


def test_a_missing_warp_barrier_needs_parts_of_warps() -> None:
    arrival = "IF threadIdx.x == 0:\n      ARRIVE ch1.full"
    k = parse_kernel(replaced(small_stream(), f"SYNC warp  # before one lane arrives for the warp\n    {arrival}", arrival))
    assert k.explore(ROWS).holds
    found = k.explore(ROWS, in_step=16)
    assert found.failure is not None
    assert repeats(k, [ROWS], found)


def test_bytes_that_never_add_up() -> None:
    """A copy may come before the last arrival, or after it; only in the second order does the arrival complete a phase."""
    k = kernel(
        """
        IF threadIdx.y == 0:
          INIT full[0] count 1
          FENCE mbarrier_init
        SYNC block
        IF threadIdx.y == 0:
          TMA s[0] <- map_x(0) on full[0]
        ELSE:
          ARRIVE full[0]
          WAIT full[0] parity 0
        y[threadIdx.y] = copy(1.0)
        """,
        "TENSORMAP map_x = x box (32) swizzle 0",
        "SHARED s: float32[32] align 128",
        "MBARRIER full[1]",
        outputs="y: float32[2]",
        block="(1, 2, 1)",
    )
    for reduce in (True, False):
        found = explore(k, [X], in_step=1, reduce=reduce)
        assert found.failure is not None
        assert repeats(k, [X], found)


MIXED = """
IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT b[0] count 2
  s[0] = copy(0.0)
SYNC block
IF threadIdx.y == 0:
  IF threadIdx.x == 0:
    s[0] = copy(1.0)
  ARRIVE
ELSE IF threadIdx.y < ROLES:
  ARRIVE
ELSE:
  WAIT
  IF threadIdx.x == 0:
    y[0] = copy(s[0])
"""
"""What role 0 writes is read behind a phase (or round) of two arrivals. In the first run role 0's is one of them; the others may come before it."""
KINDS = {
    "mbarrier": (1, 3, 1, "ARRIVE b[0]", "WAIT b[0] parity 0"),
    "semaphore": (1, 3, 1, "RELEASE c[0]", "ACQUIRE c[0] phases 1"),
    "semaphore, two phases in one step": (4, 3, 4, "RELEASE c[0]", "ACQUIRE c[0] phases 1"),
    "named": (32, 3, 32, "SYNC named 1, 64", "SYNC named 1, 64"),
    "grid": (1, 3, 1, "SYNC grid g, 2", "SYNC grid g, 2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_arrival_may_be_late_for_its_phase(kind: str) -> None:
    """The arrival that the first run counts first, too: other runs make the phase of two others, and what is read is not written yet."""
    lanes, roles, in_step, arrive, wait = KINDS[kind]
    text = MIXED.replace("ROLES", str(roles)).replace("ARRIVE\n", f"{arrive}\n").replace("WAIT\n", f"{wait}\n")
    k = kernel(
        text,
        "SHARED s: float32[1] align 4",
        "MBARRIER b[1]",
        "COUNTER g",
        f"SEMAPHORE c[1] count {6 if 'two phases' in kind else 2}",
        outputs="y: float32[1]",
        block=f"({lanes}, {roles + 1}, 1)",
    )
    reduced, full = (explore(k, [X], in_step=in_step, reduce=reduce) for reduce in (True, False))
    for found in (reduced, full):
        assert found.failure is not None
        assert found.failure.error is None, found  # it ends, with another output
        assert repeats(k, [X], found)


def test_a_part_of_a_warp_comes_to_its_barrier() -> None:
    """Thread 2 comes in the last trip alone: whoever comes first fails, in every interleaving."""
    k = kernel(
        """
        FOR k in 1..3:
          IF threadIdx.x <= k:
            SYNC warp
        IF threadIdx.x == 0:
          y[0] = copy(1.0)
        """,
        outputs="y: float32[1]",
        block="(3, 1, 1)",
    )
    for reduce in (True, False):
        found = explore(k, [X], in_step=1, reduce=reduce)
        assert found.failure is not None
        assert "warp barrier executed by 2 of the 3 threads of warp 0" in str(found.failure.error)
        assert repeats(k, [X], found)
