"""The budget of a search. It counts work and reads no clock, so that the result of a search depends on the fusion, not on the load of the machine.

The unit of work is the time that the processor of an ordinary server takes for it, in seconds, by the figures below: what is proposed and what is made is
counted, with its size. A clock is the last safety net, for machines that are far slower: a search that it ends says so, and its result is not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from time import thread_time
from typing import Final

SECONDS: Final = 10.0
"""What a search may spend by default."""
NET: Final = 5.0
"""Seconds of the processor for each second of work, after which the clock ends a search."""


class Work(Enum):
    """What is counted: seconds for each, and seconds for each tensor of it."""

    PAIR = 0.1e-3, 0.02e-3
    OFFERED = 0.5e-3, 0.12e-3
    SCHEDULED = 0.3e-3, 0.2e-3
    COUNTED = 2e-3, 2e-3
    MADE = 5e-3, 4e-3

    def __init__(self, each: float, size: float) -> None:
        self.each = each
        self.size = size


class Ended(Enum):
    """Why a search ended early."""

    WORK = "work"
    CLOCK = "clock"


class Budget:
    """The budget of one search.

    Args:
        seconds: of work.
        clock: seconds of the processor.

    Attributes:
        ended: the reason, once a caller has seen that it is spent.
    """

    __slots__ = ("_clock", "_deadline", "_seconds", "_spent", "ended")

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] | None = None) -> None:
        self._seconds = seconds
        self._spent = 0.0
        self._clock = thread_time if clock is None else clock
        self._deadline = self._clock() + NET * seconds
        self.ended: Ended | None = None

    def spend(self, work: Work, size: int) -> None:
        """Count work on some tensors."""
        self._spent += work.each + work.size * size

    @property
    def is_spent(self) -> bool:
        """Whether the search must end."""
        return self.why_spent is not None

    @property
    def why_spent(self) -> Ended | None:
        """The reason to end the search; ``None`` if it may continue."""
        if self.ended is None:
            if self._spent >= self._seconds:
                self.ended = Ended.WORK
            elif self._clock() > self._deadline:
                self.ended = Ended.CLOCK
        return self.ended
