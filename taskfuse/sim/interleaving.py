"""Interleavings: the order of agents, the length of their turns, and the time at which asynchronous engines execute operations.

The interleaving and its seed determine all decisions, so every run can be replayed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from taskfuse.sim.agent import Agent

FOREVER = 1 << 60


class Interleaving(Enum):
    """The interleaving of a simulation.

    - ROUND_ROBIN: agents in turn; engines in turn with them.
    - LOW_FIRST: the first agent that can run, until it waits (producers first); engines at once. Blocks start split into halves.
    - HIGH_FIRST: the last agent that can run, until it waits (consumers first); engines when no agent can run. Blocks start split into halves.
    - ASYNC_EARLY, ASYNC_LATE: as ROUND_ROBIN, but engines execute at once, or only when no agent can run, the newest operation first.
    - RANDOM: a random agent or engine for a random time; blocks start split into a few pieces.
    - RANDOM_FINE: a random agent or engine for one step; blocks start split into more pieces.
    - PCT: random priorities, lowered at three random points (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", ASPLOS
      2010).
    """

    ROUND_ROBIN = "round-robin"
    LOW_FIRST = "low-first"
    HIGH_FIRST = "high-first"
    ASYNC_EARLY = "async-early"
    ASYNC_LATE = "async-late"
    RANDOM = "random"
    RANDOM_FINE = "random-fine"
    PCT = "pct"


class Timing(Enum):
    """When an engine executes its next operation."""

    EARLY = "at once"
    MIXED = "in turn with the agents"
    LATE = "when no agent can run"


class Policy:
    """Round robin; the other interleavings override some decisions.

    Attributes:
        timing: of the asynchronous engines.
        parks: agents wait where they may merge with others, which is fast, but never run ahead of them.
        preempts: an agent that wakes another one yields, so that the next one is chosen.
        passed: interleaving points passed so far, by all agents.
    """

    timing = Timing.MIXED
    parks = True
    preempts = False

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.turn = 0
        self.passed = 0

    def split_points(self, units: int) -> list[int]:
        """Where a block of ``units`` units of threads that must stay together is split at the start: ascending, within 1..units-1."""
        return []

    def pick(self, ready: Sequence[Agent]) -> int:
        """Position of the agent that runs next."""
        return 0

    def quantum(self) -> int:
        """The number of interleaving points that it may pass."""
        return 8

    def takes_action(self, agents: int, actions: int) -> bool:
        """True: an engine executes now, although agents can run."""
        self.turn += 1
        return self.turn % 3 == 0

    def action(self, actions: int) -> int:
        """Position of the next operation, among the available ones, oldest first."""
        return 0


class _AsyncEarly(Policy):
    timing = Timing.EARLY


class _AsyncLate(Policy):
    timing = Timing.LATE

    def takes_action(self, agents: int, actions: int) -> bool:
        return False

    def action(self, actions: int) -> int:
        return actions - 1


class _UntilItWaits(Policy):
    """An agent runs until it waits: the first in the order of the program, or the last."""

    parks = False
    preempts = True

    def split_points(self, units: int) -> list[int]:
        return [units // 2] if units > 1 else []

    def quantum(self) -> int:
        return FOREVER


class _LowFirst(_UntilItWaits, _AsyncEarly):
    def pick(self, ready: Sequence[Agent]) -> int:
        return min(range(len(ready)), key=lambda k: ready[k].order)


class _HighFirst(_UntilItWaits, _AsyncLate):
    def pick(self, ready: Sequence[Agent]) -> int:
        return max(range(len(ready)), key=lambda k: ready[k].order)


class _Random(Policy):
    splits = 1

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.parks = rng.random() < 0.5
        self.haste = rng.choice((0.05, 0.3, 0.9))  # how often engines go first

    def split_points(self, units: int) -> list[int]:
        return sorted({self.rng.randrange(1, units) for _ in range(self.splits)}) if units > 1 else []

    def pick(self, ready: Sequence[Agent]) -> int:
        return self.rng.randrange(len(ready))

    def quantum(self) -> int:
        return 1 << self.rng.randrange(7)

    def takes_action(self, agents: int, actions: int) -> bool:
        return self.rng.random() < self.haste

    def action(self, actions: int) -> int:
        return self.rng.randrange(actions)


class _RandomFine(_Random):
    splits = 3

    def quantum(self) -> int:
        return 1


class _Pct(_Random):
    preempts = True
    changes = 3

    def __init__(self, rng: Random) -> None:
        super().__init__(rng)
        self.parks = False
        # the length of the run is not known beforehand: change points at all scales
        self.points = sorted(rng.randrange(1 << rng.randrange(2, 11)) for _ in range(self.changes))
        self.priorities: dict[Agent, float] = {}

    def pick(self, ready: Sequence[Agent]) -> int:
        priorities = self.priorities
        for agent in ready:
            if agent not in priorities:
                priorities[agent] = self.rng.random()
        top = max(range(len(ready)), key=lambda k: priorities[ready[k]])
        while self.points and self.passed >= self.points[0]:
            self.points.pop(0)
            priorities[ready[top]] = len(self.points) - self.changes
            top = max(range(len(ready)), key=lambda k: priorities[ready[k]])
        return top

    def quantum(self) -> int:
        return max(1, self.points[0] - self.passed) if self.points else FOREVER


class InStep(Policy):
    """For runs whose caller makes every choice (:mod:`taskfuse.sim.stepper`): blocks start split into pieces of ``units`` units of threads."""

    parks = False

    def __init__(self, units: int) -> None:
        super().__init__(Random(0))
        self.units = units

    def split_points(self, units: int) -> list[int]:
        return list(range(self.units, units, self.units))


def policy(interleaving: Interleaving, seed: int) -> Policy:
    """The policy of an interleaving."""
    rng = Random(seed)
    match interleaving:
        case Interleaving.ROUND_ROBIN:
            return Policy(rng)
        case Interleaving.LOW_FIRST:
            return _LowFirst(rng)
        case Interleaving.HIGH_FIRST:
            return _HighFirst(rng)
        case Interleaving.ASYNC_EARLY:
            return _AsyncEarly(rng)
        case Interleaving.ASYNC_LATE:
            return _AsyncLate(rng)
        case Interleaving.RANDOM:
            return _Random(rng)
        case Interleaving.RANDOM_FINE:
            return _RandomFine(rng)
        case Interleaving.PCT:
            return _Pct(rng)
        case _:
            assert_never(interleaving)


def by_seed(seed: int) -> Interleaving:
    """The interleaving of a seed: all of them cyclically."""
    interleavings = tuple(Interleaving)
    return interleavings[seed % len(interleavings)]
