"""One order of all waits and arrivals, and mbarriers that are initialized once, before all use."""

import pytest

from tests.check.edited import gaps

TWICE = """  FOR i in 0..2:
    INIT full[i] count 32
"""


def test_a_ring_has_an_order() -> None:
    assert gaps("ring") == []
    assert gaps("double") == []


def test_ends_that_go_through_two_rings_the_other_way_round_wait_for_each_other() -> None:
    """One role fills X and then Y, the other drains Y first: right in one loop only."""
    found = gaps("exchange")
    assert found == []


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        ((TWICE, 2 * TWICE), "initialized"),
        (("INIT full[i] count 32", "PASS"), "slots [0, 1] are never initialized"),
        (("  FOR i in 0..2:\n    INIT full[i]", "  FOR i in 0..1:\n    INIT full[i]"), "are never initialized"),
        (("SYNC block  # the mbarriers are initialized\n", ""), "no barrier of the whole block stands between its initialization and its first use"),
        (("IF threadIdx.x == 0 && threadIdx.y == 0:", "IF threadIdx.x == 0:"), "full"),
    ],
)
def test_initialization(edit: tuple[str, str], reason: str) -> None:
    found = gaps("ring", edit)
    assert found
    assert any(reason in gap for gap in found), found


def test_a_wait_for_what_the_same_thread_does_later_never_ends() -> None:
    moved = "    ARRIVE full[p.slot]\n    p.advance(1)\n"
    late = gaps("ring", ("    WAIT empty[p.slot] parity p.parity\n", "    WAIT empty[p.slot] parity 1 - p.parity\n"))
    assert late
    assert gaps("ring", (moved, "    p.advance(1)\n"))
