"""Faults that the simulator finds, before the offending statement is added."""

from __future__ import annotations


class Fault(Exception):
    """A broken rule. The machine adds the statement, the block and the thread, and raises :class:`taskfuse.errors.SimulationError`.

    Attributes:
        reason: the message, in the words of the rule.
        thread: linear id of the offending thread; ``None``: the first thread that executes the statement.
        notes: facts.
        help: what to do.
    """

    def __init__(self, reason: str, *, thread: int | None = None, notes: tuple[str, ...] = (), help: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.thread = thread
        self.notes = notes
        self.help = help


class TornWarp(Fault):
    """A collective instruction reached by a part of a warp."""
