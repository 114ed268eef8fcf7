"""The report on all interleavings of a small kernel: a failing one, and how to replay it."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.errors import SimulationError
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True)
class Failure:
    """An interleaving that fails.

    Attributes:
        choices: the choices of the run, for ``simulate(..., choices=...)``.
        error: the error that it raises; ``None`` if it ends, with outputs different from those of the first interleaving.
        output: the first output that differs.
    """

    choices: tuple[int, ...]
    error: SimulationError | None = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of an exploration.

    Attributes:
        kernel: its name.
        states: states visited. Reduced: states on the interleavings that were run, none twice on one prefix.
        interleavings: runs to the end (or, not reduced, to a known state).
        complete: all interleavings were covered; false if the search stopped at its limit.
        failure: the first interleaving that fails, ``None`` if all end with the same outputs.
        in_step: threads that start together.
    """

    kernel: str
    states: int
    interleavings: int
    complete: bool
    failure: Failure | None
    in_step: int = WARP

    @property
    def holds(self) -> bool:
        """True if every interleaving was covered and none fails."""
        return self.complete and self.failure is None

    @property
    def replay(self) -> str:
        """The call that repeats the failure; empty without a failure."""
        if self.failure is None:
            return ""
        step = "" if self.in_step == WARP else f", in_step={self.in_step}"
        return f"kernel.simulate(..., choices={list(self.failure.choices)}{step})"

    def __str__(self) -> str:
        size = f"{self.states} states, {self.interleavings} interleaving{'s' * (self.interleavings != 1)}"
        if self.failure is None:
            how = "all interleavings end with the same outputs" if self.complete else "no interleaving fails so far: the search stopped at its limit"
            return f"{self.kernel}: {how} ({size})"
        error = f"'{self.failure.output}' depends on the interleaving" if self.failure.error is None else str(self.failure.error)
        return f"{self.kernel}: an interleaving fails ({size})\n{error}\nreplay: {self.replay}"
