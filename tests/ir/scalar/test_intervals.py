"""Constant bounds."""

from __future__ import annotations

from hypothesis import given, settings

from taskfuse.ir.scalar import Expr, bounds, evaluate, gt, table, xor
from tests.ir.scalar.generated import EXPRESSIONS, NEST, NEST_POINTS
from tests.ir.scalar.nests import S, i0, i1, nest, x


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
