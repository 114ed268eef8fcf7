"""Copies into and arrivals at other blocks of a cluster: everybody makes the same visits, destinations are apart, and nobody exits before."""

import pytest

from taskfuse.check import Verdict
from tests.check.edited import gaps
from tests.lowering.over_clusters import EARLY_EXIT, OF_A_BLOCK, OUTSIDE, OWN, STORED_THERE, UNORDERED, exchange

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
    assert any(g.endswith("it accesses other blocks of the cluster outside a ring, and they do not all wait for it") for g in found)


def test_destinations_in_another_order_are_apart() -> None:
    assert gaps("share", (LOAD, LOAD.replace("s[p.slot, 2*clusterIdx.x", "s[p.slot, 2 - 2*clusterIdx.x"))) == []


# -- Shared memory of other blocks --------------------------------------------------------------------------------------------------

BEGINS = ("\n\ns[", "\n\nSYNC cluster\ns[")


def reasons(*changes: tuple[str, str], symbolic: bool) -> list[str]:
    """What is not proved of the exchange with some changes, which is refuted."""
    certificate = exchange(*changes, symbolic=symbolic).verify()
    assert certificate.verdict is Verdict.REFUTED
    return [o.reason for o in certificate.argument if o.verdict is not Verdict.PROVED]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("changes", [(), (*STORED_THERE, BEGINS), (*STORED_THERE, BEGINS, EARLY_EXIT)])
def test_an_exchange(changes: tuple[tuple[str, str], ...], symbolic: bool) -> None:
    """What is stored in the other block is read there, so that nothing reaches another block after the barrier."""
    certificate = exchange(*changes, symbolic=symbolic).verify()
    assert certificate.verdict is Verdict.PROVED, certificate


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ((UNORDERED,), "nothing orders them in one iteration"),
        ((UNORDERED,), "no barrier of the cluster stands before it: a block that it accesses may not have begun"),
        ((OF_A_BLOCK,), "nothing orders them in one iteration"),
        ((EARLY_EXIT,), "no barrier of the cluster follows it: a block that it accesses may have exited"),
        (STORED_THERE, "no barrier of the cluster stands before it: a block that it accesses may not have begun"),
        ((OUTSIDE,), "index 2 - blockIdx.x % 2 of axis 0 is not known to be in 0..2"),
    ],
)
def test_mistakes_in_an_exchange(changes: tuple[tuple[str, str], ...], reason: str, symbolic: bool) -> None:
    assert reason in reasons(*changes, symbolic=symbolic)


def test_the_own_block_in_place_of_the_other_one() -> None:
    assert reasons(OWN, symbolic=False) == ["reads element [0, 0] of x where element [1, 0] of x is defined"]
    assert any(r.startswith("it finds another element of s on axis 0") for r in reasons(OWN, symbolic=True))
