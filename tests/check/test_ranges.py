"""Spans against all small integers: every value lies in the span; what is refuted holds nowhere, what is implied everywhere."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.ranges import Ranges, terms_of, without_floor
from taskfuse.ir.scalar import Expr, const, eq, evaluate, ge, le, lt, maximum, minimum, ne, parse_expr, sym
from tests.strategies import built

NAMES = ("a", "b")
LEAST, GREATEST = -5, 6
POINTS: list[dict[str, int]] = [dict(zip(NAMES, values, strict=True)) for values in product(range(LEAST, GREATEST + 1), repeat=2)]
LEAVES = st.one_of(st.sampled_from([sym(n) for n in NAMES]), st.integers(-4, 4).map(const))
EXPRS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        built(lambda x, y: x + y, inner, inner),
        built(lambda x, y: x - y, inner, inner),
        built(lambda x, k: x * k, inner, st.integers(-3, 3)),
        built(lambda x, y: x * y, inner, inner),
        built(lambda x, k: x // k, inner, st.integers(1, 4)),
        built(lambda x, k: x % k, inner, st.integers(1, 4)),
        built(minimum, inner, inner),
        built(maximum, inner, inner),
    ),
    max_leaves=4,
)
CONDITIONS = built(lambda make, x, y: make(x, y), st.sampled_from([lt, le, ge, eq, ne]), EXPRS, EXPRS)


def boxed(*conditions: Expr) -> Ranges:
    ranges = Ranges({})
    for n in NAMES:
        ranges = ranges.with_span(sym(n), (LEAST, GREATEST))
    return ranges.under_all(conditions)


def holding(conditions: list[Expr]) -> list[dict[str, int]]:
    return [p for p in POINTS if all(evaluate(c, p) for c in conditions)]


@settings(max_examples=200)
@given(EXPRS, st.lists(CONDITIONS, max_size=2))
def test_values_lie_in_their_spans(e: Expr, conditions: list[Expr]) -> None:
    ranges = boxed(*conditions)
    low, high = ranges.of(e)
    points = holding(conditions)
    assert not (ranges.empty and points)
    for point in points:
        value = evaluate(e, point)
        assert low is None or low <= value
        assert high is None or value <= high


@settings(max_examples=200)
@given(CONDITIONS, st.lists(CONDITIONS, max_size=2))
def test_what_is_refuted_or_implied(condition: Expr, conditions: list[Expr]) -> None:
    ranges = boxed(*conditions)
    values = {bool(evaluate(condition, point)) for point in holding(conditions)}
    if ranges.refutes(condition):
        assert not any(values)
    if ranges.implies(condition):
        assert all(values)


@pytest.mark.parametrize(
    ("conditions", "e", "span"),
    [
        (["a >= 3"], "a//2", (1, 3)),
        (["a >= 1", "b >= 2"], "a + b", (3, 12)),
        (["a == 4"], "3*a - 1", (11, 11)),
        ([], "a % 4", (0, 3)),
        ([], "min(a, 2)", (-5, 2)),
        (["a + 2*b <= 5"], "a + 2*b + 4", (-11, 9)),  # what is said of a sum holds of it with another constant, and negated
        (["a + 2*b <= 5"], "7 - a - 2*b", (2, 22)),
        (["3 <= b - a"], "a - b + 1", (-10, -2)),
        (["a + 2*b <= 5"], "2*a + 4*b", (-30, 36)),  # and not of a multiple
    ],
)
def test_how_close_they_are(conditions: list[str], e: str, span: tuple[int, int]) -> None:
    assert boxed(*map(parse_expr, conditions)).of(parse_expr(e)) == span


def test_symbols_of_which_nothing_is_known() -> None:
    assert Ranges({}).of(sym("n")) == (None, None)
    assert Ranges({}).of(sym("n") % 8) == (0, 7)
    assert not Ranges({}).refutes(lt(sym("n"), 0))
    assert not Ranges({}).implies(ge(sym("n"), 0))


def test_a_contradiction_is_empty() -> None:
    assert boxed(parse_expr("a < 2"), parse_expr("a > 3")).empty
    assert not boxed(parse_expr("a < 2"), parse_expr("a > 0")).empty


@given(EXPRS)
def test_terms_add_up(e: Expr) -> None:
    terms, constant = terms_of(e)
    found: Expr = const(constant)
    for term, k in terms:
        found = found + term * k
    assert found is e


@given(built(lambda e, k, c: maximum(e, c) * k, EXPRS, st.integers(1, 3), st.integers(-2, 1)), st.integers(0, 20))
def test_what_is_not_negative_is_below_an_extent_without_its_floor(extent: Expr, x: int) -> None:
    assert all((x < int(evaluate(extent, at))) == (x < int(evaluate(without_floor(extent), at))) for at in POINTS)


@pytest.mark.parametrize(
    ("extent", "found"), [("3*max(a - b, 0)", "3*a - 3*b"), ("max(a, b, -1)", "max(a, b)"), ("max(a, 1)", "max(a, 1)"), ("max(a, 0) + b", "max(a, 0) + b")]
)
def test_floors(extent: str, found: str) -> None:
    assert without_floor(parse_expr(extent)) is parse_expr(found)
