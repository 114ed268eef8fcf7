"""A slot is released once all that waited for it are done: by each of them, or by one with whom the others have met."""

import pytest

from tests.check.edited import gaps

RELEASE = "    ARRIVE empty[c.slot]\n"
BY_ONE = "    IF threadIdx.x == 0:\n      ARRIVE empty[c.slot]\n"
ONE = ("INIT empty[i] count 32", "INIT empty[i] count 1")
USE = "    y[k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)\n"
APART = "threads that waited continue without synchronizing with the one that arrives for them"


@pytest.mark.parametrize("meets", ["    SYNC warp\n", "    SYNC named 1, 32\n"])
def test_one_arrives_for_those_it_has_met(meets: str) -> None:
    assert gaps("ring", (RELEASE, meets + BY_ONE), ONE) == []
    assert gaps("ring", (RELEASE, BY_ONE), ONE)[0] == f"mbarrier full: {APART}"
    assert gaps("ring", (RELEASE, BY_ONE + meets), ONE)[0] == f"mbarrier full: {APART}"


def test_what_is_done_with_the_slot_comes_before_they_meet() -> None:
    """They have waited, so the ring is one; but what the others read behind the barrier is not ordered before the next fill."""
    found = gaps("ring", (USE + RELEASE, "    SYNC warp\n" + USE + BY_ONE), ONE)
    assert found
    assert all(g.startswith("s: ") for g in found)


def test_whoever_arrives_has_waited() -> None:
    wait = "    WAIT full[c.slot] parity c.parity\n"
    found = gaps("ring", (wait, f"    IF threadIdx.x < 16:\n  {wait}    SYNC warp\n"))
    assert found[0] == "mbarrier full: the threads that arrive at a position are not those that waited for it"


def test_a_producer_too() -> None:
    fill, full = "    ARRIVE full[p.slot]\n", ("INIT full[i] count 32", "INIT full[i] count 16")
    half = "    IF threadIdx.x < 16:\n      ARRIVE full[p.slot]\n"
    assert gaps("ring", (fill, "    SYNC warp\n" + half), full) == []
    assert gaps("ring", (fill, half + "    SYNC warp\n"), full)[0] == f"mbarrier full: {APART}"


TWO_WARPS = (("N, 32]", "N, 64]"), ("2, 32]", "2, 64]"), ("BLOCK (32", "BLOCK (64"), ("count 32", "count 64"))


@pytest.mark.parametrize(("meets", "reason"), [("    SYNC warp\n", [f"mbarrier full: {APART}"]), ("    SYNC named 1, 64\n", [])])
def test_a_warp_speaks_for_no_other(meets: str, reason: list[str]) -> None:
    one = ("INIT empty[i] count 64", "INIT empty[i] count 1")
    assert gaps("ring", *TWO_WARPS) == []
    assert gaps("ring", *TWO_WARPS, (RELEASE, meets + BY_ONE), one)[:1] == reason
