"""What the interleavings decide, and that it follows from the seed."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.sim import Interleaving, simulate
from taskfuse.sim.interleaving import by_seed, policy
from tests.sim.kernels import INTERLEAVINGS, X, kernel

# every thread takes a ticket: what it reads tells who was there before it
TICKETS = kernel(
    """
    IF threadIdx.x == 0:
      s[0] = copy(0.0)
    SYNC block
    IF threadIdx.x < 8:  # first
      FOR i in 0..4:
        s[0] = add(s[0], 1.0)
        y[0, i] = copy(s[0])
    ELSE:  # second
      FOR i in 0..4:
        s[0] = add(s[0], 1.0)
        y[1, i] = copy(s[0])
    """,
    "SHARED s: float32[1] align 4",
    outputs="y: float32[2, 4]",
    block="(16, 1, 1)",
)


def order(interleaving: Interleaving, seed: int = 0) -> tuple[float, ...]:
    try:
        return tuple(simulate(TICKETS, [X], seed=seed, interleaving=interleaving)[0].reshape(-1).tolist())
    except SimulationError as e:  # the threads race, so that they may disagree
        return (float(len(str(e))),)


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
def test_runs_replay(interleaving: Interleaving) -> None:
    assert order(interleaving, 5) == order(interleaving, 5)


def test_random_schedulers_depend_on_the_seed() -> None:
    k = kernel(
        """
        IF threadIdx.x == 0:
          s[0] = copy(0.0)
        SYNC block
        IF threadIdx.x == 0:
          FOR i in 0..6:
            s[0] = copy.int64(index(i))
        ELSE:
          FOR i in 0..6:
            y[i] = copy(s[0])
        """,
        "SHARED s: float32[1] align 4",
        outputs="y: float32[6]",
        block="(2, 1, 1)",
    )
    for interleaving in (Interleaving.RANDOM, Interleaving.RANDOM_FINE, Interleaving.PCT):
        runs = {tuple(simulate(k, [X], seed=seed, interleaving=interleaving)[0].tolist()) for seed in range(30)}
        assert len(runs) > 2, interleaving


def test_producer_first_and_consumer_first() -> None:
    k = kernel(
        "IF threadIdx.x == 0:\n  s[0] = copy(0.0)\nSYNC block\nIF threadIdx.x == 0:\n  s[0] = copy(1.0)\nELSE:\n  y[0] = copy(s[0])",
        "SHARED s: float32[1] align 4",
        outputs="y: float32[1]",
        block="(2, 1, 1)",
    )
    assert simulate(k, [X], interleaving=Interleaving.LOW_FIRST)[0] == 1
    assert simulate(k, [X], interleaving=Interleaving.HIGH_FIRST)[0] == 0


def test_engines_early_and_late() -> None:
    """A load races with a read of its destination: early engines win, late ones lose."""
    k = kernel(
        """
        IF threadIdx.x == 0:
          INIT full[0] count 1
          FENCE mbarrier_init
          EXPECT full[0] bytes 128
          TMA s[0] <- map_x(0) on full[0]
          IF phases < 2:
            WAIT full[0] parity 0
          y[0] = copy(s[1])
        """,
        "DIM phases",
        "TENSORMAP map_x = x box (32) swizzle 0",
        "SHARED s: float32[32] align 128",
        "MBARRIER full[1]",
        inputs="x: float32[32], z: float32[phases]",
        outputs="y: float32[1]",
        block="(2, 1, 1)",
    )
    for interleaving in INTERLEAVINGS:
        assert simulate(k, [X, X[:1]], interleaving=interleaving)[0] == 1
    assert simulate(k, [X, X[:2]], interleaving=Interleaving.ASYNC_EARLY)[0] == 1
    with pytest.raises(SimulationError, match="accessed while a TMA load that writes it is in flight"):
        simulate(k, [X, X[:2]], interleaving=Interleaving.ASYNC_LATE)


def test_seeds_take_the_schedulers_in_turn() -> None:
    assert [by_seed(seed) for seed in range(9)] == [*INTERLEAVINGS, Interleaving.ROUND_ROBIN]


@pytest.mark.parametrize("interleaving", INTERLEAVINGS)
def test_split_points_are_inside_the_block(interleaving: Interleaving) -> None:
    for seed in range(20):
        decisions = policy(interleaving, seed)
        assert decisions.split_points(1) == []
        for units in (2, 3, 12):
            points = decisions.split_points(units)
            assert points == sorted(set(points))
            assert all(0 < point < units for point in points)
            assert decisions.quantum() >= 1
            assert 0 <= decisions.action(units) < units


def test_pct_lowers_priorities() -> None:
    """With its three change points PCT finds an order that needs two preemptions."""
    k = kernel(
        """
        IF threadIdx.x == 0:
          s[0] = copy(0.0)
        SYNC block
        IF threadIdx.x == 0:
          s[0] = copy(1.0)
          s[0] = copy(2.0)
        ELSE:
          y[0] = copy(s[0])
          y[1] = copy(s[0])
        """,
        "SHARED s: float32[1] align 4",
        outputs="y: float32[2]",
        block="(2, 1, 1)",
    )
    seen = {tuple(simulate(k, [X], seed=seed, interleaving=Interleaving.PCT)[0].tolist()) for seed in range(400)}
    assert {(0, 0), (2, 2), (1, 2)} <= seen
    assert np.all([a <= b for a, b in seen])
