"""Tables: inputs of integers whose elements stand in index expressions, where they decide which work there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.ir.scalar import Expr

RISING = "rising"
"""In the text, the promise that a table rises."""


@dataclass(frozen=True, slots=True)
class Table:
    """The range of the elements of an input of one axis of integers.

    An element outside it is brought to the nearer end where an expression reads it. So whatever a table holds, no access leaves its tensor.

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
        """The expressions in it."""
        return self.low, self.high

    def mapped(self, change: Callable[[Expr], Expr]) -> Table:
        """With other expressions in the place of its own."""
        return Table(change(self.low), change(self.high), self.rises)

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{f' {RISING}' if self.rises else ''}"
