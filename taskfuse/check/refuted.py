"""The exceptions that end a search for a counterexample: it was found, or the search is too large."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.location import Quote


class Refuted(Exception):
    """A counterexample."""

    def __init__(self, subject: str, reason: str, *notes: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason
        self.notes = notes

    def quoting(self, statement: Quote) -> Refuted:
        """The counterexample with a quote of the executed statement, unless a note quotes one."""
        if not any(isinstance(n, Quote) for n in self.notes):
            self.notes = (*self.notes, statement)
        return self


class TooLarge(Exception):
    """The launch has more threads, statements or events than the limit."""


@dataclass(slots=True)
class WorkBudget:
    """A limit on the work of all launches together.

    Attributes:
        statements: executions of a statement by some threads at once.
        events: executions by single threads; an access to many elements counts more.
    """

    statements: int = 80_000
    events: int = 600_000

    def spend(self, events: int) -> None:
        """Raise :class:`TooLarge` if the budget is used up."""
        self.statements -= 1
        self.events -= events
        if self.statements < 0 or self.events < 0:
            raise TooLarge

    @property
    def spent(self) -> bool:
        """The budget is used up."""
        return self.statements < 0 or self.events < 0
