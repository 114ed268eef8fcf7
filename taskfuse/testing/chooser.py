"""Choosers: the one source of chance behind the generators.

A generator asks a chooser, never ``random``. A seeded chooser makes many cases fast; Hypothesis's (:mod:`taskfuse.testing.strategies`)
makes the same cases so that it can shrink them. Every question has a simplest answer, the one that shrinking goes to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Chooser(ABC):
    """Answers questions of chance; a subclass answers :meth:`integer`, all others follow."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``; ``low`` is the simplest."""

    def chance(self, percent: int) -> bool:
        """True ``percent`` times of 100; the simplest is false. Nothing is asked for 0 and 100."""
        return percent > 0 and (percent >= 100 or self.integer(0, 99) >= 100 - percent)

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``; the first is the simplest. An option that occurs twice is twice as likely."""
        return options[self.integer(0, len(options) - 1)] if len(options) > 1 else options[0]

    def order(self, items: Sequence[T]) -> list[T]:
        """A permutation of ``items``; the simplest is their order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) if len(left) > 1 else left.pop() for _ in items]

    def some(self, items: Sequence[T], percent: int) -> list[T]:
        """Each of ``items`` ``percent`` times of 100, in their order."""
        return [x for x in items if self.chance(percent)]

    def split_points(self, count: int, parts: int) -> list[int]:
        """Where a sequence of ``count`` items is split into ``parts`` that are not empty: ascending positions, without 0 and ``count``."""
        places = list(range(1, count))
        found = [places.pop(self.integer(0, len(places) - 1)) for _ in range(min(parts - 1, len(places)))]
        return sorted(found)


class RandomChooser(Chooser):
    """Answers from a seed: the same ones in every process and version of Python that has the same ``random.Random``."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rng = Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._rng.random() * (high - low + 1))
