"""The threads of a launch: what each knows of the others, as vector clocks, and how they pass this on.

A clock is an immutable value that many threads share; a thread's own entry is stored separately, so that a barrier of a thousand threads makes one list.
Entries
``0..n`` are of memory: everything that another thread did up to an epoch is visible. Entries ``n..2n`` are of control: it has happened, though its stores
need not be visible (instructions of a whole warp, arrivals of asynchronous copies). After them comes a completed phase for each mbarrier. Operations of
asynchronous engines are bits of ``done``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """The events that happened before."""

    known: list[int]
    done: int = 0


def joined(clocks: Iterable[Clock]) -> Clock:
    """The join of some clocks. The list may be one of theirs: copy it before writing."""
    different = {id(c): c for c in clocks}
    if len(different) == 1:
        return next(iter(different.values()))
    done = 0
    for c in different.values():
        done |= c.done
    return Clock([*map(max, *(c.known for c in different.values()))], done)


Part = tuple[Clock, int, int]
"""The state that a thread releases: its clock, its number, its epoch."""


class MachineThreads:
    """Clocks, epochs and proxy fences.

    Args:
        count: threads of the launch.
        slots: mbarriers of the launch.
    """

    def __init__(self, count: int, slots: int) -> None:
        self.count = count
        self.base = [Clock([0] * (2 * count + slots))] * count
        self.own = [1] * count
        self.shared_fences: list[list[int]] = [[] for _ in range(count)]
        self.global_fences: list[list[int]] = [[] for _ in range(count)]
        self._joins: dict[tuple[int, int], tuple[Clock, Clock, Clock]] = {}

    def publish(self, t: int) -> Part:
        """The clock of ``t``, whose next epoch begins."""
        part = self.base[t], t, self.own[t]
        self.own[t] += 1
        return part

    def merged(self, parts: Sequence[Part], done: int = 0, more: Sequence[Clock] = ()) -> Clock:
        """The join of the clocks of several threads, in a new list."""
        clock = joined([*(c for c, _, _ in parts), *more])
        known = [*clock.known]
        n = self.count
        for _, t, epoch in parts:
            if known[t] < epoch:
                known[t] = epoch
            if known[n + t] < epoch:
                known[n + t] = epoch
        return Clock(known, clock.done | done)

    def clock(self, threads: Sequence[int]) -> Clock:
        """The clock of an operation that these threads start together."""
        return self.merged([self.publish(t) for t in threads])

    def learn(self, t: int, clock: Clock) -> None:
        """``t`` learns a clock that it has waited for."""
        mine = self.base[t]
        if mine is clock:
            return
        key = id(mine), id(clock)
        found = self._joins.get(key)
        if found is None:
            found = self._joins[key] = mine, clock, joined((mine, clock))
        self.base[t] = found[2]

    def finish(self, t: int, done: int) -> None:
        """``t`` learns that some operations are complete."""
        mine = self.base[t]
        if mine.done | done != mine.done:
            self.base[t] = Clock(mine.known, mine.done | done)

    def synchronize(self, threads: Sequence[int]) -> None:
        """Threads pass a barrier: each learns the clocks of all."""
        clock = self.clock(threads)
        for t in threads:
            self.base[t] = clock

    def pass_together(self, threads: Sequence[int]) -> None:
        """Threads continue together after all have arrived; memory is not ordered."""
        n = self.count
        clock = joined([self.base[t] for t in threads])
        control = clock.known[n:]
        for t in threads:
            control[t] = self.own[t]
            self.own[t] += 1
        made: dict[int, Clock] = {}
        for t in threads:
            mine = self.base[t]
            found = made.get(id(mine))
            if found is None:
                found = made[id(mine)] = Clock(mine.known[:n] + control, mine.done)
            self.base[t] = found
