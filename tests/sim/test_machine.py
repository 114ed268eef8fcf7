"""Runs as a whole: deadlocks and their reports, step limits, seeds."""

from random import Random

import numpy as np

from taskfuse.kir import parse_kernel
from taskfuse.sim import simulate
from tests.sim.kernels import X, error, kernel, load, replaced

SHARED = "SHARED s: float32[32] align 4"


def test_deadlock_report() -> None:
    k = parse_kernel(replaced(load("ring"), "parity 1", "parity 0"))
    x = np.zeros((3, 32), np.float32)
    assert error(k, [x]).splitlines() == [
        "ring: deadlock: no thread can continue",
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
