"""Boxes: the rows of a tile if rows span more than one axis, such as pixels of images.

One bulk copy loads, or stores, a box, so the rows of a tile form a box of images, lines and columns. The 64 rows of an instruction
form a box whose extents are powers of two; a tile consists of such boxes side by side along one axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil, prod

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.scalar import Const, Expr

USUAL_ROWS = 128
"""Rows of a tile of usual size."""
FEWER = 1.25
"""The factor by which boxes must reduce the number of tiles."""


@lru_cache(maxsize=1024)
def box_of_rows(extents: tuple[int, ...], rows: int) -> tuple[int, ...]:
    """The box of ``rows`` rows with which the fewest tiles cover axes of some extents.

    Ties go to the box that is longest along the last axes, whose elements are closest in memory.

    Args:
        rows: of a tile, a multiple of 64.
    """

    def key(box: Sequence[int]) -> tuple[int, ...]:
        return prod(ceil(n / b) for n, b in zip(extents, box, strict=True)), *(-b for b in reversed(box))

    return min(_boxes(len(extents), rows), key=key)


def are_better(extents: Sequence[Expr]) -> bool:
    """True if boxes need fewer tiles than rows along the last axis by at least :data:`FEWER`."""
    sizes = tuple(e.value for e in extents if isinstance(e, Const))
    if len(sizes) < max(2, len(extents)) or not all(sizes):
        return False
    *outer, last = sizes
    box = box_of_rows(sizes, USUAL_ROWS)
    return FEWER * prod(ceil(n / b) for n, b in zip(sizes, box, strict=True)) <= prod(outer) * ceil(last / USUAL_ROWS)


def _boxes(axes: int, rows: int) -> Iterator[tuple[int, ...]]:
    """The boxes of so many rows: one of 64, several times along its outermost axis of more than one element, or along one outside it.

    So the rows of each instruction, consecutive ones of the tile, are a box.
    """
    for powers in _powers(axes, WGMMA_ROWS.bit_length() - 1):
        one = [1 << p for p in powers]
        outermost = next(k for k, extent in enumerate(one) if extent > 1)
        for along in range(outermost + 1):
            yield tuple(extent * (rows // WGMMA_ROWS if k == along else 1) for k, extent in enumerate(one))


def _powers(axes: int, total: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a sum of so many."""
    if axes == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _powers(axes - 1, total - first):
            yield (first, *rest)
