"""Conditions on cursors that move: what the generator knows of its kernels."""

from taskfuse.testing.small.sides.cursors import moved
from tests.testing.small.drawn import drawn, lacks, misjudged


def test_what_is_known_of_them_is_so() -> None:
    found = drawn(moved, 24)
    assert lacks(found, "c.advance(", "ELSE", "FOR k", "//c.slot") == []
    assert misjudged(found) == []
