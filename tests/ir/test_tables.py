"""Tables: their ranges, as text and with other expressions; the elements of tables of places."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import UpperBound, const, evaluate, lookups_of, substitute, sym
from taskfuse.ir.tables import TableRange, held_places, of_keys, places

t, G, M = sym("t"), sym("G"), sym("M")


def test_text() -> None:
    assert str(TableRange(const(-1), M - 1)) == "-1..M - 1"


def test_other_expressions() -> None:
    table = TableRange(const(0), M)
    assert table.expressions == (const(0), M)
    assert table.mapped(lambda e: substitute(e, {"M": 8})) == TableRange(const(0), const(8))


def test_the_keys_are_the_tiles_of_ragged_rows() -> None:
    tiles = RowTiles(t, G, M, 8)
    holds, count = held_places(t, G + 1, const(0), M, 8)
    assert count is tiles.count
    (found,) = (u for u in lookups_of(tiles.group(sym("w"))) if isinstance(u, UpperBound))
    assert of_keys(found) is holds


@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 9))
def test_every_element_is_what_the_search_finds(inner: list[int], divisor: int) -> None:
    offsets = np.array([0, *sorted(inner), 40])
    holds, count = held_places(t, G + 1, const(0), M, divisor)
    known = {"t": offsets, "G": len(offsets) - 1, "M": 40}
    made = places(holds, int(evaluate(count, known)), known)
    assert made.tolist() == [int(((offsets[1:-1] // divisor) <= w).sum()) for w in range(40 // divisor + len(offsets) - 1)]
