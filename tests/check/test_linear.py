"""Linear arithmetic against all small integers: what is said to hold has no counterexample; what it is there for is found."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.constraints import Constraints
from taskfuse.check.linear import Linear
from taskfuse.check.ranges import Ranges
from taskfuse.ir.scalar import Expr, Facts, FloorDiv, const, evaluate, ge, le, parse_expr, sym
from tests.strategies import built

NAMES = ("a", "b", "c")
LEAST, GREATEST = -3, 4
POINTS: list[dict[str, int]] = [dict(zip(NAMES, values, strict=True)) for values in product(range(LEAST, GREATEST + 1), repeat=3)]
SMALL = st.integers(-3, 3)
TERMS: st.SearchStrategy[Expr] = st.one_of(
    st.sampled_from([sym(n) for n in NAMES]),
    built(lambda n, k: sym(n) // k, st.sampled_from(NAMES), st.integers(1, 3)),
    built(lambda n, k: sym(n) % k, st.sampled_from(NAMES), st.integers(1, 4)),
    built(lambda n, m: sym(n) * sym(m), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


def _sum(parts: list[tuple[int, Expr]], constant: int) -> Expr:
    found: Expr = const(constant)
    for k, term in parts:
        found = found + term * k
    return found


FORMS = st.builds(_sum, st.lists(st.tuples(SMALL, TERMS), min_size=1, max_size=3), st.integers(-6, 6))


def known(*conditions: Expr, bounded: bool = True) -> Constraints:
    bounds = [c for n in NAMES for c in (ge(sym(n), LEAST), le(sym(n), GREATEST))] if bounded else []
    return Constraints(Ranges({}), Facts()).given(*bounds, *conditions)


@settings(max_examples=150)
@given(FORMS, st.lists(FORMS, max_size=3))
def test_what_is_said_has_no_counterexample(form: Expr, conditions: list[Expr]) -> None:
    if Linear.of(known(*(ge(c, 0) for c in conditions))).nonnegative(form):
        for point in POINTS:
            if all(evaluate(c, point) >= 0 for c in conditions):
                assert evaluate(form, point) >= 0, f"{form} at {point}"


HOLD = {
    "a chain": (["b - a", "c - b"], "c - a"),
    "a sum of two": (["a - b", "c - 2"], "a + c - b - 2"),
    "rounding": (["2*a - 1"], "a - 1"),
    "an equation that leaves the divisor": (["a - 4*b", "4*b - a", "a - 1"], "b - 1"),
    "a quotient": (["a - 8"], "a//8 - 1"),
    "the end of a tile": (["n - 1 - a", "a"], "(n + 7)//8 - 1 - a//8"),
    "a remainder": (["a"], "7 - a % 8"),
    "a product of what is not negative": (["a", "b - 1", "n - 1"], "a*n"),
    "a product that is less": (["a", "b - 1 - a", "n"], "b*n - a*n"),
    "a product with its rounding": (["a", "b - 1 - a", "n - 1"], "b*n - a*n - n"),
}


@pytest.mark.parametrize("name", HOLD)
def test_what_it_finds(name: str) -> None:
    conditions, form = HOLD[name]
    linear = Linear.of(known(*(ge(parse_expr(c), 0) for c in conditions), bounded=False))
    assert linear.nonnegative(parse_expr(form))
    assert not linear.nonnegative(parse_expr(form) - 1_000_000)


def test_without_a_condition_it_does_not_follow() -> None:
    for name, (conditions, form) in HOLD.items():
        if name not in ("a remainder", "a product of what is not negative"):
            assert not Linear.of(known(bounded=False)).nonnegative(parse_expr(form)), name
        for k in range(len(conditions)):
            rest = [ge(parse_expr(c), 0) for j, c in enumerate(conditions) if j != k]
            if name in ("a chain", "a sum of two", "rounding"):
                assert not Linear.of(known(*rest, bounded=False)).nonnegative(parse_expr(form)), f"{name} without {conditions[k]}"


def test_the_greatest_value_of_a_quotient() -> None:
    n = sym("n")
    facts = Facts().with_range("n", 1, None).with_range("a", 0, 3 * n - 1)
    linear = Linear(Constraints(Ranges({n: (1, None)}), facts))
    quotient = sym("a") // n
    assert isinstance(quotient, FloorDiv)
    assert linear.most(quotient) == 2
