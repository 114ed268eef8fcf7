"""Threads that part and meet again."""

import numpy as np
import pytest

from taskfuse.sim import simulate
from tests.sim.kernels import INTERLEAVINGS, X, error, kernel, run_all


def test_branches_take_their_threads() -> None:
    k = kernel(
        """
        y[threadIdx.x] = copy(0.0)
        IF threadIdx.x < 4:
          y[threadIdx.x] = copy(1.0)
        ELSE IF threadIdx.x % 2 == 0:
          IF threadIdx.x > 20:
            y[threadIdx.x] = copy(2.0)
          ELSE:
            y[threadIdx.x] = copy(3.0)
        ELSE IF threadIdx.x == 31:
          y[threadIdx.x] = copy(4.0)
        """
    )
    i = np.arange(32)
    expected = np.select([i < 4, (i % 2 == 0) & (i > 20), i % 2 == 0, i == 31], [1, 2, 3, 4], 0)
    run_all(k, [X], expected.astype(np.float32))


def test_loops_whose_bounds_differ_between_threads() -> None:
    k = kernel(
        """
        a = copy(0.0)
        FOR i in threadIdx.x % 3..threadIdx.x step 1 + threadIdx.x % 2:
          a = add(a, x[i])
          FOR j in 0..threadIdx.x % 2:
            a = add(a, 100.0)
        y[threadIdx.x] = copy(a)
        """,
        "LOCAL a: float32[]",
    )
    expected = [sum(i + 100 * (t % 2) for i in range(t % 3, t, 1 + t % 2)) for t in range(32)]
    run_all(k, [X], np.asarray(expected, np.float32))


def test_divergent_loops_with_barriers_inside() -> None:
    k = kernel(
        """
        IF threadIdx.x == 0:
          FOR i in 0..2:
            INIT m[i] count 16
        SYNC block
        a = copy(0.0)
        FOR i in 0..1 + threadIdx.x//16:
          ARRIVE m[threadIdx.x//16]
          WAIT m[threadIdx.x//16] parity i
          a = add(a, 1.0)
        y[threadIdx.x] = copy(a)
        """,
        "LOCAL a: float32[]",
        "MBARRIER m[2]",
    )
    run_all(k, [X], np.where(np.arange(32) < 16, 1, 2).astype(np.float32))


def test_a_loop_needs_a_positive_step() -> None:
    k = kernel("FOR i in 0..4 step N - 3:\n  y[i] = copy(x[i])", "DIM N", inputs="x: float32[N]")
    assert error(k, [X[:3]]).splitlines()[0] == "k: loop over 'i' with step 0"


def test_bind_has_no_code() -> None:
    k = kernel("FOR threadIdx.x in TIDx{32}:\n  y[threadIdx.x] = copy(x[threadIdx.x])")
    run_all(k, [X], X)


def test_linear_ids_run_over_x_first() -> None:
    k = kernel(
        "y[blockIdx.z, blockIdx.y, threadIdx.z, threadIdx.y, threadIdx.x] = copy.int64(index(16*blockIdx.x + threadIdx.x))",
        outputs="y: float32[2, 2, 2, 2, 2]",
        block="(2, 2, 2)",
        grid="(1, 2, 2)",
    )
    (y,) = simulate(k, [X])
    np.testing.assert_array_equal(y, np.broadcast_to([0.0, 1.0], (2, 2, 2, 2, 2)))


WAITS_FOR_A_SIBLING = kernel(
    """
    IF threadIdx.x == 0:
      INIT m[0] count 1
    SYNC block
    IF threadIdx.x == 0:
      WAIT m[0] parity 0
    IF threadIdx.x == 1:
      ARRIVE m[0]
    y[threadIdx.x] = copy(x[threadIdx.x])
    """,
    "MBARRIER m[1]",
)


def test_joining_makes_no_deadlock() -> None:
    run_all(WAITS_FOR_A_SIBLING, [X], X)


def test_a_join_waits_for_nobody_who_is_gone() -> None:
    """Three agents park at nested joins; the one that they wait for needs the arrival of each."""
    k = kernel(
        """
        IF threadIdx.x == 0:
          INIT m[0] count 31
        SYNC block
        IF threadIdx.x < 16:
          IF threadIdx.x == 3:
            WAIT m[0] parity 0
        IF threadIdx.x != 3:
          ARRIVE m[0]
        y[threadIdx.x] = copy(x[threadIdx.x])
        """,
        "MBARRIER m[1]",
    )
    run_all(k, [X], X)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_cursors_that_advance_differently(trips: int) -> None:
    """Each half of the threads takes every second slot of a ring of three; between, they meet."""
    k = kernel(
        """
        c = CURSOR(slots 3, slot 0, parity 0)
        a = copy(0.0)
        FOR k in 0..N:
          c.advance(threadIdx.x//16)
          SYNC block
          a = mul(a, 100.0)
          b = copy.int64(index(c.slot + 10*c.parity))
          a = add(a, b)
          c.advance(2 - threadIdx.x//16)
        y[threadIdx.x] = copy(a)
        """,
        "DIM N",
        "LOCAL a: float32[]",
        "LOCAL b: float32[]",
        inputs="x: float32[N]",
    )

    def history(start: int) -> float:
        total = 0.0
        for t in range(trips):
            position = start + 2 * t
            total = 100 * total + position % 3 + 10 * (position // 3 % 2)
        return total

    run_all(k, [X[:trips]], np.repeat([history(0), history(1)], 16).astype(np.float32))


def test_blocks_beyond_those_resident() -> None:
    k = kernel(
        "y[blockIdx.x, threadIdx.x] = copy(x[threadIdx.x])", "DIM N", inputs="x: float32[32], z: float32[N]", outputs="y: float32[N, 32]", grid="(N, 1, 1)"
    )
    for interleaving in INTERLEAVINGS:
        (y,) = simulate(k, [X, np.zeros(50, np.float32)], interleaving=interleaving)
        np.testing.assert_array_equal(y, np.broadcast_to(X, (50, 32)))


def test_clusters() -> None:
    k = kernel(
        "y[blockIdx.x] = copy.int64(index(clusterIdx.x))",
        outputs="y: float32[6]",
        block="(1, 1, 1)",
        grid="(6, 1, 1)",
    )
    clustered = type(k)(k.name, k.extents, k.params, k.grid, k.block, k.buffers, k.mbarriers, k.counters, k.body, kernel("", block="(2, 1, 1)").block)
    np.testing.assert_array_equal(simulate(clustered, [X])[0], [0, 1, 0, 1, 0, 1])


def test_expressions_without_a_value() -> None:
    k = kernel("FOR i in 0..4//(N - 3):\n  y[i] = copy(x[i])", "DIM N", inputs="x: float32[N]")
    assert error(k, [X[:3]]).splitlines()[:2] == [
        "k: the expression 4//(N - 3) has no value: integer division or modulo by zero",
        "note: statement: FOR i in 0..4//(N - 3):",
    ]
    launch = kernel("", "DIM N", inputs="x: float32[N]", grid="(4//(N - 3), 1, 1)")
    assert error(launch, [X[:3]]) == "k: the expression 4//(N - 3) has no value: integer division or modulo by zero"
