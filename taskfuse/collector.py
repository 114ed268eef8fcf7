"""Python's cyclic garbage collector, disabled while a kernel is lowered or proved, and less frequent while schedules are searched.

Lowering and the proof create many small objects that live to the end, and few cycles. The collector would traverse them repeatedly and free almost nothing,
at a tenth to a quarter of the time of a proof. The cycles of one kernel are bounded, and collected afterwards; a proof breaks its own cycles.

A search makes hundreds of copies of a fusion, each with cycles, so the collector is needed, but not after every 700 objects: that takes a tenth of the time
of a search.
"""

from __future__ import annotations

import gc
from threading import Lock
from types import TracebackType
from typing import Final

SELDOM: Final = 50_000, 20, 100
"""Objects made until a young generation is collected, and younger collections until an older one is, while schedules are searched."""


class _Shared:
    """A context that changes a setting of the collector. Reentrant, and shared by all threads; the last exit restores the former state."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._begin()
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._end()

    def _begin(self) -> None:
        raise NotImplementedError

    def _end(self) -> None:
        raise NotImplementedError


class Pause(_Shared):
    """A context that disables the collector."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped = False

    def _begin(self) -> None:
        self._stopped = gc.isenabled()
        gc.disable()

    def _end(self) -> None:
        if self._stopped:
            gc.enable()


class Seldom(_Shared):
    """A context in which the collector runs less often, unless the caller has it run even less."""

    def __init__(self) -> None:
        super().__init__()
        self._before = gc.get_threshold()

    def _begin(self) -> None:
        self._before = gc.get_threshold()
        first, *others = self._before
        if 0 < first < SELDOM[0]:
            gc.set_threshold(SELDOM[0], *map(max, others, SELDOM[1:]))

    def _end(self) -> None:
        gc.set_threshold(*self._before)


PAUSE = Pause()
"""The only instance: the collector is a property of the process."""

SEARCH = Seldom()
"""The only instance."""
