"""Places in tables that rise: expressions that say how many elements are no greater than a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.errors import ParseError
from taskfuse.ir.scalar import (
    Expr,
    Facts,
    bounds,
    compile_expr,
    const,
    elements_of,
    evaluate,
    ge,
    integers_of,
    lookups_of,
    lt,
    parse_expr,
    prove,
    substitute,
    sym,
    upper_bound,
)

G, M, w = (sym(n) for n in ("G", "M", "w"))
FACTS = Facts().with_range("M", 0, None).with_range("G", 1, None)


def place(sought: Expr = w, divisor: int = 1, step: int = 0) -> Expr:
    return upper_bound(sym("t"), G + 1, 0, M, sought, divisor=divisor, step=step)


@given(st.lists(st.integers(-9, 60), min_size=2, max_size=8), st.integers(-5, 70), st.sampled_from([(1, 0), (8, 1), (3, 2)]))
def test_counts_inner_elements_that_are_no_greater(values: list[int], sought: int, form: tuple[int, int]) -> None:
    divisor, step = form
    e = place(divisor=divisor, step=step)
    table = np.array(values, np.int32)
    env = {"t": table, "G": len(values) - 1, "M": 40}
    wanted = sum(min(max(values[k], 0), 40) // divisor + step * k <= sought for k in range(1, len(values) - 1))
    assert evaluate(e, {**env, "w": sought}) == wanted
    assert compile_expr(e, ("t", "G", "M", "w"))(table, len(values) - 1, 40, sought) == wanted
    many = np.array([sought, sought + 1])
    assert np.asarray(evaluate(e, {**env, "w": many}))[0] == wanted
    assert compile_expr(e, ("t", "G", "M", "w"))(table, len(values) - 1, 40, many)[0] == wanted


def test_of_a_table_that_rises_it_is_the_group_of_a_number() -> None:
    table = np.array([0, 3, 3, 7, 9])
    found: Any = evaluate(place(), {"t": table, "G": 4, "M": 9, "w": np.arange(9)})
    assert [(table[g] <= k < table[g + 1]) for k, g in enumerate(found)] == [True] * 9


def test_it_is_a_group_whatever_is_sought() -> None:
    assert prove(ge(place(), 0), FACTS)
    assert prove(lt(place(), G), FACTS)
    assert not prove(lt(place(), G - 1), FACTS)
    assert bounds(substitute(place(), {"G": 4}), FACTS) == (0, 3)


def test_a_table_of_one_group_has_no_other() -> None:
    assert upper_bound(sym("t"), 2, 0, M, w) is const(0)


@pytest.mark.parametrize("e", [place(), place(2 * w + 1, 128, 1), place(w, 1, 3) + 1, place(place(), 4)])
def test_text_is_read_back(e: Expr) -> None:
    assert parse_expr(str(e)) is e


def test_text() -> None:
    assert str(place(w, 128, 1)) == "upper_bound(t[k of G + 1]//128 + k, w, 0, M)"
    assert str(place(w, 1, 2)) == "upper_bound(t[k of G + 1] + 2*k, w, 0, M)"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("upper_bound(3[k of 4], w, 0, M)", "expected the name of a tensor"),
        ("upper_bound(t[i of 4], w, 0, M)", "expected 'k'"),
        ("upper_bound(t[k of 4] + w, w, 0, M)", "expected an integer"),
        ("upper_bound(t[k of 4]//0, w, 0, M)", "divided by 0"),
        ("upper_bound(t[k of 4] + -2*k, w, 0, M)", "have the negative step -2"),
    ],
)
def test_what_is_no_text(text: str, wrong: str) -> None:
    with pytest.raises(ParseError, match=wrong):
        parse_expr(text)


def test_what_does_not_rise() -> None:
    with pytest.raises(ValueError, match="a divisor is positive, a step is not negative"):
        place(divisor=0)
    with pytest.raises(ValueError, match="not the name of a tensor"):
        upper_bound(w + 1, G, 0, M, w)


def test_the_tensor_is_free_but_not_an_integer() -> None:
    e = place(place(w, 8, 1)) + 1
    assert e.free == {"t", "G", "M", "w"}
    assert integers_of(e) == {"G", "M", "w"}
    assert len(lookups_of(e)) == 2
    assert elements_of(e) == ()
