"""Tables: inputs of integers whose elements may stand in index expressions, and tables of places.

A table of places holds what a search in another table finds (:class:`taskfuse.ir.scalar.UpperBound`), for every key from 0 on. CUTLASS's grouped kernels call
this host-precomputed: a block reads of which problem its next tile is, and does not look for it. Whoever knows the searched table first makes the other, a host
or an earlier kernel, once for all kernels that ask the same. What a kernel computes is defined by the search; that the table holds what the search finds is a
promise of the caller. Like a searched table a table of places is clamped where it is read, so that whatever both hold, no access leaves its tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar import ONE, Expr, Sym, UpperBound, evaluate, sym, upper_bound
from taskfuse.ir.types import PlaceSearch

RISING = "rising"
"""In the text, the promise that a table rises."""
LENGTHS = "lengths"
"""In the text, the promise that the elements of a table are lengths of groups."""
BY = "by"
"""In the text, how a table is searched, where that is not by bisection."""
SEARCHES = {PlaceSearch.BALLOT.value: PlaceSearch.BALLOT}
"""The words after it."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """The range of the elements of an input of one axis of integers.

    An element outside it is clamped where an expression reads it, so no access leaves its tensor whatever a table holds.

    Attributes:
        low: the least value.
        high: the greatest value.
        rises: the caller's promise that no element is less than the one before it, that the first is ``low`` and the last ``high``. What a kernel computes
            rests on it, but no access and no wait does.
        search: how kernels find places in it.
        lengths: the elements are lengths of groups, of which expressions use the offsets (:mod:`taskfuse.ir.offsets`). The caller's promise is that none is
            negative, and that they add up to ``high``; a table that breaks it has offsets all the same.
        holds: the caller's promise that element ``i0`` is this, an expression over another table; ``None``: none is made. It counts as ``rises`` does.
    """

    low: Expr
    high: Expr
    rises: bool = False
    search: PlaceSearch = PlaceSearch.BISECTION
    holds: Expr | None = None
    lengths: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions over dimensions: of its range."""
        return self.low, self.high

    def mapped(self, change: Callable[[Expr], Expr]) -> TableRange:
        """The table with ``change`` applied to its expressions."""
        return replace(self, low=change(self.low), high=change(self.high), holds=None if self.holds is None else change(self.holds))

    def __str__(self) -> str:
        rises = f" {RISING}" if self.rises else f" {LENGTHS}" if self.lengths else ""
        search = f" {BY} {self.search.value}" if self.search is not PlaceSearch.BISECTION else ""
        return f"{self.low}..{self.high}{rises}{search}{'' if self.holds is None else f' = {self.holds}'}"


KEY = sym("i0")
"""The key of an element: its index."""


def of_keys(found: UpperBound) -> Expr:
    """What a table of places holds for searches such as ``found``: that of the key :data:`KEY`."""
    return upper_bound(found.tensor, found.size, found.low, found.high, KEY, divisor=found.divisor, step=found.step)


def held_places(table: Sym, size: Expr, low: Expr, high: Expr, divisor: int) -> tuple[Expr, Expr]:
    """What a table of the places in another one holds, and how many elements it has.

    Keys are numbers of tiles of ``divisor`` rows: ``high//divisor`` whole ones, and behind them one for each of the ``size`` - 1 groups
    (:mod:`taskfuse.ir.row_tiles`).
    """
    return upper_bound(table, size, low, high, KEY, divisor=divisor), high // divisor + size - ONE


def places(holds: Expr, size: int, symbols: Mapping[str, object]) -> NDArray[np.int64]:
    """The elements of a table of places.

    Args:
        holds: what it holds.
        size: how many elements it has.
        symbols: values of dimensions, and the elements of the searched table, by name.
    """
    known: dict[str, Any] = {**symbols, KEY.name: np.arange(size)}
    return np.broadcast_to(np.asarray(evaluate(holds, known), np.int64), (size,))
