"""Python's cyclic garbage collector, disabled while a kernel is lowered or proved.

Lowering and the proof create many small objects that live to the end, and few cycles. The collector would traverse them repeatedly and free almost nothing,
at a tenth to a quarter of the time of a proof. The cycles of one kernel are bounded, and collected afterwards; a proof breaks its own cycles.
"""

from __future__ import annotations

import gc
from threading import Lock
from types import TracebackType


class Pause:
    """A context that disables the collector. Reentrant, and shared by all threads; the last exit restores the former state."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._inside = 0
        self._stopped = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside and gc.isenabled():
                gc.disable()
                self._stopped = True
            self._inside += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._stopped:
                gc.enable()
                self._stopped = False


PAUSE = Pause()
"""The only instance: the collector is a property of the process."""
