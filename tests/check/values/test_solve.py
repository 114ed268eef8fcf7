"""Equations of indices: a symbol that stands alone, digits of a number, quotient and remainder; only the one solution there is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.values.solve import Equation, solved
from taskfuse.ir.scalar import Expr, const, evaluate, parse_expr, sym


def same(e: Expr) -> Expr:
    return e


def spans(**ends: int | str) -> dict[str, tuple[Expr, Expr]]:
    return {name: (const(0), parse_expr(str(end))) for name, end in ends.items()}


def equations(*texts: str) -> list[Equation]:
    return [(parse_expr(a), parse_expr(b)) for a, b in (t.split(" = ") for t in texts)]


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4), st.data())
def test_digits_of_a_number(extents: list[int], data: st.DataObject) -> None:
    """Mixed radix: every value of the digits comes back from their number."""
    number: Expr = const(0)
    for k, n in enumerate(extents):
        number = number * n + sym(f"d{k}")
    found, left = solved([(number, sym("p"))], spans(**{f"d{k}": n for k, n in enumerate(extents)}), same)
    assert left == []
    digits = [data.draw(st.integers(0, n - 1)) for n in extents]
    p = int(evaluate(number, {f"d{k}": d for k, d in enumerate(digits)}))
    assert [int(evaluate(found[f"d{k}"], {"p": p})) for k in range(len(extents))] == digits


def test_one_after_another() -> None:
    found, left = solved(equations("i + j = p", "j = q", "k - i = r"), spans(i="N", j="N", k="N"), same)
    assert found == {"j": sym("q"), "i": parse_expr("p - q"), "k": parse_expr("p - q + r")}
    assert left == []


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_quotient_and_remainder(order: tuple[int, int]) -> None:
    both = equations("i//N = 3", "i % N = 1")
    found, left = solved([both[k] for k in order], spans(i="M"), same)
    assert found == {"i": parse_expr("3*N + 1")}
    assert len(left) == 1


@pytest.mark.parametrize("texts", [("i//64 = a", "i//16 % 4 = b", "i % 16 = c"), ("i % 16 = c", "2*(i//64) = 2*a", "3*(i//16 % 4) + q = 3*b + q")])
def test_digits_in_equations_of_their_own(texts: tuple[str, ...]) -> None:
    """As where a row of a tile is a point of a box: all digits that make up the quotient's divisor must be there."""
    found, _ = solved(equations(*texts), spans(i=128), same)
    assert found == {"i": parse_expr("64*a + 16*b + c")}
    assert solved(equations(*texts[:2]), spans(i=128), same)[0] == {}


@pytest.mark.parametrize("texts", [("i//64 = a", "i//8 % 4 = b", "i % 16 = c"), ("i//48 = a", "i//16 % 4 = b", "i % 16 = c"), ("i//64 = a", "i % 0 = b")])
def test_what_are_not_the_digits(texts: tuple[str, ...]) -> None:
    assert solved(equations(*texts), spans(i=128), same)[0] == {}


LEFT = {
    "places that only every other number has": ("2*i = p", spans(i="N")),
    "digits of such places": ("8*i + 2*j = p", spans(i="N", j=4)),
    "digits that overlap": ("3*i + j = p", spans(i=4, j=4)),
    "digits that leave a gap": ("5*i + j = p", spans(i=4, j=4)),
    "a digit that may be negative": ("4*i - j = p", spans(i=4, j=4)),
    "a digit without a constant extent": ("4*i + j = p", spans(i=4, j="N")),
    "twice, and not in one multiple": ("i + i//2 = p", spans(i=4)),
    "no unknown": ("3 = p", spans(i=4)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    text, unknown = LEFT[name]
    given_ = equations(text)
    assert solved(given_, unknown, same) == ({}, given_)


@pytest.mark.parametrize(("text", "found"), [("2*i = 2*p", "p"), ("6*i + 4 = 2*p", None), ("4*i + 2*j = 2*(p//3)", "p//3//2"), ("4*i = 8*p - 4", "2*p - 1")])
def test_a_common_factor_is_taken_out(text: str, found: str | None) -> None:
    at, left = solved(equations(text), spans(i="N", j=2), same)
    assert at.get("i") is (None if found is None else parse_expr(found))
    assert bool(left) is (found is None)


def test_digits_are_taken_apart_on_request() -> None:
    given_ = equations("4*i + j = p")
    assert solved(given_, spans(i=4, j=4), same, digits=False) == ({}, given_)
    found, left = solved(given_, spans(i=4, j=4), same)
    assert (set(found), left) == ({"i", "j"}, [])
