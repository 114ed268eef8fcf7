"""Ranges of integer functions against the functions themselves, on every operand of every range; and bounds of functions of floats."""

import math

import numpy as np
import pytest

from taskfuse.dtypes import float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise, Range

RULED = [row for row in ELEMENTWISE.values() if row.ranges is not None]
BOUNDED = [row for row in ELEMENTWISE.values() if row.bound is not None and row.computes_in(float32)]


def results(row: Elementwise, ranges: list[Range]) -> list[int]:
    """All that a function makes of integers in these ranges."""
    grids = np.meshgrid(*(np.arange(low, high + 1, dtype=np.int64) for low, high in ranges), indexing="ij")
    if row.rule is DTypeRule.SELECT:
        grids = [np.random.default_rng(0).random(grids[0].shape) < 0.5, *grids]
    with np.errstate(all="ignore"):
        return [int(v) for v in np.asarray(row.function(*grids)).ravel()]


@pytest.mark.parametrize("row", RULED, ids=str)
def test_no_result_is_outside_of_its_range(row: Elementwise) -> None:
    count = row.arity - (row.rule is DTypeRule.SELECT)
    rng, narrow, told = np.random.default_rng(1), 0, 0
    for _ in range(300):
        least = rng.integers(-9, 9, count)
        ranges = [(int(low), int(low + rng.integers(0, 5))) for low in least]
        assert row.ranges is not None
        found = row.ranges(*ranges)
        if found is None:
            continue
        values = results(row, ranges)
        told += 1
        assert found[0] <= min(values)
        assert max(values) <= found[1]
        narrow += found == (min(values), max(values))
    assert told > 30
    assert narrow > 10  # as narrow as can be, for some


@pytest.mark.parametrize("row", BOUNDED, ids=str)
def test_no_result_exceeds_its_bound(row: Elementwise) -> None:
    assert row.bound is not None
    some = np.array([0, 1, -1, 0.5, -0.5, 3e-3, 20, -20, 1e4, -1e4, math.inf, -math.inf, math.nan, 3e38], np.float32)
    operands = np.meshgrid(*[some] * row.arity, indexing="ij")
    with np.errstate(all="ignore"):
        greatest = float(np.nanmax(np.abs(row.function(*operands))))
    assert 0.5 * row.bound < greatest <= row.bound * (1 + 1e-6)


def test_results_of_other_rules_have_no_range() -> None:
    assert not [row for row in RULED if row.rule in (DTypeRule.FLOAT, DTypeRule.DIVIDE, DTypeRule.BOOL)]
