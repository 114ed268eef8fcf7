"""Tables: inputs of integers whose elements may occur in index expressions, and tables of places.

A table of places has the results of a search in another table (:class:`taskfuse.ir.scalar.UpperBound`), for every key from 0 on. CUTLASS's grouped kernels call
this host-precomputed: a block reads which problem its next tile belongs to instead of searching for it. The host or an earlier kernel, whichever has the
searched
table first, makes the table of places, once for all kernels with the same search. The search defines what a kernel computes; the caller promises
that the table has the search's results. Like a searched table, a table of places is clamped where it is read, so that no access leaves its tensor, whatever the
tables contain.
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
"""In the text, precedes the kind of search of a table, if it is not bisection."""
SEARCHES = {PlaceSearch.BALLOT.value: PlaceSearch.BALLOT}
"""The words after it."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """The range of the elements of an input with one axis of integers.

    An element outside it is clamped where an expression reads it, so no access leaves its tensor whatever a table contains.

    Attributes:
        low: the least value.
        high: the greatest value.
        rises: the caller's promise that no element is less than its predecessor, that the first is ``low`` and the last ``high``. The results of a kernel
            depend
            on it, but no access and no wait does.
        search: how kernels search it.
        lengths: the elements are lengths of groups, whose offsets expressions use (:mod:`taskfuse.ir.offsets`). The caller promises that none is
            negative, and that their sum is ``high``; a table that breaks the promise still has offsets.
        holds: the caller's promise that element ``i0`` equals this expression over another table; ``None``: no promise. It has the status of ``rises``.
    """

    low: Expr
    high: Expr
    rises: bool = False
    search: PlaceSearch = PlaceSearch.BISECTION
    holds: Expr | None = None
    lengths: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions over dimensions in its range."""
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
    """The promise of a table of places for searches such as ``found``: that of the key :data:`KEY`."""
    return upper_bound(found.tensor, found.size, found.low, found.high, KEY, divisor=found.divisor, step=found.step)


def held_places(table: Sym, size: Expr, low: Expr, high: Expr, divisor: int) -> tuple[Expr, Expr]:
    """The promise of a table of the places in another table, and its number of elements.

    Keys are numbers of tiles of ``divisor`` rows: ``high//divisor`` whole ones, then one for each of the ``size`` - 1 groups
    (:mod:`taskfuse.ir.row_tiles`).
    """
    return upper_bound(table, size, low, high, KEY, divisor=divisor), high // divisor + size - ONE


def places(holds: Expr, size: int, symbols: Mapping[str, object]) -> NDArray[np.int64]:
    """The elements of a table of places.

    Args:
        holds: its promise.
        size: its number of elements.
        symbols: values of dimensions, and the elements of the searched table, by name.
    """
    known: dict[str, Any] = {**symbols, KEY.name: np.arange(size)}
    return np.broadcast_to(np.asarray(evaluate(holds, known), np.int64), (size,))
