"""Side conditions on values: what generators know of their kernels, and the fault that hidden divisors showed."""

import sys
from collections.abc import Callable, Mapping

import pytest

from taskfuse.kir import Kernel
from taskfuse.testing.chooser import Chooser, RandomChooser
from taskfuse.testing.refutation import look
from taskfuse.testing.small.sides import Side
from taskfuse.testing.small.sides.values import advances, alignment, arithmetic, hidden, names, rows, steps, stores
from tests.testing.small.drawn import drawn, lacks, misjudged

MAKERS: dict[Callable[[Chooser], Side], tuple[str, ...]] = {
    stores: ("SHARED s", "SYNC block"),
    alignment: ("COPY s[", "COPY.async"),
    rows: ("STMATRIX", "LDMATRIX"),
    arithmetic: ("//", "%", "DIM M"),
    hidden: ("clamp(", "&&", "||", "FOR i"),
    steps: ("step", "SYNC"),
    advances: ("c.advance(", "parity"),
    names: ("FOR ",),
}


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_known_of_them_is_so(make: Callable[[Chooser], Side]) -> None:
    found = drawn(make, 16)
    assert lacks(found, *MAKERS[make]) == []
    assert misjudged(found) == []


def test_divisors_that_an_extent_hides_show_what_a_proof_for_a_call_forgot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proof at given extents once asked for values only of what these leave of an expression."""
    shows = (5, 50)
    sides = [hidden(RandomChooser(seed)) for seed in shows]
    assert [look(0, seed, side, 1).false_accept for seed, side in zip(shows, sides, strict=True)] == [False, False]

    def forgotten(kernel: Kernel, extents: Mapping[str, int]) -> None:
        return None

    monkeypatch.setattr(sys.modules["taskfuse.check.verify"], "without_value", forgotten)
    assert [look(0, seed, side, 1).false_accept for seed, side in zip(shows, sides, strict=True)] == [True, True]
