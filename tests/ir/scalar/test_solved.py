"""Conditions solved for a symbol: the bounds that are found hold, and are the nearest, at all values of the other symbols."""

import pytest

from taskfuse.ir.scalar import evaluate, parse_expr, range_where

FOUND = {
    "t < c//2 + 1": ("2*t", None),
    "2*t <= c": ("2*t", None),
    "3*c < 2*t + 5": (None, "(2*t + 1)//3 + 2"),
    "max(c - 5, 0)//4 <= t": (None, "4*t + 9"),
    "min(c, 2*c - t) > 3": ("max(ceildiv(t, 2) + 2, 4)", None),
    "(2*c + t)//3 > t": ("t + 2", None),
    "t <= c && c < 2*t + 1": ("t", "2*t + 1"),
    "t - 2*((9 - c)//4) > 0": ("10 - 4*ceildiv(t, 2)", None),
    "c % 3 < t": (None, None),
    "max(c, t) > 3": (None, None),
    "c < t || c < 3": (None, None),
    "t < 3": (None, None),
}


@pytest.mark.parametrize("text", FOUND)
def test_bounds_hold_and_are_the_nearest(text: str) -> None:
    condition = parse_expr(text)
    start, end = range_where(condition, "c")
    assert tuple(None if e is None else str(e) for e in (start, end)) == FOUND[text]
    for t in range(7):
        there = [c for c in range(-30, 60) if evaluate(condition, {"c": c, "t": t})]
        low, high = (None if e is None else int(evaluate(e, {"t": t})) for e in (start, end))
        assert not there or low in (None, there[0])
        assert not there or high in (None, there[-1] + 1)
