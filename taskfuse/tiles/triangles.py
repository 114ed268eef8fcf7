"""Tiles of a triangle: from their number to row and column, exactly, in integers.

A lower triangle is numbered row by row: row i begins with tile i(i+1)/2. CUTLASS's grouped Rank2K scheduler solves for the row in floating point,
``i = ceil(sqrt(2t + 2.25) - 0.5) - 1``, which equals the result of the integer square root here as long as the floating-point root is accurate enough.

If tiles are not square, ``r`` of them side by side (or one above the other) make a square macro tile. Macro tiles form the triangle; a grid that is not a
multiple of them is padded, and tiles outside it, or wholly in the other half, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from math import isqrt

from taskfuse.ir.signatures import checked_first


class Half(Enum):
    """Which half of a square result is computed."""

    LOWER = "lower"
    UPPER = "upper"


@checked_first
def triangle(t: int, half: Half = Half.LOWER) -> tuple[int, int]:
    """Row and column of tile ``t`` of a triangle, both from 0; an upper triangle is the mirror image of a lower one.

    Raises:
        ValueError: ``t`` is negative.
    """
    if t < 0:
        raise ValueError(f"tiles are numbered from 0: {t}")
    i = (isqrt(8 * t + 1) - 1) // 2
    j = t - i * (i + 1) // 2
    return (i, j) if half is Half.LOWER else (j, i)


@checked_first
def macro_tiles(grid: tuple[int, int], tile: tuple[int, int]) -> int:
    """The number of items of a triangle, including those without a tile.

    Args:
        grid: rows and columns of tiles of the whole result.
        tile: rows and columns of elements of a tile; one divides the other.

    Raises:
        ValueError: neither extent of a tile divides the other.
    """
    side = grid[0] if tile[0] >= tile[1] else grid[1]
    return side * (side + 1) // 2 * ratio(tile)


@checked_first
def triangular(extent: int, tile: tuple[int, int], half: Half = Half.LOWER) -> Iterator[tuple[int, int] | None]:
    """Row and column of tile after tile of the triangle of a square result of ``extent``; ``None`` for a number without a tile."""
    grid = -(-extent // tile[0]), -(-extent // tile[1])
    r = ratio(tile)
    for t in range(macro_tiles(grid, tile)):
        i, j = triangle(t // r, half)
        row, column = (i, j * r + t % r) if tile[0] >= tile[1] else (i * r + t % r, j)
        outside = row >= grid[0] or column >= grid[1]
        if half is Half.LOWER:
            outside |= (row + 1) * tile[0] <= column * tile[1]
        else:
            outside |= row * tile[0] >= (column + 1) * tile[1]
        yield None if outside else (row, column)


def ratio(tile: tuple[int, int]) -> int:
    """Tiles of a macro tile."""
    most, least = max(tile), min(tile)
    if least < 1 or most % least:
        raise ValueError(f"tiles of {tile[0]} x {tile[1]} do not make square macro tiles: one extent must be a multiple of the other")
    return most // least
