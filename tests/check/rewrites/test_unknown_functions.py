"""Elements of unknown tables stand for what tables decide: one for one expression, whatever its index is called; anything else stays."""

import pytest

from taskfuse.check.rewrites.unknown_functions import UnknownFunctions
from taskfuse.ir.scalar import NO_FACTS, Element, Expr, elements_of, interval, parse_expr

ROW = "min(4*min(clamp(t[{0} + 1 of 4], 0, 9)//4, {0}) + clamp(t[{0} of 4], 0, 9) % 4, 5)"


def functions() -> UnknownFunctions:
    return UnknownFunctions(NO_FACTS, frozenset(("N",)))


def parsed(text: str, index: str) -> Expr:
    return parse_expr(text.format(index))


def test_one_table_stands_for_one_expression() -> None:
    f = functions()
    one, other = f(parsed(ROW, "i1")), f(parsed(ROW, "i2"))
    assert isinstance(one, Element)
    assert isinstance(other, Element)
    assert one.tensor is other.tensor
    assert (one.index, other.index) == (parse_expr("i1"), parse_expr("i2"))
    assert interval(one, NO_FACTS) == (0, 5)


@pytest.mark.parametrize("other", ["min(clamp(t[{0} of 4], 0, 9), 5)", "min(4*min(clamp(t[{0} of 4], 0, 9)//4, {0}) + clamp(t[{0} of 4], 0, 9) % 4, 5)"])
def test_other_expressions_have_other_tables(other: str) -> None:
    f = functions()
    assert f(parsed(ROW, "i1")) is not f(parsed(other, "i1"))


def test_terms_and_conditions_stay_what_they_are() -> None:
    f = functions()
    condition = f(parse_expr(f"i0 + {ROW.format('i1')} < N"))
    row = f(parsed(ROW, "i1"))
    assert elements_of(condition) == (row,)
    assert "i0" in condition.free


@pytest.mark.parametrize("text", ["i0 + 3*i1", "min(i0, 4)", "clamp(t[i0 + i1 of 4], 0, 9) % 4", "clamp(t[i0 of 4], 0, 9)*i1//3"])
def test_what_depends_on_several_indices_or_on_no_table_stays(text: str) -> None:
    found = functions()(parse_expr(text))
    assert not any(e.tensor.name.startswith("unknown") and e.index is not parse_expr("i0") for e in elements_of(found))
    assert found.free - {e.tensor.name for e in elements_of(found)} == parse_expr(text).free - {"t"}


def test_a_length_of_a_symbol_stays_an_element_in_its_bounds() -> None:
    found = functions()(parse_expr("clamp(t[i0 + 1 of 4], 0, N)"))
    assert isinstance(found, Element)
    assert (found.low, found.high) == (parse_expr("0"), parse_expr("N"))


def test_terms_of_one_index_are_one_up_to_their_sign() -> None:
    f = functions()
    one, other = (
        f(parse_expr("i0 + clamp(t[i1 + 1 of 4], 0, 9) - clamp(t[i1 of 4], 0, 9)")),
        f(parse_expr("clamp(t[i2 of 4], 0, 9) - clamp(t[i2 + 1 of 4], 0, 9)")),
    )
    (length,), (negative,) = elements_of(one), elements_of(other)
    assert one - parse_expr("i0") in (length, -1 * length)
    assert length.tensor is negative.tensor
    assert interval(length, NO_FACTS) == (-9, 9)


def test_bounds_over_extents() -> None:
    f = UnknownFunctions(NO_FACTS.with_range("N", 4, None), frozenset(("N",)))
    row = f(parse_expr("min(4*min(clamp(t[i0 + 1 of 4], 0, N)//4, i0) + clamp(t[i0 of 4], 0, N) % 4, N - 4)"))
    assert isinstance(row, Element)
    assert (row.low, row.high) == (parse_expr("0"), parse_expr("min(4*(N//4) + 3, N - 4)"))
    chosen = f(parse_expr("select(i0 < 3, clamp(t[i0 of 4], 0, N), 0)"))
    assert isinstance(chosen, Element)
    assert (chosen.low, chosen.high) == (parse_expr("0"), parse_expr("max(N, 0)"))
