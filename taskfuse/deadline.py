"""A deadline for work whose result is welcome, but not needed: lowering and the proof ask at checkpoints whether it has passed.

Whoever needs the result runs them without one. A checkpoint stands where nothing is half done, so what was derived so far remains of use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from taskfuse.errors import TaskfuseError

_passed: ContextVar[Callable[[], bool] | None] = ContextVar("deadline", default=None)


class DeadlineError(TaskfuseError):
    """Work was given up at a checkpoint, since its deadline has passed."""

    template = "its deadline has passed"


@contextmanager
def until(passed: Callable[[], bool]) -> Generator[None]:
    """Give up the work inside, by a :class:`DeadlineError`, at the first checkpoint at which ``passed`` is true. Holds for the calling thread."""
    before = _passed.set(passed)
    try:
        yield
    finally:
        _passed.reset(before)


def checkpoint() -> None:
    """Raises :class:`DeadlineError` if there is a deadline, and it has passed."""
    passed = _passed.get()
    if passed is not None and passed():
        raise DeadlineError
