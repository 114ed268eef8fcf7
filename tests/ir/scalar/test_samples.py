"""Samples of facts: what is negative at one is never proved to be at least 0."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import Facts, ge, parse_expr, prove, search
from taskfuse.ir.scalar.samples import is_negative_somewhere

FACTS = Facts().with_range("N", 1, None).with_multiple("N", 8).with_range("i", 0, parse_expr("N - 1")).with_range("t", 0, 31)


@pytest.mark.parametrize("text", ["N - 9", "i - t", "7 - i", "t % 5 - 3", "N//16 - 1", "30 - t", "unknown + 3", "5 - unknown", "unknown % 4 - 2"])
def test_what_is_negative_somewhere(text: str) -> None:
    assert is_negative_somewhere(parse_expr(text), FACTS)


@pytest.mark.parametrize("text", ["N - 8", "N - i - 1", "31 - t", "i % 7", "unknown % 4", "-(N % 8)", "max(unknown, 2) - 2"])
def test_what_is_never_negative(text: str) -> None:
    assert not is_negative_somewhere(parse_expr(text), FACTS)


@pytest.mark.parametrize("text", ["unknown//(t - t//2*2) - unknown", "table([3, 4], t) - 3"])
def test_where_a_form_has_no_value_it_is_not_negative(text: str) -> None:
    facts = FACTS.with_range("unknown", 0, 9)
    assert not is_negative_somewhere(parse_expr(text), facts)


def test_what_is_assumed_holds_at_samples() -> None:
    form = parse_expr("i - t")
    assert not is_negative_somewhere(form, FACTS.with_assumption(ge(form, 0)))


def test_nothing_is_said_where_tables_are_looked_up() -> None:
    assert not is_negative_somewhere(parse_expr("clamp(offsets[t of 32], 0, 4) - 9"), FACTS)


def test_a_long_search_ends_at_a_sample() -> None:
    form = parse_expr("N*(i//8) - 8*(i % 8)*t - t*(i//8)")
    assert not search.nonnegative(form, FACTS)


@given(*[st.integers(-3, 3)] * 4, st.integers(-40, 40))
@settings(max_examples=80)
def test_what_is_proved_is_negative_nowhere(a: int, b: int, c: int, d: int, e: int) -> None:
    form = parse_expr(f"{a}*N + {b}*i + {c}*t + {d}*(i//4) + {e}")
    assert not (is_negative_somewhere(form, FACTS) and prove(ge(form, 0), FACTS))
