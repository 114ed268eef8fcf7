"""The threads of a block of constant extents, by their linear numbers, and which of them satisfy conditions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import all_of, any_of, ones
from taskfuse.ir.scalar import Const, Expr, TableIndexError, evaluate
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.target import MAX_THREADS, WARP

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
SHAPES = 1 << 6
"""The most shapes of blocks whose threads are kept."""
THREAD_NAMES = tuple(p.index_name for p in THREAD_TYPES)
THREADS = frozenset(THREAD_NAMES)


@lru_cache(SHAPES)
def _threads_of(dx: int, dy: int, dz: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The three indices of the threads of a block of some shape, and the numbers of their warps: read only, as blocks of this shape share them."""
    ids = np.arange(dx * dy * dz)
    found = ids % dx, ids // dx % dy, ids // (dx * dy), ids // WARP
    for numbers in found:
        numbers.flags.writeable = False
    return found


class Masks:
    """Questions about the threads of one block; unknown if an extent is a symbol.

    Attributes:
        shape: the extents; ``None`` if one is a symbol.
        values: of each thread index, per thread; warps: the number of each thread's warp.
    """

    def __init__(self, block: tuple[Expr, Expr, Expr]) -> None:
        self.shape: tuple[int, int, int] | None = None
        self.values: dict[str, Ints] = {}
        self.warps: Ints = np.zeros(0, np.int64)
        self._known: dict[Expr, Mask] = {}
        match block:
            case Const(value=dx), Const(value=dy), Const(value=dz) if dx * dy * dz <= MAX_THREADS:
                self.shape = dx, dy, dz
                *indices, self.warps = _threads_of(dx, dy, dz)
                self.values = dict(zip(THREAD_NAMES, indices, strict=True))
            case _:
                pass

    def of(self, conditions: Iterable[Expr]) -> Mask | None:
        """The threads that satisfy conditions; ``None`` if this depends on more than constants, or a condition has no value
        (:mod:`taskfuse.check.defined` then refuses it)."""
        if self.shape is None:
            return None
        found: Mask | None = None
        for c in conditions:
            one = self._known.get(c)
            if one is None:
                if not c.free <= THREADS:
                    return None
                try:
                    holds = evaluate(c, self.values)
                except (ZeroDivisionError, TableIndexError):
                    return None
                one = self._known[c] = np.full(self.warps.shape, holds, np.bool_) if isinstance(holds, int) else holds.astype(np.bool_, copy=False)
            found = one if found is None else found & one
        return ones(self.warps.shape) if found is None else found

    def is_empty(self, conditions: Iterable[Expr]) -> bool:
        """True only if no thread satisfies the conditions, considering only those on thread indices."""
        mask = self.of(c for c in conditions if c.free and c.free <= THREADS)
        return mask is not None and not any_of(mask)

    def everybody(self, condition: Expr) -> bool:
        """True only if all threads satisfy a condition."""
        mask = self.of((condition,))
        return mask is not None and all_of(mask)
