"""Events in words."""

import pytest

from taskfuse.testing.ptx.events import RANK, UNORDERED, Kind, PtxPlace


@pytest.mark.parametrize(
    ("place", "text"), [(PtxPlace("full", 8), "full+8"), (PtxPlace("full", 0, 0), "full+0 of block 0"), (PtxPlace("full", 0, 3), "full+0 of block 3")]
)
def test_a_place(place: PtxPlace, text: str) -> None:
    assert str(place) == text


def test_what_orders_no_memory() -> None:
    assert not UNORDERED & {Kind.BARRIER, Kind.WAIT, Kind.ARRIVE, Kind.FENCE, Kind.COPY}
    assert RANK > 1 << 18  # more than Shared memory has
