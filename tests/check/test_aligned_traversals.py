"""Two ends of a ring: equal loops lie on top of each other, whatever their variables are called; others do not."""

import pytest

from taskfuse.check.aligned_traversals import AlignedTraversals, match_trailing
from taskfuse.check.statement_tree import Node
from taskfuse.check.traversals import NotRing, Part, parse, skeleton
from taskfuse.kir.synchronization import Advance, Arrive, Wait
from tests.check.structured import nodes, structure


def end(cursor: str, head: str) -> tuple[Part, ...]:
    """A cursor that visits one position in a nest of loops and conditions."""
    heads = head.split(" / ")
    depth = "  " * len(heads)
    lines = [f"{'  ' * k}{h}:" for k, h in enumerate(heads)]
    lines += [depth + line for line in (f"WAIT full[{cursor}.slot] parity {cursor}.parity", f"ARRIVE empty[{cursor}.slot]", f"{cursor}.advance(1)")]
    found = structure(f"{cursor} = CURSOR(slots 2, slot 0, parity 0)\n" + "\n".join(lines))
    ops: set[Node] = set(nodes(found, Wait, Arrive, Advance))
    return parse(skeleton(found.tree.root, ops, found.paths), trailing=False, waits=True, arrives=True)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("FOR i in 0..N", "FOR j in 0..N"),
        ("FOR i in 0..N / IF i > 1", "FOR j in 0..N / IF j > 1"),
        ("FOR i in 0..N / FOR k in i..N", "FOR j in 0..N / FOR i in j..N"),
        ("FOR i in 0..N / IF i > 1 && N > 3", "FOR j in 0..N / IF N > 3 && j > 1"),
        ("FOR i in 0..2*N", "FOR j in 0..N + N"),
    ],
)
def test_equal_traversals(mine: str, theirs: str) -> None:
    found = AlignedTraversals()
    found.align(end("p", mine), end("c", theirs), {})
    assert len(found.pairs) == 1
    assert len(found.loops) == mine.count("FOR")


@pytest.mark.parametrize(
    ("mine", "theirs", "reason"),
    [
        ("FOR i in 0..N", "FOR j in 0..N - 1", "its ends have different trips"),
        ("FOR i in 0..N", "FOR j in 0..N step 2", "its ends have different trips"),
        ("FOR i in 0..N", "FOR j in 0..N / IF j > 1", "its ends visit positions in different loops"),
        ("FOR i in 0..N / IF i > 1", "FOR j in 0..N / IF j > 2", "its ends visit positions in different loops"),
        ("FOR i in 0..N / FOR k in i..N", "FOR j in 0..N / FOR k in 0..N", "its ends have different trips"),
    ],
)
def test_other_traversals(mine: str, theirs: str, reason: str) -> None:
    with pytest.raises(NotRing) as caught:
        AlignedTraversals().align(end("p", mine), end("c", theirs), {})
    assert caught.value.reason == reason


def test_ends_of_other_lengths() -> None:
    one = end("p", "FOR i in 0..N")
    with pytest.raises(NotRing, match="visit different numbers of positions"):
        AlignedTraversals().align(one, one + one, {})


def test_a_cursor_that_releases_moves_in_the_loops_of_the_one_that_waits() -> None:
    both = end("c", "FOR i in 0..N")
    match_trailing(both, both)
    with pytest.raises(NotRing, match="visits other positions than the one that waits"):
        match_trailing(both, both + both)
    with pytest.raises(NotRing, match="moves in other loops than the one that waits"):
        match_trailing(both, end("c", "FOR i in 0..N"))  # an equal loop elsewhere


def test_positions_in_later_iterations() -> None:
    """The consumer of a software pipeline uses a slot in the iteration behind the one in which it was filled."""
    found = AlignedTraversals()
    found.align(end("p", "FOR i in 0..N"), end("c", "FOR j in 0..N + 1 / IF j >= 1"), {})
    assert (len(found.pairs), len(found.loops), found.behind) == (1, 0, 1)
    same = AlignedTraversals()
    same.align(end("p", "FOR i in 0..N"), end("c", "FOR j in 0..N + 1 / IF j < N"), {})
    assert (len(same.pairs), len(same.loops), same.behind) == (1, 1, 0)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("FOR i in 0..N + 1 / IF i >= 1", "FOR j in 0..N"),  # before it is filled
        ("FOR i in 0..N", "FOR j in 0..N + 1 / IF j >= 2"),  # one position less
        ("FOR i in 0..N", "FOR j in 1..N + 1"),  # iterations that are counted otherwise
        ("FOR i in 0..N / FOR k in 0..4", "FOR j in 0..N + 1 / IF j >= 1 / FOR k in 0..4"),  # several positions late
    ],
)
def test_positions_in_other_iterations(mine: str, theirs: str) -> None:
    with pytest.raises(NotRing, match="its ends have different trips"):
        AlignedTraversals().align(end("p", mine), end("c", theirs), {})
