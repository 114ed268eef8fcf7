"""What the simulator says of all schedules of a small kernel: whether one of them fails, and how to repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.errors import SimulationError
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True)
class Failure:
    """A schedule that fails.

    Attributes:
        schedule: its choices, for ``simulate(..., schedule=...)``.
        error: what that raises; ``None``: it ends, with outputs other than those of the first schedule.
        output: the first output that differs.
    """

    schedule: tuple[int, ...]
    error: SimulationError | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Exploration:
    """What was found.

    Attributes:
        kernel: its name.
        states: states visited. Reduced: states on the schedules that were run, none twice on one prefix.
        schedules: runs to the end (or, not reduced, to a known state).
        complete: no schedule is left; false if the search was cut at its limit.
        failure: the first schedule that fails, ``None`` if all end with the same outputs.
        in_step: threads that start together.
    """

    kernel: str
    states: int
    schedules: int
    complete: bool
    failure: Failure | None
    in_step: int = WARP

    @property
    def holds(self) -> bool:
        """True if every schedule was covered and none fails."""
        return self.complete and self.failure is None

    @property
    def replay(self) -> str:
        """The call that repeats the failure; empty without one."""
        if self.failure is None:
            return ""
        step = "" if self.in_step == WARP else f", in_step={self.in_step}"
        return f"kernel.simulate(..., schedule={list(self.failure.schedule)}{step})"

    def __str__(self) -> str:
        size = f"{self.states} states, {self.schedules} schedule{'s' * (self.schedules != 1)}"
        if self.failure is None:
            how = "all schedules end with the same outputs" if self.complete else "no schedule fails so far: the search was cut at its limit"
            return f"{self.kernel}: {how} ({size})"
        error = f"'{self.failure.output}' depends on the schedule" if self.failure.error is None else str(self.failure.error)
        return f"{self.kernel}: a schedule fails ({size})\n{error}\nreplay: {self.replay}"
