"""Tables: inputs of integers whose elements may stand in index expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from taskfuse.ir.scalar import Expr
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
