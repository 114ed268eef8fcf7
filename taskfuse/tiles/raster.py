"""Row by row: the last tile axis runs fastest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taskfuse.ir.axes import WORK
from taskfuse.ir.scalar import Expr, sym


@dataclass(frozen=True, slots=True)
class Raster:
    """The row-major order of any number of tile axes."""

    def maps(self, extents: Sequence[Expr]) -> tuple[Expr, ...]:
        """The index along each axis, from the work index ``w``."""
        return unravel(sym(WORK), extents)


def raster() -> Raster:
    """Tiles in row-major order."""
    return Raster()


def unravel(work: Expr, extents: Sequence[Expr]) -> tuple[Expr, ...]:
    """The row-major indices of element ``work`` of an array of ``extents``; that of the first axis is not reduced by its extent."""
    found: list[Expr] = []
    for extent in reversed(extents[1:]):
        found.append(work % extent)
        work = work // extent
    return (work, *reversed(found)) if extents else ()
