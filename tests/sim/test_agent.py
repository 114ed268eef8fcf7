"""Agents part and meet again."""

import numpy as np

from tests.sim.kernels import X, kernel, run_all


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
