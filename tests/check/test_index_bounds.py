"""Indices in a box: bounds that conditions give, and how many points satisfy them."""

from __future__ import annotations

from taskfuse.check.index_bounds import bounds_of, box_count
from taskfuse.ir.scalar import Expr, parse_expr, sym
from tests.check.structured import structure

COPY = "y[0, 0] = copy(x[0, 0])"


def conditions(*texts: str) -> tuple[Expr, ...]:
    return tuple(parse_expr(t) for t in texts)


def test_remainders_are_counted_where_they_come_out_even() -> None:
    found = structure(COPY, "(32, 8*N, 1)")
    extents = {"threadIdx.y": parse_expr("8*N")}
    names, context = ("threadIdx.y",), found.tree.root.context
    assert box_count(conditions("threadIdx.y % 4 == 1"), extents, names, context) is parse_expr("2*N")
    assert box_count(conditions("threadIdx.y % 3 == 1"), extents, names, context) is None
    assert box_count(conditions("threadIdx.y % 4 < 4"), extents, names, context) is parse_expr("8*N")
    assert box_count(conditions("k < 3"), extents, names, context) is None


def test_bounds_that_conditions_give() -> None:
    found = structure(COPY, "(64, 1, 1)")
    context = found.tree.root.context
    given = conditions("k >= 2", "k < N", "j + k <= 9")
    assert bounds_of("k", context, conditions=given) == (parse_expr("2"), parse_expr("min(N, 10 - j) - 1"))
    assert bounds_of("k", context, lambda e: "j" not in e.free, conditions=given) == (parse_expr("2"), parse_expr("N - 1"))
    assert bounds_of("k", context, conditions=conditions("k != 3", "2*k < N")) is None
    assert bounds_of("k", context, conditions=conditions("k == j")) == (sym("j"), sym("j"))
