"""Objects for which threads wait: mbarriers, hardware barriers, counters, semaphores, and instructions of whole warps.

PTX ISA, "mbarrier", "barrier", "bar.warp.sync", "barrier.cluster". A method that returns true has put the thread to sleep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from taskfuse.testing.machine.fault import FaultFound, FaultKind
from taskfuse.testing.machine.threads import Clock, MachineThreads, Part

MOST_PENDING = 2**20 - 1


@dataclass(slots=True)
class MachineMbarrier:
    """State of an mbarrier.

    Attributes:
        entry: of the clocks, for its completed phases.
        initialized: by which thread, in which epoch, at which statement.
        parts, done, clocks: what the arrivals and copies of this phase release; across: the arrivals from other blocks that release at the scope of the
            cluster.
        completed: what the last completed phase released to the threads of its block; of_cluster: to those that wait at the scope of the cluster.
        seen: waits that passed since the last phase was completed.
    """

    entry: int
    initialized: tuple[int, int, int] | None = None
    count: int = 0
    pending: int = 0
    bytes: int = 0
    phase: int = 0
    parts: list[Part] = field(default_factory=list[Part])
    done: int = 0
    clocks: list[Clock] = field(default_factory=list[Clock])
    across: list[Part] = field(default_factory=list[Part])
    completed: Clock | None = None
    of_cluster: Clock | None = None
    sleeping: list[int] = field(default_factory=list[int])
    seen: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(slots=True)
class Gathering:
    """Threads that have arrived at one barrier: the required number, and their statements."""

    expected: int = 0
    here: dict[int, int] = field(default_factory=dict[int, int])


class MachineBarriers:
    """The barriers of a launch.

    Args:
        slots: mbarriers of a block.
        wake: makes threads ready.
    """

    def __init__(self, threads: MachineThreads, blocks: int, block_threads: int, slots: int, wake: Callable[[Sequence[int]], None]) -> None:
        self.threads, self.wake = threads, wake
        self.block_threads, self.slots = block_threads, slots
        self.mbarriers = [MachineMbarrier(2 * threads.count + k) for k in range(blocks * slots)]
        self.init_fences: list[list[int]] = [[] for _ in range(threads.count)]
        self.gatherings: dict[tuple[object, ...], Gathering] = {}
        self.counters: dict[object, list[Part]] = {}
        self.released: dict[object, tuple[int, Clock]] = {}
        self.sleepers: dict[object, list[tuple[int, int]]] = {}
        self.exited: set[int] = set()

    # -- mbarriers ----------------------------------------------------------------------------------------------------------------------

    def initialize(self, t: int, site: int, k: int, count: int) -> None:
        """``mbarrier.init``."""
        b = self.mbarriers[k]
        if b.initialized is not None:
            raise FaultFound(FaultKind.LIFE, "an mbarrier is initialized twice", t, site)
        if not 1 <= count <= MOST_PENDING:
            raise FaultFound(FaultKind.COUNT, f"an mbarrier that counts {count} arrivals", t, site)
        b.initialized = t, self.threads.own[t], site
        b.count = b.pending = count

    def used(self, t: int, site: int, k: int) -> MachineMbarrier:
        """The mbarrier, if it can be used by ``t``."""
        b = self.mbarriers[k]
        if b.initialized is None:
            raise FaultFound(FaultKind.LIFE, "an mbarrier is used before it is initialized", t, site)
        c, e, _ = b.initialized
        if c != t and self.threads.base[t].known[c] < e:
            raise FaultFound(FaultKind.LIFE, "nothing orders the initialization of an mbarrier and this use", t, site)
        return b

    def used_by_engine(self, t: int, site: int, k: int) -> None:
        """The mbarrier, if its initializer has fenced it for engines."""
        b = self.used(t, site, k)
        assert b.initialized is not None
        c, e, _ = b.initialized
        known = self.threads.base[t].known[c]  # also of its own fence: a barrier follows it
        if not any(e < f <= known for f in self.init_fences[c]):
            raise FaultFound(FaultKind.LIFE, "the initializer of this mbarrier has not fenced it for the copy engine", t, site)

    def arrive(self, t: int, site: int, k: int, added: int = 0, *, cluster: bool = False) -> None:
        """``mbarrier.arrive``, with bytes to expect; ``cluster``: at the scope of the cluster.

        The scope of a block includes no thread of another block. An arrival from there at this scope releases to nobody what its thread stored; that what it
        read is read is assumption 6 of docs/memory-model.md.
        """
        b = self.used(t, site, k)
        if not 0 <= added <= MOST_PENDING or b.bytes + added > MOST_PENDING:
            raise FaultFound(FaultKind.COUNT, f"{added} bytes cannot be expected", t, site)
        b.bytes += added
        self._count(b, t, site)
        part = self.threads.publish(t)
        if k // self.slots == t // self.block_threads:
            b.parts.append(part)
        elif cluster:
            b.across.append(part)
        else:
            b.clocks.append(self.threads.ended(self.threads.merged([part])))
        self._complete(b, t, site)

    def arrive_later(self, t: int, site: int, k: int, done: int, control: Clock) -> None:
        """An arrival by asynchronous copies, with their clock."""
        b = self.used(t, site, k)
        self._count(b, t, site)
        b.done |= done
        b.clocks.append(control)
        self._complete(b, t, site)

    def _count(self, b: MachineMbarrier, t: int, site: int) -> None:
        if b.pending == 0:
            raise FaultFound(FaultKind.COUNT, f"more than {b.count} arrivals come in phase {b.phase}", t, site)
        self._in_phase(b, self.threads.base[t], t, site, "an arrival")
        b.pending -= 1

    def _in_phase(self, b: MachineMbarrier, clock: Clock, t: int, site: int, what: str) -> None:
        if clock.known[b.entry] < b.phase:
            raise FaultFound(FaultKind.PHASE, f"{what} of phase {b.phase} may come before phase {b.phase - 1} is complete", t, site)

    def bytes_come(self, t: int, site: int, k: int, size: int, done: int, clock: Clock) -> None:
        """The bytes of a completed load arrive, which orders nothing but this load (PTX ISA, "Asynchronous Operations")."""
        b = self.used(t, site, k)
        self._in_phase(b, clock, t, site, "a load")
        b.bytes -= size
        if b.bytes < -MOST_PENDING:
            raise FaultFound(FaultKind.COUNT, "more bytes come than an mbarrier can count", t, site)
        b.done |= done
        b.clocks.append(self.threads.control(clock))
        self._complete(b, t, site)

    def _complete(self, b: MachineMbarrier, t: int, site: int) -> None:
        if b.pending or b.bytes:
            return
        threads = self.threads
        ended = [threads.ended(threads.merged([part])) for part in b.across]
        clock = threads.merged(b.parts, b.done, (*b.clocks, *ended))
        of_cluster = threads.merged((*b.parts, *b.across), b.done, b.clocks) if b.across else clock
        known = clock.known
        b.phase += 1
        known[b.entry] = of_cluster.known[b.entry] = b.phase
        for u, epoch, _ in b.seen:
            if known[threads.count + u] < epoch:
                raise FaultFound(FaultKind.PHASE, f"phase {b.phase - 1} may complete before a wait for phase {b.phase - 2} is over", t, site)
        b.completed, b.of_cluster, b.seen = clock, of_cluster, []
        b.parts, b.across, b.clocks, b.done, b.pending = [], [], [], 0, b.count
        sleeping, b.sleeping = b.sleeping, []
        self.wake(sleeping)

    def waits(self, t: int, site: int, k: int, parity: int, *, cluster: bool = False) -> bool:
        """``mbarrier.try_wait.parity``, at the scope of the ``cluster`` or the block: true if the thread sleeps, and tries again when it wakes."""
        if parity not in (0, 1):
            raise FaultFound(FaultKind.PHASE, f"the parity {parity}", t, site)
        b = self.used(t, site, k)
        if b.phase & 1 == parity:
            b.sleeping.append(t)
            return True
        threads = self.threads
        seen = threads.base[t].known[b.entry]
        if seen < b.phase - 1:
            raise FaultFound(FaultKind.PHASE, f"a wait for phase {b.phase - 1} may pass early: phase {b.phase - 2} may be incomplete", t, site)
        seen_now = b.of_cluster if cluster else b.completed
        if seen_now is not None:
            threads.learn(t, seen_now)
        b.seen.append((t, threads.own[t], site))
        return False

    # -- barriers -----------------------------------------------------------------------------------------------------------------------

    def gather(self, key: tuple[object, ...], t: int, site: int, expected: int) -> list[int] | None:
        """The threads at a barrier, when ``t`` arrives last; ``None`` if it sleeps."""
        g = self.gatherings.setdefault(key, Gathering(expected))
        if g.here and g.expected != expected:
            raise FaultFound(FaultKind.COUNT, f"{expected} threads at a barrier where others expect {g.expected}", t, site)
        g.expected = expected
        g.here[t] = site
        if len(g.here) < expected:
            return None
        found = [*g.here]
        if key[0] in ("block", "cluster"):
            self._whole_warps(g.here, t, site)
        del self.gatherings[key]
        self.wake([u for u in found if u != t])
        return found

    def _whole_warps(self, here: dict[int, int], t: int, site: int) -> None:
        of: dict[tuple[int, int], int] = {}
        for u, other in here.items():
            if of.setdefault((u // self.block_threads, u % self.block_threads // 32), other) != other:
                raise FaultFound(FaultKind.PARTIAL, "threads of one warp are at different barriers of the block", t, site)

    def barrier(self, key: tuple[object, ...], t: int, site: int, expected: int) -> bool:
        """A barrier of a number of threads."""
        found = self.gather(key, t, site, expected)
        if found is not None:
            self.threads.synchronize(found)
        return found is None

    def named(self, t: int, site: int, number: int, expected: int) -> bool:
        """``barrier.sync number, expected``."""
        if not 1 <= number <= 15:
            raise FaultFound(FaultKind.COUNT, f"there is no named barrier {number}", t, site)
        if expected < 1 or expected % 32 or expected > -(-self.block_threads // 32) * 32:
            raise FaultFound(FaultKind.COUNT, f"a named barrier of {expected} threads", t, site)
        return self.barrier(("named", t // self.block_threads, number), t, site, expected)

    def _warp(self, t: int) -> tuple[int, int]:
        block, k = divmod(t, self.block_threads)
        return block, k // 32

    def lanes(self, t: int) -> range:
        """The threads of the warp of ``t``."""
        block, warp = self._warp(t)
        first = block * self.block_threads
        return range(first + 32 * warp, first + min(32 * warp + 32, self.block_threads))

    def warp_barrier(self, t: int, site: int) -> bool:
        """``__syncwarp()``: all lanes that have not exited."""
        key = ("warp", *self._warp(t))
        self.gatherings.setdefault(key, Gathering()).here[t] = site
        return not self._warp_complete(key, t)

    def _warp_complete(self, key: tuple[object, ...], t: int) -> bool:
        g = self.gatherings.get(key)
        if g is None or any(u not in g.here and u not in self.exited for u in self.lanes(t)):
            return False
        found = [*g.here]
        del self.gatherings[key]
        self.threads.synchronize(found)
        self.wake([u for u in found if u != t])
        return True

    def exits(self, t: int) -> None:
        """A thread exits."""
        self.exited.add(t)
        self._warp_complete(("warp", *self._warp(t)), t)

    # -- counters and semaphores ---------------------------------------------------------------------------------------------------------------------

    def release(self, t: int, key: object) -> None:
        """``red.release.gpu.add``."""
        parts = self.counters.setdefault(key, [])
        parts.append(self.threads.publish(t))
        sleepers = self.sleepers.get(key, [])
        self.sleepers[key] = [(u, n) for u, n in sleepers if n > len(parts)]
        self.wake([u for u, n in sleepers if n <= len(parts)])

    def arrive_at_counter(self, t: int, key: object, count: int) -> int:
        """An arrival of a barrier across blocks; returns the number of arrivals that complete this round, of ``count``."""
        before = len(self.counters.get(key, ()))
        self.release(t, key)
        return (before // count + 1) * count

    def acquires(self, t: int, key: object, releases: int) -> bool:
        """``ld.acquire.gpu`` until enough releases have arrived: true if the thread sleeps, and tries again when it wakes."""
        if releases <= 0:
            return False
        parts = self.counters.get(key, [])
        if len(parts) < releases:
            self.sleepers.setdefault(key, []).append((t, releases))
            return True
        known = self.released.get(key)
        if known is None or known[0] > releases:
            known = self.released[key] = releases, self.threads.merged(parts[:releases])
        elif known[0] < releases:  # a counter only grows: what its first releases have handed over is joined once
            known = self.released[key] = releases, self.threads.merged(parts[known[0] : releases], more=(known[1],))
        self.threads.learn(t, known[1])
        return False
