"""Rings with another use of an mbarrier."""

from taskfuse.testing.small.sides.barrier_uses import barrier_uses
from tests.testing.small.drawn import drawn, lacks, misjudged


def test_every_edit_occurs() -> None:
    found = drawn(barrier_uses, 120)
    assert lacks(found, ".again.slot", ".again.parity", "ARRIVE.async", "FOR j", "bytes 128*max(", "parity xor(", "parity 0", "IF threadIdx.x < ") == []


def test_what_is_proved_has_no_fault() -> None:
    assert misjudged(drawn(barrier_uses, 24)) == []
