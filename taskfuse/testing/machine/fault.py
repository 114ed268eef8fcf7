"""Faults that a run of the machine finds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FaultKind(Enum):
    """The claim of the proof that a fault contradicts."""

    RACE = "race"
    PROXY = "proxy"
    DEADLOCK = "deadlock"
    PARTIAL = "part of a warp"
    PHASE = "phase"
    COUNT = "count"
    BOUNDS = "bounds"
    ALIGNMENT = "alignment"
    VALUE = "no value"
    LIFE = "life"
    REGISTERS = "registers"
    ENDLESS = "endless"


@dataclass(frozen=True, slots=True)
class MachineFault:
    """A faulty statement of a thread.

    Attributes:
        thread: its number in the launch; ``None`` if it belongs to no thread.
        statement: its text.
        launch: the extents and the number of the schedule.
    """

    kind: FaultKind
    reason: str
    thread: int | None
    statement: str
    launch: str = ""

    def __str__(self) -> str:
        who = "" if self.thread is None else f"thread {self.thread}: "
        return f"{self.kind.value}: {self.reason}\n  {who}{self.statement}" + (f"\n  {self.launch}" if self.launch else "")


class FaultFound(Exception):
    """Ends a run. ``site`` is the number of the statement, or -1."""

    def __init__(self, kind: FaultKind, reason: str, thread: int | None, site: int) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.thread, self.site = kind, reason, thread, site


class NoLaunch(Exception):
    """The launch is refused before a thread runs: it is too large, or an extent has no value."""


class OutOfSteps(Exception):
    """The run exceeds the machine's limit of steps."""
