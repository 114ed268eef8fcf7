"""Events in words."""

import pytest

from taskfuse.testing.ptx.events import RANK, UNORDERED, Kind, Place


@pytest.mark.parametrize(
    ("place", "text"), [(Place("full", 8), "full+8"), (Place("full", 0, 0), "full+0 of block 0"), (Place("full", 0, 3), "full+0 of block 3")]
)
def test_a_place(place: Place, text: str) -> None:
    assert str(place) == text


def test_what_orders_no_memory() -> None:
    assert not UNORDERED & {Kind.BARRIER, Kind.WAIT, Kind.ARRIVE, Kind.FENCE, Kind.COPY}
    assert RANK > 1 << 18  # more than Shared memory has
