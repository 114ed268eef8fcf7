"""Elements of tables: integers of a tensor in expressions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.errors import ParseError
from taskfuse.ir.scalar import (
    Element,
    Expr,
    Facts,
    TableIndexError,
    bounds,
    ceildiv,
    compile_expr,
    const,
    element,
    elements_of,
    evaluate,
    integers_of,
    lt,
    parse_expr,
    prove,
    simplify,
    substitute,
    sym,
)

G, M, g, r = (sym(n) for n in ("G", "M", "g", "r"))
FACTS = Facts().with_range("M", 0, None).with_range("G", 1, None).with_range("g", 0, G - 1)


def at(index: Expr) -> Expr:
    return element(sym("offsets"), index, G + 1, 0, M)


def test_equal_fields_are_one_node() -> None:
    assert at(g) is at(g)
    assert at(g) is not at(g + 1)
    assert (at(g + 1) - at(g)) + at(g) is at(g + 1)


def test_a_range_of_one_value_is_that_value() -> None:
    assert element(sym("offsets"), g, G, 3, 3) is const(3)


def test_only_a_symbol_names_a_tensor() -> None:
    with pytest.raises(ValueError, match=r"^'g \+ 1' is not the name of a tensor$"):
        element(g + 1, g, G, 0, M)


def test_the_tensor_is_free_but_not_an_integer() -> None:
    e = at(g) + r
    assert e.free == {"offsets", "g", "G", "M", "r"}
    assert integers_of(e) == {"g", "G", "M", "r"}
    nested = element(sym("counts"), at(g), M, 0, 8)
    assert set(elements_of(nested + at(g + 1))) == {nested, at(g), at(g + 1)}
    assert integers_of(nested) == {"g", "G", "M"}


@pytest.mark.parametrize("e", [at(g + 1) - at(g), 2 * at(at(g)) + 1, ceildiv(at(g), 128), lt(r, at(g + 1) - at(g))])
def test_text_is_read_back(e: Expr) -> None:
    assert parse_expr(str(e)) is e


def test_text() -> None:
    assert str(at(g + 1)) == "clamp(offsets[g + 1 of G + 1], 0, M)"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("clamp(3[g of G], 0, M)", "expected the name of a tensor, found '3'"),
        ("clamp(offsets[g], 0, M)", "expected 'of' and the number of elements, found ']'"),
        ("clamp(offsets[g of G], 0)", "expected ',', found ')'"),
    ],
)
def test_what_is_no_element(text: str, reason: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_expr(text)
    assert reason in str(caught.value)


@given(st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=6), st.integers(0, 20))
def test_values_are_brought_into_their_range(values: list[int], most: int) -> None:
    e = element(sym("t"), sym("i"), len(values), 0, M)
    wanted = [min(max(v, 0), most) for v in values]
    array, index = np.array(values), np.arange(len(values))
    function = compile_expr(e, ["i", "t", "M"])
    assert [evaluate(e, {"i": i, "t": array, "M": most}) for i in range(len(values))] == wanted
    assert [function(i, array, most) for i in range(len(values))] == wanted
    assert np.asarray(evaluate(e, {"i": index, "t": array, "M": most})).tolist() == wanted
    assert np.asarray(function(index, array, most)).tolist() == wanted


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_the_tensor_has_no_value(index: int) -> None:
    e = element(sym("t"), sym("i"), 3, 0, 9)
    with pytest.raises(TableIndexError, match=rf"^index {index} is outside the 3 elements of a tensor$"):
        evaluate(e, {"i": index, "t": np.arange(3)})


def test_substitution_reaches_index_range_and_name() -> None:
    e = at(g)
    assert substitute(e, {"g": 2, "M": 8}) is element(sym("offsets"), 2, G + 1, 0, 8)
    assert substitute(e, {"offsets": sym("rows")}) is element(sym("rows"), g, G + 1, 0, M)
    assert isinstance(simplify(e, FACTS), Element)


def test_bounds_are_those_of_the_range() -> None:
    assert bounds(element(sym("t"), g, G, -2, 7)) == (-2, 7)
    assert prove(lt(at(g), M + 1), FACTS)
    assert prove(lt(-1, at(g + 1)), FACTS)
    assert not prove(lt(at(g), at(g + 1) + 1), FACTS)  # nothing says that elements rise
    inside = FACTS.with_range("r", 0, None).with_assumption(lt(r, at(g + 1) - at(g)))
    assert prove(lt(at(g) + r, M), inside)
    assert not prove(lt(at(g) + r + 1, M), inside)
