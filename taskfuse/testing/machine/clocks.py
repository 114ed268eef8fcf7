"""Vector clocks: what a thread knows of the others.

A clock is an immutable value that many threads share; a thread's own entry is kept apart, so that a barrier of a thousand threads makes one list. Entries
``0..n`` are of memory: what another thread did up to an epoch is visible. Entries ``n..2n`` are of control: it has happened, though what it stored
need not be visible (instructions of a whole warp, arrivals of asynchronous copies). Behind them stands a completed phase for each mbarrier. Operations of
asynchronous engines are bits of ``done``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """What has happened before."""

    known: list[int]
    done: int = 0


def joined(clocks: Iterable[Clock]) -> Clock:
    """What any of some clocks knows. The list may be one of theirs: copy it before writing."""
    different = {id(c): c for c in clocks}
    if len(different) == 1:
        return next(iter(different.values()))
    done = 0
    for c in different.values():
        done |= c.done
    return Clock([*map(max, *(c.known for c in different.values()))], done)
