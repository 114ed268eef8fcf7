"""Threads that part and meet again."""

import numpy as np
import pytest

from tests.sim.kernels import X, error, kernel, run_all


def test_a_loop_needs_a_positive_step() -> None:
    k = kernel("FOR i in 0..4 step N - 3:\n  y[i] = copy(x[i])", "DIM N", inputs="x: float32[N]")
    assert error(k, [X[:3]]).splitlines()[0] == "k: loop over 'i' with step 0"


def test_bind_has_no_code() -> None:
    k = kernel("FOR threadIdx.x in TIDx{32}:\n  y[threadIdx.x] = copy(x[threadIdx.x])")
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


def test_a_cursor_that_some_threads_start_anew_is_known_behind_the_branch() -> None:
    k = kernel(
        """
        c = CURSOR(slots 3, slot 0, parity 0)
        IF threadIdx.x < 16:
          c = CURSOR(slots 3, slot 2, parity 0)
        b = copy.int64(index(c.slot))
        y[threadIdx.x] = copy(b)
        """,
        "LOCAL b: float32[]",
    )
    run_all(k, [X], np.repeat([2, 0], 16).astype(np.float32))
