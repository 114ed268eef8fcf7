"""Questions of the value layer: what is said to hold, or to be equal, is at all small extents; elements exist inside their shapes."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.check.bounded_variables import BoundedElement, Trip
from taskfuse.check.constraints import Constraints
from taskfuse.check.values.questions import equal, inside, proves
from taskfuse.ir.scalar import Expr, const, evaluate, parse_expr, sym
from tests.strategies import built
from tests.visits import KNOWN

CONDITIONS = ("i < j", "i + j < 4", "i//2 == j", "2*i + j < N", "i % 2 == 1", "i != j", "N >= 2", "N % 2 == 0", "i >= N - 1")
TERMS = ("i", "j", "N", "i//2", "i % 2", "(i + N)//2", "i*N", "min(i, j)", "max(i - j, 0)", "(N + 3)//4", "i//N", "(i*N + j)//N", "xor(i, 1)")


def known(conditions: list[str]) -> Constraints:
    trips = Trip(sym("i"), const(0), parse_expr("N + 2"), ()), BoundedElement(sym("j"), (0, 3))
    return KNOWN.given(*trips, *map(parse_expr, conditions))


def points(conditions: list[str]) -> list[dict[str, int]]:
    """All that satisfies what is known, at small extents."""
    found = ({"N": n, "M": 1, "i": i, "j": j} for n in (1, 2, 3, 4, 7) for i, j in product(range(n + 2), range(4)))
    return [p for p in found if all(evaluate(parse_expr(c), p) for c in conditions)]


FORMS = built(lambda a, k, b, c: parse_expr(f"{a} + {k}*({b}) + {c}"), st.sampled_from(TERMS), st.integers(-3, 3), st.sampled_from(TERMS), st.integers(-4, 4))


@settings(max_examples=40)
@given(st.lists(st.sampled_from(CONDITIONS), max_size=2), FORMS, st.sampled_from(["<", "<=", "==", "!="]))
def test_what_is_proved_holds(conditions: list[str], form: Expr, op: str) -> None:
    condition = parse_expr(f"{form} {op} 0")
    if proves(known(conditions), condition):
        assert all(evaluate(condition, p) for p in points(conditions))


@settings(max_examples=40)
@given(st.lists(st.sampled_from(CONDITIONS), max_size=2), FORMS, FORMS)
def test_what_is_equal_has_one_value(conditions: list[str], a: Expr, b: Expr) -> None:
    if equal(known(conditions), a, b):
        assert all(evaluate(a, p) == evaluate(b, p) for p in points(conditions))


FOUND = ["i < N + 2", "i//2 <= i", "(i*4 + j)//4 == i", "j < 4", "i//N < 3", "min(i, j) <= 3"]


def test_the_span_of_an_element_drops_out_of_a_quotient() -> None:
    quotient = parse_expr("(448*i + 4*(N % 99) + j)//784")
    assert equal(known([]), quotient, parse_expr("(112*i + N % 99)//196"))
    assert not equal(known([]), quotient, parse_expr("(112*i + N % 99 + 1)//196"))
    assert not equal(known([]), parse_expr("(448*i + 4*(N % 99) + 2*j)//784"), parse_expr("(112*i + N % 99)//196"))


@pytest.mark.parametrize("text", FOUND)
def test_what_it_is_there_for(text: str) -> None:
    assert proves(known([]), parse_expr(text))


def test_an_element_exists_inside_its_shape() -> None:
    i, n = sym("i"), sym("N")
    assert inside((i, const(2)), (n, const(3))) == (parse_expr("i >= 0"), parse_expr("i < N"))
    assert inside((), ()) == ()
    assert [str(c) for c in inside((const(3),), (const(3),))] == ["0"]  # it does not
    with pytest.raises(ValueError, match="zip"):
        inside((i,), ())
