"""Choosers: the generators' only source of randomness.

Generators call a chooser, never ``random``. A seeded chooser generates many cases fast; the Hypothesis chooser
(:mod:`taskfuse.testing.strategies`) generates the same cases and can shrink them. Every method has a simplest answer, toward which
Hypothesis shrinks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Chooser(ABC):
    """Random choices; a subclass implements :meth:`integer`, on which all other methods build."""

    @abstractmethod
    def integer(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``; ``low`` is the simplest."""

    def chance(self, percent: int) -> bool:
        """True with a probability of ``percent``/100; the simplest answer is False. 0 and 100 draw nothing."""
        return percent > 0 and (percent >= 100 or self.integer(0, 99) >= 100 - percent)

    def pick(self, options: Sequence[T]) -> T:
        """One of ``options``; the first is the simplest. An option that occurs twice is twice as likely."""
        return options[self.integer(0, len(options) - 1)] if len(options) > 1 else options[0]

    def order(self, items: Sequence[T]) -> list[T]:
        """A permutation of ``items``; the simplest is their order."""
        left = list(items)
        return [left.pop(self.integer(0, len(left) - 1)) if len(left) > 1 else left.pop() for _ in items]

    def some(self, items: Sequence[T], percent: int) -> list[T]:
        """A subset of ``items``, in order; each item is in it with a probability of ``percent``/100."""
        return [x for x in items if self.chance(percent)]

    def split_points(self, count: int, parts: int) -> list[int]:
        """Where a sequence of ``count`` items is split into ``parts`` that are not empty: ascending positions, without 0 and ``count``."""
        places = list(range(1, count))
        found = [places.pop(self.integer(0, len(places) - 1)) for _ in range(min(parts - 1, len(places)))]
        return sorted(found)


class RandomChooser(Chooser):
    """Answers from a seed: equal in every process and in every Python version with the same ``random.Random``."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rng = Random(seed)

    def integer(self, low: int, high: int) -> int:
        return low + int(self._rng.random() * (high - low + 1))
