"""The cost model of one walk: it counts passes, repairs and vectors."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.schedulers.online_cost import OnlineConfig, estimate, rank
from taskfuse.schedulers.row_cost import RowProblem

LONG = RowProblem(8192, 32768, 4, phases=2, loads=(4,), store_bytes=0, functions=1)


def test_each_walk_reads_all_inputs() -> None:
    """What the phases of kernels that are no cascade load again does not matter."""
    config = OnlineConfig(64, 1, 4)
    for walks in (1, 2):
        assert estimate(replace(LONG, again=0.0), walks, config).us == estimate(LONG, walks, config).us


def test_a_second_walk_and_more_repairs_cost_time() -> None:
    config = OnlineConfig(128, 1, 4)
    assert estimate(LONG, 2, config).us > 1.2 * estimate(LONG, 1, config).us
    assert estimate(LONG, 1, OnlineConfig(128, 1, 1)).us > estimate(LONG, 1, config).us


def test_one_walk_of_long_rows_is_near_the_time_of_their_bytes() -> None:
    best = rank(LONG, 1)[0]
    assert best.us < 1.2 * LONG.target.dram_us(8192 * 32768 * 4)
    assert best == estimate(LONG, 1, best.config)


def test_steps_that_do_not_fill_a_row_cost_as_much_as_full_ones() -> None:
    config = OnlineConfig(256, 1, 8)
    odd = RowProblem(8192, 8196, 4, phases=2, loads=(4,), store_bytes=0, functions=1)
    assert estimate(odd, 1, config).us > estimate(RowProblem(8192, 8192, 4, phases=2, loads=(4,), store_bytes=0, functions=1), 1, config).us
