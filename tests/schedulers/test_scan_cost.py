"""The cost model of scans across rows: how many threads share one, and how many rows stand side by side."""

from dataclasses import replace
from math import ceil

import pytest

from taskfuse.schedulers import ScanConfig
from taskfuse.schedulers.scan_cost import ScanProblem, candidates, estimate, levels, rank, registers, residents, totals_of
from taskfuse.target import MAX_THREADS


def problem(batch: int, columns: int, run: int, itemsize: int = 4, width: int = 1) -> ScanProblem:
    elements, moved = batch * columns * run, float(batch * columns * run * itemsize)
    return ScanProblem(batch * run, columns, run, (itemsize,), (itemsize,), (4,), moved, moved, 2.0 * elements, width)


def test_the_longer_a_row_the_fewer_stand_side_by_side() -> None:
    chosen = [rank(problem(8, n, 1024))[0].config for n in (16, 360, 2048, 4096)]
    rows = [c.rows * c.width for c in chosen]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] >= 32
    assert chosen[0].chunk < 16 or rows[0] >= 32
    for config in chosen:
        assert config.rows * config.width * 4 >= 32  # whole sectors


def test_candidates_fit_a_block() -> None:
    found = list(candidates(problem(8, 2048, 1024, 2, 8)))
    assert any(e.config.width > 1 for e in found)
    for e in found:
        assert e.config.rows * ceil(2048 / e.config.chunk) <= MAX_THREADS
        assert e.residents >= 1
        assert registers(problem(8, 2048, 1024, 2, 8), e.config) * e.config.rows * ceil(2048 / e.config.chunk) <= 65536
    assert not rank(problem(1, 1 << 20, 4))


def test_parts_of_sectors_cost() -> None:
    """Rows whose elements fill no sector; and those that begin within one."""
    config = ScanConfig(16, 4)
    aligned, whole = (estimate(problem(64, 512, 320), c).us for c in (config, replace(config, rows=8)))
    assert aligned > 1.5 * whole
    assert estimate(problem(64, 512, 321), ScanConfig(16, 8)).us > 1.2 * 321 / 320 * whole


def test_few_blocks_leave_multiprocessors_idle() -> None:
    """4 blocks move what 132 could."""
    few, many = problem(1, 1024, 32), problem(33, 1024, 32)
    assert estimate(few, ScanConfig(16, 8)).us > 0.4 * estimate(many, ScanConfig(16, 8)).us
    assert rank(few)[0].config.rows < rank(many)[0].config.rows


def test_what_is_needed_again_and_further_scans_take_registers() -> None:
    one = problem(8, 2048, 1024)
    config = ScanConfig(32, 16)
    assert residents(one, config) == 1
    for more in (replace(one, late=(4,)), replace(one, totals=(4, 8)), replace(one, totals=(8,))):
        assert registers(more, config) > registers(one, config)
        assert residents(more, config) == 0
    assert registers(one, ScanConfig(8, 16, 4)) > registers(one, ScanConfig(32, 16))


def test_levels_of_totals() -> None:
    assert levels(12, 32, 16) == (12,)
    assert levels(64, 32, 16) == (16, 4)
    assert levels(1000, 32, 16) == (16, 16, 4)
    assert totals_of(4, 1) == (32, 16)
    assert totals_of(8, 2) == (8, 4)
    assert totals_of(8, 16) == (2, 2)


MEASURED = [
    ((64, 360, 321), 4, ScanConfig(30, 64), 22.6),
    ((64, 360, 321), 2, ScanConfig(30, 32), 14.9),
    ((8, 2048, 1024), 4, ScanConfig(32, 16), 41.4),
    ((8, 2048, 1024), 2, ScanConfig(32, 8), 47.7),
    ((4, 4096, 256), 4, ScanConfig(32, 4), 24.3),
    ((32, 128, 768), 2, ScanConfig(16, 32, 2), 4.4),
]
"""Microseconds of sums along the second axis (``benchmarks/scans.py --middle --sweep``, H200)."""


@pytest.mark.parametrize(("shape", "itemsize", "config", "us"), MEASURED)
def test_it_agrees_with_measured_times(shape: tuple[int, int, int], itemsize: int, config: ScanConfig, us: float) -> None:
    assert estimate(problem(*shape, itemsize, 8), config).us == pytest.approx(us, rel=0.12)


def test_it_chooses_the_fastest_that_were_measured() -> None:
    assert rank(problem(8, 2048, 1024))[0].config == ScanConfig(32, 16)
    assert rank(problem(4, 4096, 256, 2))[0].config == ScanConfig(32, 8)
    assert rank(problem(32, 128, 768, 2, 8))[0].config == ScanConfig(16, 32, 2)
