"""Arrivals and bytes of one phase of an mbarrier: what comes is what it counts."""

import pytest

from tests.check.edited import gaps

FILL = "    ARRIVE full[p.slot]\n"
FULL = "INIT full[i] count 32"
EXPECT = "      EXPECT full[p.slot] bytes 512\n"


@pytest.mark.parametrize(
    "edits",
    [
        (),
        ((FILL, FILL + FILL), (FULL, "INIT full[i] count 64")),
        ((FILL, "    SYNC warp\n    IF threadIdx.x % 8 == 0:\n      ARRIVE full[p.slot]\n"), (FULL, "INIT full[i] count 4")),
    ],
)
def test_as_many_arrivals_as_are_counted(edits: tuple[tuple[str, str], ...]) -> None:
    assert gaps("ring", *edits) == []


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        (((FULL, "INIT full[i] count 33"),), "full counts 33 arrivals, but gets 32"),
        (((FILL, FILL + FILL),), "full counts 32 arrivals, but gets 64"),
        ((("    ARRIVE empty[c.slot]\n", "    IF threadIdx.x < k:\n      ARRIVE empty[c.slot]\n"),), "the set of threads that arrive varies"),
        (((FILL, "    SYNC warp\n    IF threadIdx.x == 0:\n      ARRIVE full[p.slot]\n"),), "full counts 32 arrivals, but gets 1"),
    ],
)
def test_other_numbers_of_arrivals(edits: tuple[tuple[str, str], ...], reason: str) -> None:
    assert gaps("ring", *edits)[0] == f"mbarrier full: {reason}"


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (("bytes 512", "bytes 256"), "256 bytes are expected, but loads bring 512"),
        (("bytes 512", "bytes 1024"), "1024 bytes are expected, but loads bring 512"),
        (("box (1, 2, 32)", "box (1, 1, 32)"), "512 bytes are expected, but loads bring 256"),
        ((EXPECT, EXPECT.replace("512", "128*i")), "128*i bytes are expected, but loads bring 512"),
        ((EXPECT, EXPECT.replace("512", "512*threadIdx.y + 512")), ""),  # the role has one y: 0
    ],
)
def test_bytes_of_loads_from_two_blocks(edit: tuple[str, str], reason: str) -> None:
    """Both blocks of the cluster load half of a slot for both."""
    found = gaps("share", edit)
    assert found[:1] == ([f"mbarrier full: {reason}"] if reason else [])
