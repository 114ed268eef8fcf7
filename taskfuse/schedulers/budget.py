"""The budget of a search: seconds of processor time, by a count of its work and by a clock.

Work is measured in seconds on the processor of an ordinary server, by the figures below: proposed and generated schedules are
counted, with their sizes. So the result of most searches depends on the fusion, not on the machine. A clock of the thread's processor time bounds all searches,
on slower machines and for work that exceeds its count. It stops while other processes use the processor.

A part of the budget is reserved for the end: the kernels of the chosen segments are made after the search.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum
from time import thread_time
from typing import Final

from taskfuse.deadline import until

SECONDS: Final = 10.0
"""What a search may spend by default."""
ENDING: Final = 0.25
"""The greatest part of the seconds that is for the end."""


OVERTIME: Final = 0.3
"""A further part of them, where a kernel would be kept that is far from its roofline and takes a large part of the time."""


class Work(Enum):
    """What is counted: seconds for each, and seconds for each tensor of it. What is joined are kernels that were made before, of simple math: 64 steps of an
    optimizer take 1.8 ms for each of their tensors."""

    PAIR = 0.1e-3, 0.02e-3
    OFFERED = 0.25e-3, 0.06e-3
    SCHEDULED = 0.3e-3, 0.2e-3
    COUNTED = 2e-3, 2e-3
    MADE = 5e-3, 4e-3
    JOINED = 5e-3, 1.8e-3

    def __init__(self, each: float, size: float) -> None:
        self.each = each
        self.size = size

    def of(self, size: int) -> float:
        """Seconds for some tensors."""
        return self.each + self.size * size


class Ended(Enum):
    """Why a search ended early."""

    WORK = "work"
    CLOCK = "clock"


class Budget:
    """The budget of one search.

    Args:
        seconds: of work, and of the processor.
        clock: seconds of the processor.
        tensors: of the fusion, whose kernels are made at the end.

    Attributes:
        ended: the reason, once a caller has seen that it is spent.
        extended: the same, of before it was extended; ``None`` if it was not.
    """

    __slots__ = ("_clock", "_deadline", "_overtime", "_seconds", "_spent", "ended", "extended")

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] | None = None, tensors: int = 0) -> None:
        self._seconds = seconds - min(ENDING * seconds, Work.MADE.size * tensors)
        self._spent = 0.0
        self._clock = thread_time if clock is None else clock
        self._deadline = self._clock() + self._seconds
        self._overtime = OVERTIME * seconds
        self.ended: Ended | None = None
        self.extended: Ended | None = None

    def extend(self) -> bool:
        """Go on for :data:`OVERTIME`, once, when the budget is spent. False if it was extended before."""
        if self.extended is not None or self.why_spent is None:
            return False
        self.extended, self.ended = self.ended, None
        self._seconds, self._deadline = self._spent + self._overtime, self._clock() + self._overtime
        return True

    def spend(self, work: Work, size: int) -> None:
        """Count work on some tensors."""
        self._spent += work.of(size)

    def limit(self) -> AbstractContextManager[None]:
        """Work inside is given up when the budget is spent, by a :class:`~taskfuse.deadline.DeadlineError`: for alternatives to what has been found."""
        return until(lambda: self.is_spent)

    @contextmanager
    def share(self, part: float) -> Generator[None, None, None]:
        """Inside, the budget is spent when a part of what is left now is: what comes later has the rest."""
        seconds, deadline, now = self._seconds, self._deadline, self._clock()
        self._seconds = self._spent + part * max(seconds - self._spent, 0.0)
        self._deadline = now + part * max(deadline - now, 0.0)
        try:
            yield
        finally:
            self._seconds, self._deadline, self.ended = seconds, deadline, None

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
