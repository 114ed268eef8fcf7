"""Progress of work that takes more than two seconds: one line on stderr.

On a terminal the line is redrawn in place, at most ten times a second, and erased at the end, also after an exception. ``TASKFUSE_PROGRESS=1`` prints
progress to other streams, one line every two seconds; ``TASKFUSE_PROGRESS=0`` prints nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TextIO

from taskfuse.options import Progress as Choice
from taskfuse.options import read_options

FIRST: Final = 2.0
"""Seconds before the first line, and between permanent lines."""
AGAIN: Final = 0.1
"""Seconds between two states of a redrawn line."""
_ERASE: Final = "\r\x1b[K"
_COLUMNS: Final = 79


class Progress:
    """Reports the progress of work, from its beginning (``with``) to its end.

    Args:
        what: the work, as in ``"tf.compile of 'mlp'"``.
        choice: of ``TASKFUSE_PROGRESS``; ``None``: that of the environment.
        stream: the output; ``None``: the current stderr.
        clock: returns seconds.
    """

    __slots__ = ("_clock", "_every", "_is_in_place", "_is_shown", "_next", "_start", "_stream", "_what")

    def __init__(self, what: str, choice: Choice | None = None, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        choice = read_options().progress if choice is None else choice
        self._is_in_place = self._stream is not None and self._stream.isatty()
        self._every = AGAIN if self._is_in_place else FIRST
        if choice == "0" or not (self._is_in_place or choice == "1"):
            self._every = float("inf")
        self._is_shown = False
        self._clock = clock
        self._start = clock()
        self._next = self._start + max(FIRST, self._every)

    def __enter__(self) -> Self:
        return self

    def __call__(self, text: str) -> None:
        """Report the progress, if enough time has passed."""
        now = self._clock()
        if now < self._next or self._stream is None:
            return
        self._next = now + self._every
        line = f"{self._what}: {text}, {now - self._start:.0f} s"
        self._write(_ERASE + line[:_COLUMNS] if self._is_in_place else line + "\n")
        self._is_shown = self._is_in_place

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._is_shown:
            self._write(_ERASE)

    def _write(self, text: str) -> None:
        """Write to the stream; one that was closed gets no further line."""
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):
            self._next = float("inf")
            self._is_shown = False
