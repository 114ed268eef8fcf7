"""Constant bounds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings

from taskfuse.ir.scalar import Expr, bounds, evaluate, gt, interval, table, xor
from tests.ir.scalar.generated import EXPRESSIONS, NEST, NEST_POINTS
from tests.ir.scalar.nests import S, i0, i1, nest, x, y


def test_bounds() -> None:
    facts = nest(i0=(0, 7), i1=(-2, 3)).with_multiple("S", 4).with_multiple("S", 6)
    assert bounds(2 * i0 - i1 + 1, facts) == (-2, 17)
    assert bounds(i0 * i1, facts) == (-14, 21)
    assert bounds(i0 - S, facts) == (None, 7)
    assert bounds(x, facts) == (None, None)
    assert bounds(i0 // 2 % 3, facts) == (0, 2)
    assert bounds(xor(i0, 8), facts) == (0, 15)
    assert bounds(S, facts.with_assumption(gt(S, 1))) == (12, None)
    assert bounds(table([9, 1, 5], i0 // 4), facts) == (1, 9)


@settings(deadline=None)
@given(EXPRESSIONS, NEST_POINTS)
def test_values_are_within_bounds(e: Expr, points: list[dict[str, int]]) -> None:
    low, high = bounds(e, NEST)
    values = [evaluate(e, point) for point in points]
    assert low is None or low <= min(values)
    assert high is None or max(values) <= high


@pytest.mark.parametrize("name", ["floordiv", "mod"])
def test_quotients_and_remainders_by_divisors_of_any_sign_are_as_tight_as_can_be(name: str) -> None:
    """Of all dividends and divisors that are not 0: an extent less a tile's offset, say, may be negative as far as intervals know."""
    operation: Callable[[Any, Any], Any] = getattr(operator, name)
    ranges = [(lo, hi) for lo in range(-5, 6) for hi in range(lo, 6)]
    for a in ranges:
        for b in ranges:
            if b == (0, 0):
                continue
            values = [operation(i, j) for i in range(a[0], a[1] + 1) for j in range(b[0], b[1] + 1) if j]
            low, high = interval(operation(x, y), nest(x=a, y=b))
            assert low is not None
            assert high is not None
            assert low <= min(values), (a, b)
            assert max(values) <= high, (a, b)
            if name == "floordiv":
                assert (low, high) == (min(values), max(values)), (a, b)


@pytest.mark.parametrize(
    ("e", "ranges", "expected"),
    [
        (x // y, {"x": (0, 40), "y": (None, None)}, (-40, 40)),
        (x // y, {"x": (8, 40), "y": (None, -4)}, (-10, -1)),
        (x // y, {"x": (None, 40), "y": (2, None)}, (None, 20)),
        (x % y, {"x": (None, None), "y": (-6, 8)}, (-5, 7)),
        (x % y, {"x": (2, 3), "y": (4, 9)}, (2, 3)),
        (x % y, {"x": (0, 3), "y": (None, None)}, (None, 3)),
        (x // y, {"x": (0, 40), "y": (0, 0)}, (None, None)),  # no value
    ],
)
def test_divisors_without_bounds(e: Expr, ranges: dict[str, tuple[int, int]], expected: tuple[int | None, int | None]) -> None:
    assert interval(e, nest(**ranges)) == expected
