"""Facts about extents: what they allow, the nearest value, what the simplifier may conclude."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.dims import Dim, facts_of
from taskfuse.ir.scalar import eq, ge, le, prove, sym

DIMS = st.builds(
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
