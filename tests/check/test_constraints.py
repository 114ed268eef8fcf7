"""What is known at a place: what constant bounds imply is not added, and what bears on a question is one question in many places."""

import pytest

from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import Ranges
from taskfuse.ir.scalar import Facts, parse_expr, sym


def known() -> Constraints:
    """A symbol from 0 to 31, and one that is not negative."""
    ranges = Ranges({}).with_span(sym("x"), (0, 31)).with_span(sym("n"), (0, None))
    return Constraints(ranges, Facts().with_range("x", 0, 31).with_range("n", 0, None))


@pytest.mark.parametrize("text", ["x < 32", "x >= 0", "n + x >= 0", "2*x <= 62"])
def test_a_condition_that_bounds_imply_adds_nothing(text: str) -> None:
    before = known()
    assert before.given(parse_expr(text)) is before


@pytest.mark.parametrize("text", ["x < 31", "x < n", "n >= 1", "n != 4"])
def test_any_other_condition_is_an_assumption(text: str) -> None:
    before, condition = known(), parse_expr(text)
    after = before.given(condition)
    assert after.assumptions == (condition,)
    assert after.proves(condition)
    assert not before.proves(condition)
    assert before.given(condition) is after


@pytest.mark.parametrize(
    ("conditions", "empty"),
    [
        (["x < 5", "x > 6"], True),
        (["x < n", "n < 1"], True),
        (["n < 1", "x < n"], True),
        (["x < 5", "n > 6"], False),
        (["x + n < 0"], True),
    ],
)
def test_a_contradiction_is_seen_whichever_comes_first(conditions: list[str], empty: bool) -> None:
    assert known().given(*map(parse_expr, conditions)).empty is empty


def test_the_rest_does_not_bear_on_a_question() -> None:
    one, _ = known().given(parse_expr("x < 7"), parse_expr("n < 9")).about(parse_expr("x < 8"))
    two, _ = known().given(parse_expr("n > 2"), parse_expr("x < 7")).about(parse_expr("x < 8"))
    assert one.assumptions == two.assumptions == (parse_expr("x < 7"),)


def test_what_is_not_negative_and_below_a_maximum_with_0() -> None:
    assert known().given(parse_expr("x < 2*max(n, 0)")).assumptions == (parse_expr("x < 2*n"),)
    assert known().given(parse_expr("x - 9 < 2*max(n, 0)")).assumptions == (parse_expr("x - 9 < 2*max(n, 0)"),)
