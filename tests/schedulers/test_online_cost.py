"""The cost model of one walk: it counts passes, repairs and vectors."""

from __future__ import annotations

from taskfuse.schedulers.online_cost import OnlineConfig, estimate, rank, vector
from taskfuse.schedulers.row_cost import RowProblem

LONG = RowProblem(8192, 32768, 4, phases=2, loads=(4,), store_bytes=0, functions=1)


def test_a_second_walk_and_more_repairs_cost_time() -> None:
    config = OnlineConfig(128, 1, 4)
    assert estimate(LONG, 2, config).us > 1.2 * estimate(LONG, 1, config).us
    assert estimate(LONG, 1, OnlineConfig(128, 1, 1)).us > estimate(LONG, 1, config).us


def test_one_walk_of_long_rows_is_near_the_time_of_their_bytes() -> None:
    best = rank(LONG, 1)[0]
    assert best.us < 1.2 * LONG.target.dram_us(8192 * 32768 * 4)
    assert best == estimate(LONG, 1, best.config)


def test_steps_that_do_not_fill_a_row_are_of_elements() -> None:
    assert vector(LONG, OnlineConfig(128, 1, 4)) == 4
    odd = RowProblem(8192, 32764, 4, phases=2, loads=(4,), store_bytes=0, functions=1)
    assert vector(odd, OnlineConfig(128, 1, 4)) == 1
    assert estimate(odd, 1, OnlineConfig(128, 1, 4)).us > 1.1 * estimate(LONG, 1, OnlineConfig(128, 1, 4)).us
    across = RowProblem(8192, 33, 4, is_inner=False, phases=2)
    assert vector(across, OnlineConfig(4, 8, 4)) == 4
