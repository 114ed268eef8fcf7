"""Copies into and arrivals at other blocks of a cluster: everybody makes the same visits, destinations are apart, and nobody exits before."""

import pytest

from tests.check.edited import gaps

LOAD = "TMA s[p.slot, 2*clusterIdx.x, 0] <- x.map(blockIdx.x//2 + 2*i, 2*clusterIdx.x, 0) on full[p.slot] across CIDx"
LAST = "SYNC cluster  # no block exits while others reach it\n"


def test_a_slot_that_two_blocks_fill_for_both() -> None:
    assert gaps("share") == []


@pytest.mark.parametrize(
    ("edit", "gap"),
    [
        ((" across CIDx\n    c", "\n    c"), "mbarrier full: copies and releases do not reach the same blocks of the cluster"),
        ((LAST, ""), "no barrier of the cluster follows it: a block that it accesses may have exited"),
        ((LAST, "SYNC block\n"), "no barrier of the cluster follows it: a block that it accesses may have exited"),
        ((LOAD, LOAD.replace("s[p.slot, 2*clusterIdx.x", "s[p.slot, clusterIdx.x")), "s: "),
        ((LOAD, LOAD.replace("s[p.slot, 2*clusterIdx.x", "s[p.slot, 0")), "s: "),
        (("IF threadIdx.y == 0:  # load", "IF threadIdx.y == 0 && clusterIdx.x < 1:  # load"), "mbarrier full: "),
        (("FOR i in 0..ceildiv(N - blockIdx.x//2, 2):", "FOR i in 0..ceildiv(N - blockIdx.x, 2):"), "mbarrier full: "),
    ],
)
def test_what_breaks_it(edit: tuple[str, str], gap: str) -> None:
    assert any(gap in g for g in gaps("share", edit))


def test_only_rings_reach_other_blocks() -> None:
    """Rings that do not cross blocks say nothing of when its copies come to an end."""
    found = gaps("share", (" across CIDx\n    c", "\n    c"))
    assert any(g.endswith("it accesses other blocks of the cluster outside a ring") for g in found)


def test_destinations_in_another_order_are_apart() -> None:
    assert gaps("share", (LOAD, LOAD.replace("s[p.slot, 2*clusterIdx.x", "s[p.slot, 2 - 2*clusterIdx.x"))) == []
