"""Tables: inputs of integers whose elements stand in index expressions, where they decide which work there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.ir.scalar import Expr


@dataclass(frozen=True, slots=True)
class Table:
    """The range of the elements of an input of one axis of integers.

    An element outside it is brought to the nearer end where an expression reads it. So whatever a table holds, no access leaves its tensor.

    Attributes:
        low: the least value.
        high: the greatest value.
    """

    low: Expr
    high: Expr

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions in it."""
        return self.low, self.high

    def mapped(self, change: Callable[[Expr], Expr]) -> Table:
        """With other expressions in the place of its own."""
        return Table(change(self.low), change(self.high))

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"
