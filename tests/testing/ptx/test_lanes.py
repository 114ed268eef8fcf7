"""What lanes of a warp exchange."""

from collections.abc import Mapping

import pytest

from taskfuse.testing.ptx.events import Kind
from taskfuse.testing.ptx.lanes import answers
from taskfuse.testing.ptx.machine import ThreadEvent
from taskfuse.testing.ptx.storage import Storage

MEMORY = Storage({}, bytearray(), (), bytearray())
ALL = (1 << 32) - 1
WHOLE, HALVES = 31, 0x101F
"""Segments of all lanes, and of sixteen (PTX ISA, "shfl.sync")."""


def lanes(kind: Kind, *operands: object, of: range = range(32)) -> Mapping[int, tuple[int, ...]]:
    found = answers(kind, {k: event(kind, operands, k) for k in of}, MEMORY)
    assert found is not None
    return found


def event(kind: Kind, operands: tuple[object, ...], lane: int) -> ThreadEvent:
    return 1, kind, operands, (100 + lane,)


@pytest.mark.parametrize(
    ("mode", "distance", "clamp", "lane", "wanted"),
    [
        ("down", 1, WHOLE, 5, (106, 1)),
        ("down", 1, WHOLE, 31, (131, 0)),
        ("down", 1, HALVES, 15, (115, 0)),
        ("bfly", 3, WHOLE, 6, (105, 1)),
        ("idx", 2, HALVES, 20, (118, 1)),
        ("up", 2, 0, 1, (101, 0)),
    ],
)
def test_shuffles(mode: str, distance: int, clamp: int, lane: int, wanted: tuple[int, int]) -> None:
    assert lanes(Kind.SHUFFLE, mode, distance, clamp, ALL)[lane] == wanted


def test_a_lane_that_takes_no_part_gives_ones() -> None:
    assert lanes(Kind.SHUFFLE, "idx", 9, WHOLE, 0xFF, of=range(8))[0] == (ALL, 1)


def test_matches_and_barriers() -> None:
    values = {0: 7, 1: 8, 2: 7}
    events: dict[int, ThreadEvent] = {k: (1, Kind.MATCH, ("any", 7), (v,)) for k, v in values.items()}
    assert answers(Kind.MATCH, events, MEMORY) == {0: (5,), 1: (2,), 2: (5,)}
    assert lanes(Kind.WARP_BARRIER, 3, of=range(2)) == {0: (), 1: ()}
