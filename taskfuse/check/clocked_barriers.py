"""Barriers at which threads of a launch come together, and instructions that whole warps and warpgroups execute."""

from __future__ import annotations

from typing import Any

from taskfuse.check.clocks import Clocks
from taskfuse.check.known import together
from taskfuse.check.refuted import Refuted
from taskfuse.check.trace import Clock, Event
from taskfuse.kir.synchronization import (
    Barrier,
    BarrierScope,
)
from taskfuse.target import WARP


class ClockedBarriers:
    """The barriers of some blocks.

    Args:
        time: the clocks of the launch.
        events: of every thread; ``at``: the position of each.

    Attributes:
        has_begun: all blocks of the cluster have started, as a completed cluster barrier shows.
    """

    def __init__(self, time: Clocks, events: list[list[Event]], at: list[int]) -> None:
        self._time = time
        self._events = events
        self._at = at
        self.has_begun = False
        self._barriers: dict[Any, list[int]] = {}
        self._released: set[int] = set()
        self._last: dict[tuple[int, int], Clock] = {}
        self._expected: dict[tuple[int, int, int, int], int] = {}
        for t, of_thread in enumerate(events):
            for e in of_thread:
                if together(e.stmt) or (isinstance(e.stmt, Barrier) and e.stmt.scope is BarrierScope.WARP):
                    for size in {WARP, together(e.stmt) or WARP}:
                        key = (id(e.stmt), size, time.unit(t, size), e.again)
                        self._expected[key] = self._expected.get(key, 0) + 1

    def meet(self, t: int, e: Event, scope: BarrierScope, count: int) -> bool:
        """True if a thread passes a barrier of ``count`` threads: the last one has arrived. Raises :class:`Refuted` if they do not match."""
        block = t // self._time.per
        match scope:
            case BarrierScope.BLOCK:
                key, needed = ("block", block), self._time.per
            case BarrierScope.NAMED:
                key, needed = ("named", block, e.key[1]), count
            case BarrierScope.CLUSTER:
                key, needed = ("cluster",), self._time.size
            case BarrierScope.GRID:
                key, needed = ("grid", e.key[1]), count
            case BarrierScope.WARP:
                where = self._time.unit(t, WARP)
                key, needed = ("warp", id(e.stmt), where, e.again), self._expected[id(e.stmt), WARP, where, e.again]
                self._whole(t, e)
        if t in self._released:
            self._released.discard(t)
            return True
        arrived = self._barriers.setdefault(key, [])
        if t in arrived:
            return False
        first = arrived[0] if arrived else t
        other = self._events[first][self._at[first]].stmt
        if scope in (BarrierScope.BLOCK, BarrierScope.CLUSTER) and other is not e.stmt:
            what = scope.value
            there = self._time.who(first, self._events[first][self._at[first]])
            raise Refuted(f"SYNC {what}", f"threads wait at two different barriers of the {what}", self._time.who(t, e), there)
        if scope is BarrierScope.NAMED:
            name, before = f"SYNC named {e.key[1]}", self._last.get((block, e.key[1]))
            if before is not None and not (before <= self._time.clocks[t]).all():
                raise Refuted(
                    name, "nothing orders an arrival after the preceding completion of the barrier, so threads of two rounds may mix", self._time.who(t, e)
                )
            if arrived and self._events[first][self._at[first]].values != count:
                who = self._time.who(t, e), self._time.who(first, self._events[first][self._at[first]])
                raise Refuted(name, "participants expect different numbers of threads", *who)
        arrived.append(t)
        if len(arrived) < needed:
            return False
        del self._barriers[key]
        self.has_begun = self.has_begun or scope is BarrierScope.CLUSTER
        joined = self._time.clocks[arrived].max(axis=0)
        if scope is BarrierScope.NAMED:
            self._last[block, e.key[1]] = joined
        for s in arrived:
            self._time.clocks[s] = joined
            self._time.tick(s)
            if s != t:
                self._released.add(s)
        return True

    def _whole(self, t: int, e: Event) -> None:
        """All threads of a warp (warpgroup) execute what they execute together, each time. Raises :class:`Refuted`."""
        size = together(e.stmt)
        if size == 0:  # SYNC warp: all that the block has
            size, whole = WARP, min(WARP, self._time.per - t % self._time.per // WARP * WARP)
        else:
            whole = size
        for unit, all_ in {WARP: min(WARP, whole), size: whole}.items():
            come = self._expected[id(e.stmt), unit, self._time.unit(t, unit), e.again]
            if come != all_:
                what = "lanes of a warp" if unit == WARP else "threads of a warpgroup"
                raise Refuted(_subject(self._time.text(e)), f"{come} of {all_} {what} reach it", self._time.who(t, e))


def _subject(text: str) -> str:
    """The instruction of a statement's text, without operands."""
    first, _, rest = text.partition(" ")
    return f"{first} {rest.split(' ')[0]}" if first in ("SYNC", "FENCE", "COMMIT", "WAIT_GROUP") else first
