"""Fewer cases by rules, where many cases take one way through the code: the same ones in every run, and nothing of any axis left out."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import TypeVar
from zlib import crc32

from taskfuse.sim import Interleaving

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")


DIRECTED = Interleaving.LOW_FIRST, Interleaving.HIGH_FIRST
TIMED = Interleaving.ROUND_ROBIN, Interleaving.ASYNC_EARLY, Interleaving.ASYNC_LATE
DRAWN = Interleaving.RANDOM, Interleaving.RANDOM_FINE, Interleaving.PCT


def some_interleavings(thing: object) -> tuple[Interleaving, ...]:
    """One of each kind: by the order of the threads, by the time of the engines, at random. Which ones follows from the text of ``thing``, so that many things
    have all."""
    k = crc32(str(thing).encode())
    return DIRECTED[k % 2], TIMED[k // 2 % 3], DRAWN[k // 6 % 3]


def in_turn(first: Sequence[A], second: Sequence[B]) -> list[tuple[A, B]]:
    """All elements of both, each of ``first`` with one of ``second``, or the other way round: the elements of the shorter one in turn."""
    return [(first[k % len(first)], second[k % len(second)]) for k in range(max(len(first), len(second)))]


def pairs(first: Sequence[A], second: Sequence[B], third: Sequence[C]) -> list[tuple[A, B, C]]:
    """Points of a box of which every two values of two axes have one in common.

    A fault that shows where two values meet shows in one of them. The points are chosen one after another: the next one is the first of those
    with most pairs that none before has.
    """
    axes = len(first), len(second), len(third)
    points = list(product(*map(range, axes)))
    of = {point: {(i, j, point[i], point[j]) for i, j in combinations(range(3), 2)} for point in points}
    missing = set[tuple[int, int, int, int]]().union(*of.values())
    found: list[tuple[A, B, C]] = []
    while missing:
        i, j, k = best = max(points, key=lambda point: len(of[point] & missing))
        missing -= of[best]
        found.append((first[i], second[j], third[k]))
    return found
