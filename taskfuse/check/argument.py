"""An argument: obligations that are looked at as somebody asks for them, with Python's collector of reference cycles held back meanwhile.

A proof makes many small objects that live as long as the proof, and hardly a cycle: looking through all of them again and again finds nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from threading import Lock, RLock
from types import TracebackType

from taskfuse.reports.certificate import Obligation, Verdict


class Pause:
    """A context in which no cycles are collected. May be entered again, and by several threads; the last one out lets them be collected if they were before."""

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
"""The one of this process: the collector is one for all."""


class Argument:
    """Obligations, looked at one after another as they are asked for, once. Safe for several threads."""

    def __init__(self, obligations: Iterable[Obligation]) -> None:
        self._rest = iter(obligations)
        self._known: list[Obligation] = []
        self._lock = RLock()

    def __iter__(self) -> Iterator[Obligation]:
        k = 0
        while True:
            with self._lock:
                if k == len(self._known):
                    with PAUSE:
                        found = next(self._rest, None)
                    if found is None:
                        return
                    self._known.append(found)
            yield self._known[k]
            k += 1


def all_proved(obligations: Iterable[Obligation]) -> list[Obligation] | None:
    """Some obligations if all are proved; ``None``, and no look at the rest, if one is not."""
    found: list[Obligation] = []
    for o in obligations:
        if o.verdict is not Verdict.PROVED:
            return None
        found.append(o)
    return found
