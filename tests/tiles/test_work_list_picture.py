"""Lists of tiles as text and as pictures."""

import re
from xml.etree import ElementTree

from taskfuse.tiles import Half, Problem, WorkList, picture, table

LISTED = WorkList((Problem(2, 2, 4, batch=2), Problem(3, 3, 8, half=Half.LOWER)), (1, 1), 5)


def test_the_blocks_of_each_tile() -> None:
    assert table(LISTED).splitlines() == [
        *("0: 2 x 2x2x4, 0", "  0 1", "  2 3"),
        *("0: 2 x 2x2x4, 1", "  4 0", "  1 2"),
        *("1: 3x3x8 lower", "  3 . .", "  4 0 .", "  1 2 3"),
    ]


def test_the_picture_has_a_box_for_each_tile_and_each_turn() -> None:
    drawn = picture(LISTED)
    ElementTree.fromstring(drawn)
    tiles = re.findall(r"item (\d+): block (\d), turn (\d), k (\d)", drawn)
    assert [int(w) for w, *_ in tiles] == list(range(14))
    assert all((int(w) % 5, int(w) // 5) == (int(block), int(turn)) for w, block, turn, _ in tiles)
    assert drawn.count("dasharray") == 3
    assert len(re.findall(r"block \d, turn \d: problem", drawn)) == 14
    assert "imbalance 1.25" in drawn
