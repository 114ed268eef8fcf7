"""Symbols of ring cursors: made and recognized in one place."""

import pytest

from taskfuse.ir.scalar import sym
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.synchronization import Cursor, CursorPart
from taskfuse.kir.walk import phased


def test_a_cursor_finds_its_symbols_again() -> None:
    cursor = Cursor("ch0.p")
    assert cursor.symbols == ("ch0.p.slot", "ch0.p.parity", "ch0.p.phase")
    assert [Cursor.of(s) for s in cursor.symbols] == [(cursor, part) for part in CursorPart]
    assert Cursor.at(cursor.slot) == cursor


@pytest.mark.parametrize("name", ["slot", ".slot", "p.slots", "p.slot.q", "N", "threadIdx.x"])
def test_what_is_no_part_of_a_cursor(name: str) -> None:
    assert Cursor.of(name) is None


def test_only_a_slot_says_where_a_cursor_is() -> None:
    cursor = Cursor("p")
    assert Cursor.at(cursor.parity) is None
    assert Cursor.at(cursor.slot + 1) is None
    assert Cursor.at(sym("i")) is None


def test_cursors_whose_phase_is_used() -> None:
    kernel = parse_kernel("""\
KERNEL k() -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SEMAPHORE s[2] count 1

p = CURSOR(slots 2, slot 0, parity 0)
q = CURSOR(slots 2, slot 0, parity 0)
ACQUIRE s[p.slot] phases q.phase
""")
    assert phased(walk(kernel)) == {"q"}
