"""The happens-before relation of a run, and its races: the pairs of steps that could have come in the other order.

A run is a sequence of steps (one choice of :mod:`taskfuse.sim.stepper` each). Two steps *depend* on each other if their order can matter;
the transitive closure of dependence, in the order of the run, is its happens-before relation. All runs with the same relation end in the same
state (Mazurkiewicz 1977), so one of each kind is enough. A *race* is a pair of dependent steps that nothing but this run's order puts in
order; only there do other kinds of runs branch off. Which steps depend:

- **Program order**: steps of one thread; an operation's issue, its parts, and the wait_group that waited for them; what one thread does before
  it comes to a barrier of threads, and what another does after that round. The other order does not exist, so these are not races.
- **Memory**: two accesses to one byte, one of them a write. The issue of a load counts as a write of its destination, and the wait_group of what
  reads Shared memory as a read of its source, since an access between issue and wait_group is an error; so is the wait_group of an asynchronous copy
  or the arrival that covers it, whichever comes first (the other one changes nothing any more), a write of its destination. A proxy fence
  writes the visibility of what its threads have written and not fenced before; engines read it.
- **Arrivals** at an mbarrier, bytes of copies included. Those counted in one phase commute: a phase completes when no arrival and no byte is
  pending, all copies have positive sizes, so no proper part of what completes a phase completes it. (Where a run ends in a phase that has all
  arrivals, but not the right bytes, this does not hold, and they are taken to depend.) Those of neighboring phases depend: the later one
  would be counted in the earlier phase (a race unless ordered: *A*, no arrival before the phase it is meant for). Where more come than a phase
  takes, order says which of them make it up, and the later one may take the place of *each* of them: it races with every arrival of the
  complete phase that it need not come after, not with the last one alone. (With that one only, the arrival that the first run counts first would be
  counted in this phase in all runs.)
- **Waits**: a wait that passes while phase m is the current one comes after all arrivals of phase m - 1. It could have passed earlier, in
  phase m - 2, if its thread could have come there before that phase was complete (*E*): before any of its arrivals. It must not come after
  phase m is complete, or it would block; that is certain if one arrival of phase m comes after the wait (*L*), otherwise there is a race with
  the last one.
- **Releases** of a semaphore are arrivals; one step may complete a phase and begin the next. A wait for it is ordered after the phases that it
  names, and can be neither early nor late, since the counter never goes back.
- **Barriers of threads** (block, cluster, named, grid, warp): arrivals of one round commute, those of neighboring rounds at one barrier
  depend, as those of phases do: each of a complete round with each of the next. A barrier that takes all threads of its block or cluster has
  no other participants; one of named threads or of a grid may be used by other threads, too, and at one of a warp
  one thread's next trip of a loop may come before another's last.
- **Exit**: the last thread's exit and the end of a load, which must come before it. A thread's exit and what another block does to its
  block (an arrival, a copy's issue), which is an error once the block has exited.

A kernel in which E, L and A hold for every wait and arrival has no race at its mbarriers: its runs do not branch there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from taskfuse.ir.medium import MEDIA
from taskfuse.sim.agent import Agent
from taskfuse.sim.barriers import MbarrierCell, SemaphoreCell
from taskfuse.sim.memory import Index, Updater
from taskfuse.sim.observer import Observer
from taskfuse.sim.region import Region

if TYPE_CHECKING:
    from taskfuse.sim.barriers import BarrierCell, Waiter
    from taskfuse.sim.block import Block
    from taskfuse.sim.engines import Action, Operation
    from taskfuse.sim.memory import Memory, Region
    from taskfuse.sim.stepper import Option

Barrier = MbarrierCell | SemaphoreCell
Object = tuple[str, int] | Barrier  # what steps use: a memory of a block or the grid, its visibility to engines, the state of a barrier
Steps = int  # a set of steps, as the bits of an integer
Name = tuple[int, ...]  # who takes a step, equal in all runs: (block, thread) or (block, thread, statement, how many before, part)


def members(steps: Steps) -> Iterator[int]:
    """The steps of a set, last one first."""
    while steps:
        last = steps.bit_length() - 1
        yield last
        steps ^= 1 << last


@dataclass(slots=True)
class RunStep:
    """One step of a run.

    Attributes:
        name: the thread or engine that took it.
        prior: steps that precede it in every run: program order.
        past: the steps that happen before it, and itself.
        reads, writes: the objects that it reads and writes, as bit sets per object.
        updates: objects that it updates atomically: such steps commute with those of the same ``updater``.
        phases: (barrier, phase) of its arrivals.
    """

    name: Name
    prior: Steps
    past: Steps
    reads: dict[Object, int] = field(default_factory=lambda: dict[Object, int]())
    writes: dict[Object, int] = field(default_factory=lambda: dict[Object, int]())
    updates: dict[Object, int] = field(default_factory=lambda: dict[Object, int]())
    updater: Updater | None = None
    phases: list[tuple[Barrier, int]] = field(default_factory=lambda: list[tuple[Barrier, int]]())

    def conflicts(self, other: RunStep) -> bool:
        """True if one step writes an object that the other uses, unless both update it atomically, by one function and one engine."""
        if _overlap(self.writes, other.writes) or _overlap(self.writes, other.reads) or _overlap(self.reads, other.writes):
            return True
        if not (self.updates or other.updates):
            return False
        if self.updater != other.updater and _overlap(self.updates, other.updates):
            return True
        pairs = ((self.updates, other.writes), (self.updates, other.reads), (self.writes, other.updates), (self.reads, other.updates))
        return any(_overlap(a, b) for a, b in pairs)


def _bounds(index: slice) -> tuple[int, int, int]:
    return index.indices(1 << 62)


def _overlap(a: dict[Object, int], b: dict[Object, int]) -> bool:
    if len(a) > len(b):
        a, b = b, a
    return any(bits & b.get(what, 0) for what, bits in a.items())


@dataclass(frozen=True, slots=True)
class Race:
    """Steps ``first`` and ``second`` can occur in the other order, after the steps ``needed``, which must precede ``second``."""

    first: int
    second: int
    needed: Steps


@dataclass(slots=True)
class _History:
    """Steps at one mbarrier or semaphore, by phase: arrivals counted, and waits that passed while it was the current one."""

    arrivals: defaultdict[int, Steps] = field(default_factory=lambda: defaultdict[int, Steps](int))
    waits: defaultdict[int, Steps] = field(default_factory=lambda: defaultdict[int, Steps](int))


@dataclass(slots=True)
class _Rounds:
    """Arrivals at one barrier of threads: in the last round that is complete, and in the current one."""

    complete: Steps = 0
    current: Steps = 0


class HappensBefore(Observer):
    """Records a run.

    Attributes:
        steps: the steps so far.
        races: the races found so far.
    """

    def __init__(self, masks: dict[tuple[object, ...], int]) -> None:
        self.steps: list[RunStep] = []
        self.races: list[Race] = []
        self._masks = masks  # bit sets of elements, which all runs of a launch share
        self._threads: defaultdict[int, defaultdict[int, Steps]] = defaultdict(lambda: defaultdict(int))
        self._users: defaultdict[Object, Steps] = defaultdict(int)
        self._writers: defaultdict[Object, Steps] = defaultdict(int)
        self._takers: list[int] = []
        self._woken: list[tuple[int, list[int]]] = []
        self._names: dict[Any, Name] = {}
        self._issued: defaultdict[Name, int] = defaultdict(int)
        self._issues: dict[Any, int] = {}
        self._causes: dict[Any, int] = {}
        self._parts: defaultdict[Any, list[int]] = defaultdict(list)
        self._dropped: set[tuple[Any, Name]] = set()
        self._mbarriers: defaultdict[Barrier, _History] = defaultdict(_History)
        self._rounds: defaultdict[BarrierCell, _Rounds] = defaultdict(_Rounds)
        self._exits: defaultdict[int, Steps] = defaultdict(int)
        self._last_exit: int | None = None

    # -- a step -----------------------------------------------------------------------------------------------------------------------

    def name(self, option: Option) -> Name:
        """The name of the thread or engine of an option."""
        if isinstance(option, Agent):
            return (option.block.number, option.lanes.first)
        return (*self._names[option], len(self._parts[option]))

    def begin(self, option: Option) -> None:
        """A step of ``option`` begins."""
        prior = 0
        self._takers = []
        if isinstance(option, Agent):
            pasts = self._threads[option.block.number]
            self._takers = option.lanes.ids.tolist()
            for thread in self._takers:
                prior |= pasts[thread]
        else:
            prior = self.steps[self._causes[option]].past | self.steps[self._issues[option]].past
        number = len(self.steps)
        self.steps.append(RunStep(self.name(option), prior, prior | 1 << number))

    def end(self, option: Option) -> None:
        """The step is over."""
        number, step = len(self.steps) - 1, self.steps[-1]
        if not isinstance(option, Agent):
            self._parts[option].append(number)
        self._conflicts(number, step)
        for barrier, phase in step.phases:
            if barrier.phases > phase:
                self._completed(number, step, self._mbarriers[barrier], phase)
        if self._last_exit is not None:
            self._block_exited(number, step, self._last_exit)
            self._last_exit = None
        if isinstance(option, Agent):
            pasts = self._threads[option.block.number]
            for thread in self._takers:
                pasts[thread] = step.past
        for block, woken in self._woken:
            for thread in woken:
                self._threads[block][thread] |= step.past
        self._woken.clear()

    def _past(self, steps: Steps) -> Steps:
        past = 0
        for k in members(steps):
            if not past >> k & 1:
                past |= self.steps[k].past
        return past

    def _race(self, first: int, second: int, needed: Steps | None = None) -> None:
        self.races.append(Race(first, second, self.steps[second].prior if needed is None else needed))

    def _earlier(self, arrivals: Steps, number: int) -> None:
        """A step that came after a phase or a round was complete could have come before: each of its arrivals races with it."""
        for first in members(arrivals & ~self.steps[number].prior):
            self._race(first, number)

    def _conflicts(self, number: int, step: RunStep) -> None:
        """Order the step after those that it conflicts with; each that program order leaves open is a race."""
        candidates = 0
        for what in (*step.writes, *step.updates):
            candidates |= self._users[what]
        for what in step.reads:
            candidates |= self._writers[what]
        for k in members(candidates & ~step.prior):
            if step.conflicts(self.steps[k]):
                self._race(k, number)
                step.past |= self.steps[k].past
        for what in (*step.reads, *step.writes, *step.updates):
            self._users[what] |= 1 << number
        for what in (*step.writes, *step.updates):
            self._writers[what] |= 1 << number

    # -- memory -----------------------------------------------------------------------------------------------------------------------

    def _bits(self, index: Index, scale: int, width: int) -> int:
        """The bits of elements: ``width`` each, element k from ``k * scale``."""
        if isinstance(index, int):
            return (1 << width) - 1 << index * scale
        key = (scale, width, *_bounds(index)) if isinstance(index, slice) else (scale, width, index.tobytes())
        found = self._masks.get(key)
        if found is None:
            elements = np.arange(*_bounds(index)) if isinstance(index, slice) else index.reshape(-1)
            flags = np.zeros(((int(elements.max()) + 1) * scale + width if elements.size else 1), np.bool_)
            for k in range(width):
                flags[elements * scale + k] = True
            found = self._masks[key] = int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")
        return found

    def _shared_bits(self, region: Region, index: Index) -> int:
        """Bytes of Shared memory: an index into its store counts elements, or bytes where elements are words of the ring."""
        size = region.dtype.itemsize
        return self._bits(index, size if region.step == 1 else 1, size)

    def access(self, memory: Memory, region: Region, index: Index, write: bool) -> None:
        if MEDIA[region.memory].is_private or region.is_constant:
            return
        medium = MEDIA[region.memory]
        shared = medium.is_placed and not medium.is_by_rank
        what = ("shared", memory.number) if shared else (f"cluster {region.number}", memory.cluster) if medium.is_by_rank else ("global", region.array)
        bits = self._shared_bits(region, index) if shared else self._bits(index, 1, 1)
        uses = self.steps[-1].writes if write else self.steps[-1].reads
        uses[what] = uses.get(what, 0) | bits

    def update(self, memory: Memory, region: Region, index: Index, updater: Updater) -> None:
        what, uses = ("global", region.array), self.steps[-1].updates
        self.steps[-1].updater = updater
        uses[what] = uses.get(what, 0) | self._bits(index, 1, 1)

    def visibility(self, memory: Memory, region: Region, index: Index) -> None:
        shared = MEDIA[region.memory].is_placed
        what, reads = ("visible", memory.number) if shared else ("shown", region.array), self.steps[-1].reads
        reads[what] = reads.get(what, 0) | (self._shared_bits(region, index) if shared else self._bits(index, 1, 1))

    def proxy_fence(self, block: Block, threads: Any) -> None:
        memory, bits = block.memory, 0
        for region in memory.regions:
            proxy = memory.stores[region.number].proxy
            if proxy is not None:
                first, end = region.start, region.start + region.elements * region.step
                writers = proxy.writers[first : end : region.step]
                unfenced = (proxy.stamps[first : end : region.step] > block.engines.fences[writers]) & np.isin(writers, threads)
                bits |= self._shared_bits(region, first + np.flatnonzero(unfenced) * region.step) if unfenced.any() else 0
        self.steps[-1].writes["visible", memory.number] = bits

    def proxy_fence_global(self, block: Block, threads: Any) -> None:
        mine = np.asarray(threads) + block.number * block.threads
        for region, store in zip(block.memory.regions, block.memory.stores, strict=True):
            if store.published is not None:
                hidden = store.published.unfenced(slice(None)) & np.isin(store.published.writers, mine)
                self.steps[-1].writes["shown", region.array] = self._bits(np.flatnonzero(hidden), 1, 1) if hidden.any() else 0

    # -- mbarriers ----------------------------------------------------------------------------------------------------------------------

    def initialize(self, barrier: MbarrierCell) -> None:
        self.steps[-1].writes[barrier] = 1

    def use(self, barrier: Barrier) -> None:
        self.steps[-1].reads[barrier] = 1

    def count(self, barrier: Barrier, arrivals: int) -> None:
        number, step, phase = len(self.steps) - 1, self.steps[-1], barrier.phases
        self.use(barrier)
        history = self._mbarriers[barrier]
        before = history.arrivals[phase - 1] & ~(1 << number)  # one step may complete a phase of a semaphore and begin the next
        self._earlier(before, number)
        step.past |= self._past(before)
        history.arrivals[phase] |= 1 << number
        step.phases.append((barrier, phase))

    def _completed(self, number: int, step: RunStep, history: _History, phase: int) -> None:
        """The step has completed a phase: waits that passed in it did so before its last arrival, maybe by chance."""
        arrivals = history.arrivals[phase]
        after = self._past(arrivals)
        for wait in members(history.waits[phase] & ~after):
            needed = 0
            for arrival in members(arrivals):
                needed |= self.steps[arrival].prior | 1 << arrival
            self._race(wait, number, needed)
            step.past |= self.steps[wait].past

    def finish(self) -> None:
        """The run has ended without an error."""
        for barrier, history in self._mbarriers.items():
            if barrier.count and not barrier.pending:
                arrivals = history.arrivals[barrier.phases]
                for second in members(arrivals):
                    for first in members(arrivals & (1 << second) - 1 & ~self.steps[second].prior):
                        self._race(first, second)

    def passed(self, barrier: MbarrierCell) -> None:
        number, step, phase = len(self.steps) - 1, self.steps[-1], barrier.phases
        self.use(barrier)
        history = self._mbarriers[barrier]
        self._earlier(history.arrivals[phase - 2], number)
        step.past |= self._past(history.arrivals[phase - 1])
        history.waits[phase] |= 1 << number

    def acquired(self, semaphore: SemaphoreCell, phases: int) -> None:
        if phases > 0:  # a counter never goes back: the wait would pass as well later, and needs these releases alone
            step = self.steps[-1]
            step.past |= self._past(self._mbarriers[semaphore].arrivals[phases - 1])

    # -- barriers of threads, exit ----------------------------------------------------------------------------------------------------

    def arrive(self, agent: Waiter, barrier: BarrierCell, complete: bool) -> None:
        number, step, rounds = len(self.steps) - 1, self.steps[-1], self._rounds[barrier]
        self._earlier(rounds.complete, number)
        step.past |= self._past(rounds.complete)
        rounds.current |= 1 << number
        if complete:
            arrived = self._past(rounds.current & ~(1 << number))
            step.prior |= arrived
            step.past |= arrived
            self._woken += [(other.order[0], other.lanes.ids.tolist()) for other in barrier.agents]
            rounds.complete, rounds.current = rounds.current, 0

    def reach(self, block: Block) -> None:
        self.steps[-1].reads["left", block.number] = (1 << block.threads) - 1

    def exit(self, block: Block) -> None:
        self.steps[-1].writes["left", block.number] = 1 << self._takers[0]  # exits commute
        self._exits[block.number] |= 1 << len(self.steps) - 1
        if block.exited == block.threads:
            self._last_exit = block.number

    def _block_exited(self, number: int, step: RunStep, block: int) -> None:
        """The last threads of a block have exited: after the parts of its operations that change its memory, maybe by chance."""
        after = self._past(self._exits[block])
        for operation, parts in self._parts.items():
            if operation.target.number == block and parts and not after >> parts[-1] & 1:
                needed = 0
                for k in members(self._exits[block]):
                    needed |= self.steps[k].prior | 1 << k
                self._race(parts[-1], number, needed)
                step.past |= self.steps[parts[-1]].past

    # -- operations ---------------------------------------------------------------------------------------------------------------------

    def issue(self, operation: Action) -> None:
        statement = (operation.block.number, operation.thread, operation.pc)
        self._names[operation] = (*statement, self._issued[statement])
        self._issued[statement] += 1
        self._issues[operation] = len(self.steps) - 1

    def post(self, operation: Action) -> None:
        self._causes[operation] = len(self.steps) - 1

    def waited_for(self, operations: Iterable[Operation], owners: Collection[int], read_only: bool) -> None:
        step = self.steps[-1]
        for operation in operations:
            parts = self._parts[operation]
            order = self.steps[parts[0 if read_only else -1]].past
            step.prior |= order
            step.past |= order
            if (operation, step.name) not in self._dropped and any(operation.holds(owner) for owner in owners):
                self._dropped.add((operation, step.name))
                issue = self.steps[self._issues[operation]]
                for before, now in ((issue.reads, step.reads), (issue.writes, step.writes)):
                    for what, bits in before.items():
                        if isinstance(what, tuple) and what[0] == "shared":
                            now[what] = now.get(what, 0) | bits
