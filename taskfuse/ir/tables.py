"""Tables: inputs of integers whose elements may stand in index expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.ir.scalar import Expr

RISING = "rising"
"""In the text, the promise that a table rises."""


@dataclass(frozen=True, slots=True)
class TableRange:
    """The range of the elements of an input of one axis of integers.

    An element outside it is clamped where an expression reads it, so no access leaves its tensor whatever a table holds.

    Attributes:
        low: the least value.
        high: the greatest value.
        rises: the caller's promise that no element is less than the one before it, that the first is ``low`` and the last ``high``. What a kernel computes
            rests on it, but no access and no wait does.
    """

    low: Expr
    high: Expr
    rises: bool = False

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """Its expressions."""
        return self.low, self.high

    def mapped(self, change: Callable[[Expr], Expr]) -> TableRange:
        """The table with ``change`` applied to its expressions."""
        return TableRange(change(self.low), change(self.high), self.rises)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{f' {RISING}' if self.rises else ''}"
