"""Samples of facts: what is negative at one is never proved to be at least 0."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskfuse.ir.scalar import Facts, eq, evaluate, ge, parse_expr, prove, search, sym
from taskfuse.ir.scalar.samples import is_negative_somewhere, possible_quotients, sample_count, samples_of, samples_of_tables, samples_where, samples_with

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


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("t", "32", (0,)),
        ("t", "16", ()),
        ("t + 64", "32", (2,)),
        ("i", "N", (0,)),
        ("i + N", "N", (1,)),
        ("i - N", "N", (-1,)),
        ("i", "t", ()),
        ("t", "unknown", ()),
        ("unknown", "4", ()),
        ("table([3, 5], t)", "3", (1,)),
        ("table([3, 6], t)", "3", ()),
        ("3", "9223372036854775807*9", None),
    ],
)
def test_quotients_that_samples_leave(a: str, b: str, found: tuple[int, ...] | None) -> None:
    assert possible_quotients(parse_expr(a), parse_expr(b), FACTS) == found


def test_what_is_assumed_holds_at_samples() -> None:
    form = parse_expr("i - t")
    assert not is_negative_somewhere(form, FACTS.with_assumption(ge(form, 0)))


LOOKUPS = (  # true, and false somewhere
    ("clamp(offsets[t of 32], 0, 4)", "clamp(offsets[t of 32], 0, 4) - 1"),
    ("4 - clamp(offsets[t of 32], 0, 4)", "3 - clamp(offsets[i of N], 0, 4)"),
    ("30 - upper_bound(offsets[k of 32]//2, t, 0, N)", "29 - upper_bound(offsets[k of 32]//2, t, 0, 9)"),
    ("clamp(a[t of 9], 0, 99) - clamp(b[t of 9], -1, 99) + 99", "clamp(a[t of 9], 0, 99) - clamp(b[t of 9], 0, 99)"),
)


@pytest.mark.parametrize(("true", "false"), LOOKUPS)
def test_what_is_looked_up(true: str, false: str) -> None:
    assert not is_negative_somewhere(parse_expr(true), FACTS)
    assert is_negative_somewhere(parse_expr(false), FACTS)


def test_what_is_assumed_of_a_table_holds_at_samples() -> None:
    element, last = parse_expr("clamp(queue[i of 5000], 0, 999)"), parse_expr("clamp(offsets[t + 1 of 33], 0, 400)")
    facts = FACTS.with_assumption(eq(sym("t"), element)).with_range("j", parse_expr("clamp(offsets[t of 33], 0, 400)"), last - 1)
    assert is_negative_somewhere(element - 9, facts)
    assert not is_negative_somewhere(31 - element, facts)
    assert is_negative_somewhere(399 - last, facts)
    assert not is_negative_somewhere(last - sym("j") - 1, facts)


def test_elements_with_many_values_are_often_near_zero() -> None:
    element = parse_expr("clamp(a[t of 1], -47361, 23872)")
    facts = FACTS.with_assumption(ge(sym("t"), element)).with_assumption(ge(element + 40, sym("t")))
    assert sample_count(samples_of(facts)) > 20
    assert is_negative_somewhere(element + 1, facts)
    assert not is_negative_somewhere(element + 40, facts)


def test_a_search_in_a_large_table_has_no_samples() -> None:
    assert not is_negative_somewhere(parse_expr("-upper_bound(offsets[k of 5000]//2, t, 0, N)"), FACTS)


@pytest.mark.parametrize("text", ["i - t", "7 - i", "clamp(a[i of 9], 0, N) - t", "unknown - 2"])
def test_samples_of_stronger_facts_are_those_of_weaker_ones(text: str) -> None:
    form = parse_expr(text)
    facts = FACTS.with_assumption(parse_expr("i >= 5")).with_range("j", sym("i"), sym("N")).with_assumption(ge(form, 0))
    assert facts.weaker is not None
    assert not is_negative_somewhere(form, facts)
    assert is_negative_somewhere(sym("j") - 9, facts)
    assert is_negative_somewhere(form - 3, facts)
    assert not is_negative_somewhere(sym("j") - 5, facts)


def test_values_at_chosen_samples_are_those_at_all_of_them() -> None:
    e = parse_expr("(3*i + t) % 7 + clamp(a[t of 9], 0, 4)")
    table = samples_of_tables(samples_of(FACTS), e)
    chosen = samples_where(table, parse_expr("t % 3 == 1"))
    assert 0 < sample_count(chosen) < sample_count(table)
    more = samples_with(chosen, "j", 0, 5)
    for asked in (e, parse_expr("(3*i + t) % 7 + j")):
        assert np.array_equal(more.at.of(asked), evaluate(asked, dict(more)))
    assert samples_of_tables(samples_of(FACTS), parse_expr("clamp(a[i of 9], 0, 4)")) is table


def test_a_long_search_ends_at_a_sample() -> None:
    form = parse_expr("N*(i//8) - 8*(i % 8)*t - t*(i//8)")
    assert not search.nonnegative(form, FACTS)


@given(*[st.integers(-3, 3)] * 4, st.integers(-40, 40))
@settings(max_examples=80)
def test_what_is_proved_is_negative_nowhere(a: int, b: int, c: int, d: int, e: int) -> None:
    form = parse_expr(f"{a}*N + {b}*i + {c}*t + {d}*(i//4) + {e}")
    assert not (is_negative_somewhere(form, FACTS) and prove(ge(form, 0), FACTS))
