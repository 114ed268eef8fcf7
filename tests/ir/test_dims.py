"""Facts about extents: what they allow, the nearest value, what the simplifier may conclude."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.dims import MOST_DERIVED, MOST_RECENT, Dim, facts_of, nearest
from taskfuse.ir.scalar import const, eq, ge, le, prove, sym
from tests.strategies import built

DIMS = built(
    lambda low, room, unit: Dim("N", low, None if room is None else (low // unit + 1 + room) * unit, unit),
    st.integers(0, 40),
    st.none() | st.integers(0, 40),
    st.integers(1, 16),
)
N = sym("N")


@given(DIMS, st.integers(-5, 1500))
def test_the_nearest_value_is_allowed_and_no_other_is_between(dim: Dim, value: int) -> None:
    found = dim.near(value)
    assert dim.admits(found)
    if found >= value:
        assert not any(dim.admits(k) for k in range(max(value, 0), found))
    else:
        assert not any(dim.admits(k) for k in range(found + 1, value + dim.multiple_of))


@given(DIMS)
def test_the_simplifier_knows_what_holds_of_every_value(dim: Dim) -> None:
    facts = facts_of([dim])
    assert prove(ge(N, dim.min), facts)
    assert not prove(ge(N, dim.near(dim.min) + 1), facts)
    assert prove(eq(N % dim.multiple_of, 0), facts)
    if dim.max is not None:
        assert prove(le(N, dim.max), facts)


@pytest.mark.parametrize(
    ("dim", "call", "words"),
    [
        (Dim("N"), "tf.dim('N')", "at least 1"),
        (Dim("N", 0), "tf.dim('N', min=0)", "at least 0"),
        (Dim("N", 1, 8, 4), "tf.dim('N', max=8, multiple_of=4)", "at least 1, at most 8, a multiple of 4"),
    ],
)
def test_in_words(dim: Dim, call: str, words: str) -> None:
    assert (str(dim), dim.allowed) == (call, words)


BOUNDED = Dim("pos", 0, None, 2, N - 4)


def test_another_extent_bounds_one() -> None:
    assert [BOUNDED.admits(k, {"N": 9}) for k in (-2, 0, 3, 4, 6)] == [False, True, False, True, False]
    assert BOUNDED.near(8, {"N": 9}) == 4
    assert BOUNDED.admits(8)  # where nothing is known of N
    facts = facts_of([Dim("N"), BOUNDED])
    assert prove(le(sym("pos") + 4, N), facts)
    assert not prove(le(sym("pos") + 5, N), facts)
    assert (str(BOUNDED), BOUNDED.allowed) == ("tf.dim('pos', min=0, max='N - 4', multiple_of=2)", "at least 0, at most N - 4, a multiple of 2")


def test_where_a_bound_has_no_value_nothing_is_allowed() -> None:
    dim = Dim("pos", 0, None, 1, N // (sym("M") - 1))
    assert [dim.admits(0, {"N": 9, "M": m}) for m in (1, 2)] == [False, True]
    assert nearest([dim, Dim("N"), Dim("M")], {"pos": 0, "N": 9, "M": 1}) is None


def test_a_bound_whose_extents_become_constants_is_a_number() -> None:
    assert BOUNDED.with_symbols({"N": const(10)}) == Dim("pos", 0, 6, 2)
    assert BOUNDED.with_symbols({"N": sym("M")}) == Dim("pos", 0, None, 2, sym("M") - 4)


@given(st.integers(0, 40), st.integers(0, 40), st.booleans())
def test_values_near_those_wanted_keep_to_bounds(n: int, pos: int, is_first: bool) -> None:
    dims = [BOUNDED, Dim("N")] if is_first else [Dim("N"), BOUNDED]
    found = nearest(dims, {"N": n, "pos": pos})
    if found is None:
        assert n < 4
    else:
        assert all(d.admits(found[d.name], found) for d in dims)


def test_a_thread_keeps_the_facts_of_the_same_extents() -> None:
    facts = facts_of([Dim("N")])
    assert facts_of([Dim("N")]) is facts
    assert facts_of([Dim("N", 2)]) is not facts
    with ThreadPoolExecutor(1) as other:
        assert other.submit(facts_of, [Dim("N")]).result() is not facts


def test_facts_that_remember_too_much_or_what_was_asked_first_are_dropped() -> None:
    spoiled: tuple[Callable[[Any], None], ...] = (lambda family: setattr(family, "size", MOST_DERIVED + 1), lambda family: setattr(family, "is_circular", True))
    for spoil in spoiled:
        facts = facts_of([Dim("N")])
        spoil(facts.with_assumption(ge(N, 5)).family)  # of those that were derived, too
        assert facts_of([Dim("N")]) is not facts
    first = facts_of([Dim("N")])
    for k in range(MOST_RECENT):
        facts_of([Dim("N", 1, 50 + k)])
    assert facts_of([Dim("N")]) is not first


@pytest.mark.parametrize(
    ("dim", "wanted"),
    [
        (Dim("N", 0), Dim("N")),
        (Dim("N", 0, 9, 4), Dim("N", 1, 9, 4)),
        (Dim("N", 0, 3, 4), Dim("N", 0, 3, 4)),  # 0 is all that it can be
        (Dim("N", 0, 0), Dim("N", 0, 0)),
        (Dim("N", 5), Dim("N", 5)),
    ],
)
def test_an_extent_that_is_not_0(dim: Dim, wanted: Dim) -> None:
    assert dim.positive == wanted
