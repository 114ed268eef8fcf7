"""The threads of a launch: what each knows of the others, as vector clocks, and how they pass this on.

A clock is an immutable value that many threads share; a thread's own entry is stored separately, so that a barrier of a thousand threads makes one list.
Entries
``0..n`` are of memory: everything that another thread did up to an epoch is visible. Entries ``n..2n`` are of control: it has happened, though its stores
need not be visible (instructions of a whole warp, arrivals of asynchronous copies, completions of bulk loads). After them comes a completed phase for each
mbarrier. In a launch with clusters, ``n`` more entries are of reads: they are over, though what the thread stored need not be visible. Operations of
asynchronous engines are bits of ``done``.

So a write is invisible to a thread until a path of synchronization shows it, whatever the order of the run: an edge passes only what its scope and its kind
publish (PTX ISA, "Memory Consistency Model": morally strong, causality order, asynchronous operations).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """The events that happened before.

    Attributes:
        done: operations whose effects are visible; over: others that are complete.
    """

    known: list[int]
    done: int = 0
    over: int = 0


def joined(clocks: Iterable[Clock]) -> Clock:
    """The join of some clocks. The list may be one of theirs: copy it before writing."""
    different = {id(c): c for c in clocks}
    if len(different) == 1:
        return next(iter(different.values()))
    done = over = 0
    for c in different.values():
        done |= c.done
        over |= c.over
    return Clock([*map(max, *(c.known for c in different.values()))], done, over)


Part = tuple[Clock, int, int]
"""The state that a thread releases: its clock, its number, its epoch."""


class MachineThreads:
    """Clocks, epochs and proxy fences.

    Args:
        count: threads of the launch.
        slots: mbarriers of the launch.
        clusters: blocks of a cluster may arrive at each other's mbarriers.

    Attributes:
        reads: the first entry of reads: without clusters, those of memory say the same.
    """

    def __init__(self, count: int, slots: int, *, clusters: bool = False) -> None:
        self.count = count
        self.reads = 2 * count + slots if clusters else 0
        self.base = [Clock([0] * (2 * count + slots + (count if clusters else 0)))] * count
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
            if known[self.reads + t] < epoch:
                known[self.reads + t] = epoch
        return Clock(known, clock.done | done, clock.over)

    def clock(self, threads: Sequence[int]) -> Clock:
        """The clock of an operation that these threads start together."""
        return self.merged([self.publish(t) for t in threads])

    def common(self, threads: Sequence[int]) -> Clock:
        """What each of these threads knows: the clock of an operation that any of them may execute."""
        different = {id(c): c for c in (self.base[t] for t in threads)}
        if len(different) == 1:
            return next(iter(different.values()))
        done = over = -1
        for c in different.values():
            done &= c.done
            over &= c.done | c.over
        return Clock([*map(min, *(c.known for c in different.values()))], done, over)

    def control(self, clock: Clock) -> Clock:
        """What has happened by then, of which nothing is visible."""
        n, reads = self.count, self.reads
        known = [0] * n + clock.known[n : reads or None]
        return Clock(known + [0] * n if reads else known)

    def ended(self, clock: Clock) -> Clock:
        """What has happened by then, reads included, of which nothing is visible."""
        return Clock([0] * self.count + clock.known[self.count :], 0, clock.done | clock.over)

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
            self.base[t] = Clock(mine.known, mine.done | done, mine.over)

    def synchronize(self, threads: Sequence[int]) -> None:
        """Threads pass a barrier: each learns the clocks of all."""
        clock = self.clock(threads)
        for t in threads:
            self.base[t] = clock

    def pass_together(self, threads: Sequence[int]) -> None:
        """Threads continue together after all have arrived; memory is not ordered."""
        n = self.count
        clock = joined([self.base[t] for t in threads])
        control = clock.known[n : self.reads or None]
        for t in threads:
            control[t] = self.own[t]
            self.own[t] += 1
        made: dict[int, Clock] = {}
        for t in threads:
            mine = self.base[t]
            found = made.get(id(mine))
            if found is None:
                own_reads = mine.known[self.reads :] if self.reads else []
                found = made[id(mine)] = Clock(mine.known[:n] + control + own_reads, mine.done, mine.over)
            self.base[t] = found
