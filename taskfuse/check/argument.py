"""An argument: obligations that are evaluated lazily, as they are read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import RLock

from taskfuse.collector import PAUSE
from taskfuse.deadline import checkpoint
from taskfuse.reports.certificate import Obligation, Verdict


class Argument:
    """Obligations, evaluated once, on demand: up to the next gap at a time. Safe for several threads."""

    def __init__(self, obligations: Iterable[Obligation]) -> None:
        self._rest = iter(obligations)
        self._known: list[Obligation] = []
        self._lock = RLock()

    def __iter__(self) -> Iterator[Obligation]:
        k = 0
        while True:
            with self._lock:
                if k == len(self._known):
                    self._look()
                if k == len(self._known):
                    return
            yield self._known[k]
            k += 1

    def _look(self) -> None:
        """Evaluate obligations up to the next one that is not proved (in a proof, all of them), in one pause of the garbage collector: ending a pause costs a
        collection of new objects."""
        with PAUSE:
            for o in self._rest:
                self._known.append(o)
                if o.verdict is not Verdict.PROVED:
                    return
                checkpoint()


def all_proved(obligations: Iterable[Obligation]) -> list[Obligation] | None:
    """The obligations if all are proved; ``None``, without evaluating the rest, if one is not."""
    found: list[Obligation] = []
    for o in obligations:
        if o.verdict is not Verdict.PROVED:
            return None
        found.append(o)
    return found
