"""Tables: inputs of integers whose elements stand in index expressions, where they decide which work there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.ir.scalar import Expr


@dataclass(frozen=True, slots=True)
class Table:
    """What is known of the elements of an input of one axis of integers.

    The range holds of every element that an expression reads: what is outside is brought to the nearer end. The rest is the caller's promise: results are
    defined by it, but no access leaves its tensor, and no kernel hangs, where it is broken.

    Attributes:
        low: the least value.
        high: the greatest value.
        nondecreasing: no element is less than the one before it.
        first: the first element, or ``None``.
        last: the last element, or ``None``.
    """

    low: Expr
    high: Expr
    nondecreasing: bool = False
    first: Expr | None = None
    last: Expr | None = None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """The expressions in it."""
        return tuple(e for e in (self.low, self.high, self.first, self.last) if e is not None)

    def mapped(self, change: Callable[[Expr], Expr]) -> Table:
        """With other expressions in the place of its own."""
        first, last = (None if e is None else change(e) for e in (self.first, self.last))
        return Table(change(self.low), change(self.high), self.nondecreasing, first, last)

    def __str__(self) -> str:
        words = [f"{self.low}..{self.high}"]
        if self.nondecreasing:
            words.append("nondecreasing")
        words += [f"{name} {value}" for name, value in (("first", self.first), ("last", self.last)) if value is not None]
        return " ".join(words)
