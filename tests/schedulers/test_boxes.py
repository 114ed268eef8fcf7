"""Boxes of rows: as many rows as a tile has, few tiles, and boxes of those of each instruction, too."""

from math import ceil, prod

import numpy as np
import pytest

from taskfuse.ir.scalar import const, sym
from taskfuse.schedulers.boxes import are_better, box_of_rows


def tiles(extents: tuple[int, ...], rows: int) -> int:
    return prod(ceil(n / b) for n, b in zip(extents, box_of_rows(extents, rows), strict=True))


@pytest.mark.parametrize("rows", [64, 128, 192, 256])
@pytest.mark.parametrize("extents", [(32, 56, 56), (32, 14, 14), (8, 7, 7), (1, 100, 3), (2, 3, 4, 5), (9, 200)])
def test_the_rows_of_a_tile_and_of_each_instruction_are_boxes(extents: tuple[int, ...], rows: int) -> None:
    box = box_of_rows(extents, rows)
    assert prod(box) == rows
    points = np.indices(box).reshape(len(box), -1)
    for first in range(0, rows, 64):
        part = points[:, first : first + 64]
        assert prod(part.max(axis=1) - part.min(axis=1) + 1) == 64


def test_few_tiles() -> None:
    assert tiles((32, 56, 56), 128) == 32 * 56 * 56 // 128
    assert tiles((32, 14, 14), 128) == 32 * 14 * 14 // 128
    assert tiles((128, 7, 7), 128) == 49
    assert tiles((1, 64, 64), 192) == 22  # 3 x 64
    assert box_of_rows((2, 64, 64), 128) == (1, 2, 64)  # the longest rows of those that cover it with as few


def test_where_they_are_better() -> None:
    assert are_better([const(32), const(56), const(56)])
    assert not are_better([const(32), const(256)])
    assert not are_better([const(64)])
    assert not are_better([sym("N"), const(56), const(56)])
    assert not are_better([const(0), const(56)])
