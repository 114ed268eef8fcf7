"""Triangles of tiles: the closed form exactly, every tile once, macro tiles and padding."""

from math import isqrt

import numpy as np
import pytest

from taskfuse.tiles import Half, macro_tiles, triangle, triangular


def test_the_first_rows() -> None:
    assert [triangle(t) for t in range(6)] == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    assert [triangle(t, Half.UPPER) for t in range(4)] == [(0, 0), (0, 1), (1, 1), (0, 2)]


def test_exact_around_every_row_up_to_2_to_the_31() -> None:
    """The last tile before each row, its first and its second; all rows that begin below 2**31."""
    rows = np.arange(isqrt(2 << 31) + 1, dtype=np.int64)
    begin = rows * (rows + 1) // 2
    for i, t in zip(rows.tolist(), begin.tolist(), strict=True):
        assert triangle(t) == (i, 0)
        if i:
            assert triangle(t - 1) == (i - 1, i - 1)
            assert triangle(t + 1) == (i, 1)


def test_the_closed_form_of_the_page_in_double_precision() -> None:
    t = np.concatenate([np.arange(100_000), (1 << 31) - np.arange(1000), 8_390_656 + np.arange(-3, 4)]).astype(np.int64)
    closed = np.ceil(np.sqrt(2 * t + 2.25) - 0.5).astype(np.int64) - 1
    assert [triangle(int(x))[0] for x in t] == closed.tolist()


@pytest.mark.parametrize("half", list(Half))
@pytest.mark.parametrize("tile", [(32, 32), (64, 32), (32, 64), (96, 32)])
@pytest.mark.parametrize("extent", [1, 31, 32, 100, 128, 132, 200])
def test_every_tile_that_has_elements_of_the_triangle_once(half: Half, tile: tuple[int, int], extent: int) -> None:
    rows, columns = np.indices((extent, extent))
    mine = rows >= columns if half is Half.LOWER else rows <= columns
    wanted = {(i // tile[0], j // tile[1]) for i, j in zip(*np.nonzero(mine), strict=True)}
    found = [at for at in triangular(extent, tile, half) if at is not None]
    assert sorted(found) == sorted(wanted)


def test_the_padded_grid_of_the_page() -> None:
    """132 x 132 in tiles of 64 x 32: a grid of 3 x 5, padded to 3 x 6."""
    found = list(triangular(132, (64, 32)))
    assert len(found) == macro_tiles((3, 5), (64, 32)) == 12
    assert found[-1] is None  # it would be (2, 5)
    assert found[-2] == (2, 4)


def test_refused() -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        triangle(-1)
    with pytest.raises(ValueError, match="do not make square macro tiles"):
        macro_tiles((2, 2), (64, 48))
