"""A deadline for optional work: lowering and the proof test at checkpoints whether it has passed.

Without a deadline they run to the end. A checkpoint stands only where no state is half updated, so everything derived before it stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from taskfuse.errors import TaskfuseError

_passed: ContextVar[Callable[[], bool] | None] = ContextVar("deadline", default=None)


class DeadlineError(TaskfuseError):
    """Work was abandoned at a checkpoint because its deadline has passed."""

    template = "its deadline has passed"


@contextmanager
def until(passed: Callable[[], bool]) -> Generator[None]:
    """Abandon the work inside, with a :class:`DeadlineError`, at the first checkpoint at which ``passed`` returns true. Holds for the calling thread."""
    before = _passed.set(passed)
    try:
        yield
    finally:
        _passed.reset(before)


def checkpoint() -> None:
    """Raise :class:`DeadlineError` if there is a deadline and it has passed."""
    passed = _passed.get()
    if passed is not None and passed():
        raise DeadlineError
