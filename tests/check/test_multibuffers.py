"""Rings inside one role: positions of uses, and what lies between two of one slot."""

from __future__ import annotations

import pytest

from taskfuse.check.accesses import Use
from taskfuse.check.structure import Structure
from taskfuse.ir.scalar import const, parse_expr
from tests.check.structured import structure, uses

LOOP = """
c = CURSOR(slots 3, slot 0, parity 0)
FOR k in 0..N:
  s[c.slot, threadIdx.x] = copy(1.0)
  SYNC block
  y[k, threadIdx.x] = copy(s[c.slot, 63 - threadIdx.x])
  c.advance(1)
"""


def write_read(found: Structure) -> tuple[Use, Use]:
    one, two = uses(found)
    return one, two


def test_a_cursor_that_counts_positions() -> None:
    found = structure(LOOP)
    ring, ahead = found.multibuffers.slot(parse_expr("c.slot")) or pytest.fail("no ring")
    assert (ring.cursor, ring.slots, len(ring.moves), ahead) == ("c", 3, 1, 0)
    assert ring.loop is not None
    two = found.multibuffers.slot(parse_expr("(c.slot + 2) % 3"))
    assert two is not None
    assert two[1] == 2
    for other in ("(c.slot + 2) % 4", "2*c.slot", "c.parity", "k"):
        assert found.multibuffers.slot(parse_expr(other)) is None
    assert found.multibuffers.slot(const(0)) is None
    assert found.multibuffers.slot(None) is None


def test_the_same_position_and_the_next_at_the_same_slot() -> None:
    found = structure(LOOP)
    write, read = write_read(found)
    pair = found.multibuffers.pair(write, read)
    assert pair is not None
    assert pair.same
    distances = {(first is write, apart) for first, _, _, apart in pair.later()}
    assert distances == {(True, 3), (False, 3)}  # three positions further the slot comes again
    syncs = [sum(s.node.text == "SYNC block" for s in steps) for first, _, steps, _ in pair.later() if first is read]
    assert syncs == [2]  # of the two iterations between: the read's own has passed its barrier, the write's has not


def test_a_position_ahead() -> None:
    found = structure(LOOP.replace("copy(s[c.slot,", "copy(s[(c.slot + 1) % 3,"))
    write, read = write_read(found)
    pair = found.multibuffers.pair(write, read)
    assert pair is not None
    assert not pair.same
    assert {(first is write, apart) for first, _, _, apart in pair.later()} == {(True, 3), (False, 0)}  # what is read is what the next iteration writes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("c.advance(1)", "c.advance(2)"),
        ("FOR k in 0..N", "FOR k in 0..threadIdx.x"),
        ("  c.advance(1)", "  c.advance(1)\nc.advance(1)"),
    ],
)
def test_cursors_that_do_not_count_alike_for_all(old: str, new: str) -> None:
    assert old in LOOP
    assert structure(LOOP.replace(old, new, 1)).multibuffers.slot(parse_expr("c.slot")) is None


def test_other_buffers_are_no_pair() -> None:
    found = structure(LOOP)
    write, _ = write_read(found)
    (other,) = uses(found, "y")
    assert found.multibuffers.pair(write, other) is None


def test_uses_outside_the_block_of_the_advances_have_no_position() -> None:
    found = structure(LOOP.replace("  c.advance(1)", "  IF threadIdx.x < 3:\n    c.advance(1)"))
    assert found.multibuffers.pair(*write_read(found)) is None
