"""Phases of an mbarrier: arrivals and bytes."""

import pytest

from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.threads import PtxMbarrier


def test_a_phase_ends_without_missing_arrivals_and_bytes() -> None:
    barrier = PtxMbarrier(2, 2)
    barrier.arrive(1, 1, -128)
    barrier.arrive(1, 1)
    assert (barrier.phase, barrier.missing, barrier.bytes) == (0, 0, 128)
    barrier.arrive(1, 0, 128)
    assert (barrier.phase, barrier.missing, barrier.bytes) == (1, 2, 0)
    assert [barrier.has_ended(parity) for parity in (0, 1)] == [True, False]


def test_bytes_may_come_before_they_are_expected() -> None:
    barrier = PtxMbarrier(1, 1)
    barrier.arrive(1, 0, 64)
    assert barrier.phase == 0
    barrier.arrive(1, 1, -64)
    assert barrier.phase == 1


def test_more_arrivals_than_it_counts() -> None:
    with pytest.raises(PtxError, match="more arrivals"):
        PtxMbarrier(1, 1).arrive(7, 2)
