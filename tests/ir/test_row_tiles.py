"""Tiles of ragged rows: each row belongs to one tile, and lies in it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import evaluate, sym

w, r = sym("w"), sym("r")


@st.composite
def offsets(draw: st.DrawFn) -> tuple[int, list[int]]:
    size = draw(st.integers(1, 9))
    lengths = draw(st.lists(st.one_of(st.just(0), st.integers(0, 3 * size), st.integers(0, 3).map(lambda k: k * size)), min_size=1, max_size=6))
    return size, [0, *np.cumsum(lengths).tolist()]


@given(offsets())
def test_every_row_belongs_to_one_tile_and_lies_in_it(drawn: tuple[int, list[int]]) -> None:
    size, table = drawn
    tiles = RowTiles(sym("t"), sym("G"), sym("M"), size)
    rows = table[-1]
    env = {"t": np.array(table), "G": len(table) - 1, "M": rows}
    numbers = np.arange(int(evaluate(tiles.count, env)))
    first, end, start, group = (
        np.broadcast_to(evaluate(e, {**env, "w": numbers}), numbers.shape) for e in (tiles.first(w), tiles.end(w), tiles.start(w), tiles.group(w))
    )
    for row in range(rows):
        (mine,) = np.flatnonzero((first <= row) & (row < end))
        assert table[group[mine]] <= row < table[group[mine] + 1]
        assert start[mine] <= row < start[mine] + size
        assert evaluate(tiles.tile(r), {**env, "r": row}) == mine
        assert evaluate(tiles.place(r), {**env, "r": row}) == row - start[mine]
        assert [k for k in numbers if evaluate(tiles.belongs(r, w), {**env, "r": row, "w": int(k)})] == [mine]
    empty = np.flatnonzero(first >= end)
    assert np.bincount(group[empty], minlength=len(table) - 1).max() <= 1  # a group has as many numbers as it needs, or one more
    assert (empty >= rows // size).all()  # the one behind all whole tiles
    assert rows < size or (start >= 0).all()
    assert (start + size <= rows).all()


@given(st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=6), st.integers(1, 50), st.integers(1, 8))
def test_no_offsets_lead_outside(table: list[int], rows: int, size: int) -> None:
    tiles = RowTiles(sym("t"), sym("G"), sym("M"), size)
    env = {"t": np.array(table), "G": len(table) - 1, "M": rows}
    numbers = np.arange(int(evaluate(tiles.count, env)))
    start, end, group = (np.broadcast_to(evaluate(e, {**env, "w": numbers}), numbers.shape) for e in (tiles.start(w), tiles.end(w), tiles.group(w)))
    assert rows < size or (start >= 0).all()
    assert (start + size <= rows).all()
    assert (end <= rows).all()
    assert ((group >= 0) & (group < len(table) - 1)).all()
