"""Shares of the sums of tiles: every step of every tile belongs to one item, and the parts of a tile are found in the order of k."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.ir.scalar import evaluate
from taskfuse.ir.shares import Shares

LINES = st.sampled_from(["one", "each", "two"])


@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 40), LINES)
def test_every_step_of_a_tile_belongs_to_one_item(tiles: int, steps: int, share: int, lines: str) -> None:
    tiles = tiles if lines != "two" else 2 * tiles
    shares = Shares(tiles, steps, {"one": tiles, "each": 1, "two": tiles // 2}[lines], share)
    items = [(b, item) for b in range(shares.blocks) for item in shares.of_block(b)]
    assert Counter((tile, k) for _, (tile, first, end) in items for k in range(first, end)) == Counter((t, k) for t in range(tiles) for k in range(steps))
    assert max(end - first for _, (_, first, end) in items) <= shares.longest
    for b in range(shares.blocks):
        assert 1 <= len(shares.of_block(b)) <= shares.items
        assert sum(end - first for _, first, end in shares.of_block(b)) <= share


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 20), st.booleans())
def test_the_parts_of_a_tile_are_its_items_in_the_order_of_k(tiles: int, steps: int, share: int, line: bool) -> None:
    shares = Shares(tiles, steps, tiles if line else 1, share)
    most = 0
    for t in range(tiles):
        parts = [p for p in range(shares.parts) if evaluate(shares.has_part(t, p), {})]
        assert parts == list(range(len(parts)))
        most = max(most, len(parts))
        reached = 0
        for p in parts:
            block, item = (int(evaluate(e, {})) for e in shares.item_of(t, p))
            assert int(evaluate(shares.tile(block, item), {})) == t
            assert int(evaluate(shares.first(block, item), {})) == reached
            reached = int(evaluate(shares.end(block, item), {}))
        assert reached == steps
    assert most == shares.parts


def test_who_computes_what_as_text() -> None:
    assert Shares(2, 3, 2, 4).explain().splitlines() == [
        "2 tiles of 3 steps on 2 blocks: 4 steps of a block, up to 2 blocks of a tile",
        "block 0: steps 0..2 of tile 0, 0..0 of tile 1",
        "block 1: steps 1..2 of tile 1",
    ]


@pytest.mark.parametrize("numbers", [(0, 1, 1, 1), (2, 0, 1, 1), (3, 1, 2, 1), (2, 1, 1, 0)])
def test_lines_are_of_whole_tiles(numbers: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="in lines of"):
        Shares(*numbers)
