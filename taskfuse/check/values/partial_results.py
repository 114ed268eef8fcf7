"""The contents of registers and workspaces while a reduction is joined: for each thread or place, the set of threads whose accumulators it contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import all_of, filled, numbers_of, ones
from taskfuse.ir.scalar import Expr

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]
State = tuple[dict[str, Expr], dict[str, tuple[Expr, Expr]], frozenset[Expr]]
"""The blocks whose results some sets are (``blocks``, ``spans``), and under what conditions these have been joined."""
MOST = 1 << 22
"""The most elements of a buffer that a block shares: no block has as much memory."""


@dataclass(slots=True, eq=False)
class ThreadSets:
    """Sets of threads, one per thread or element; those not ``known`` have never been written. Arrays are shared, and never changed.

    Attributes:
        of: the number of the accumulator of each; -1 for the empty set.
        above: the members exist in blocks whose open extent is greater than this.
        blocks, spans: the blocks whose results these are.
        under: conditions under which they have been joined, without those on threads only.
    """

    sets: Words
    known: Bools
    of: Ints
    above: Ints
    blocks: dict[str, Expr]
    spans: dict[str, tuple[Expr, Expr]]
    under: frozenset[Expr] = frozenset()

    def is_of_blocks(self, blocks: Mapping[str, Expr], spans: Mapping[str, tuple[Expr, Expr]]) -> bool:
        """True if these are its blocks."""
        return self.blocks == blocks and self.spans == spans


class SharedSets:
    """The sets of threads in the elements of a buffer that the threads of a block share: in a box from index 0 on that holds all that was written.

    Attributes:
        sets, of, above: as those of :class:`ThreadSets`, of each element in the box.
        states: the states of joining in which elements were written: the blocks whose results these are, and under what.
        state: the number of that of each element; -1: it was never written.

    Args:
        rank: the number of axes.
        words: the number of words of a set.
    """

    def __init__(self, rank: int, words: int) -> None:
        self.sets: Words = np.zeros((0, words), np.uint64)
        self.of: Ints = np.zeros(0, np.int64)
        self.above: Ints = np.zeros(0, np.int64)
        self.state: Ints = np.zeros(0, np.int64)
        self.states: list[State] = []
        self._shape = (0,) * rank

    def written(self, index: Sequence[Ints], threads: Ints) -> tuple[Ints, Ints]:
        """The elements that some threads write, in a box made large enough, and for each of the threads the first one that writes the same.

        Raises:
            IndexError: the box would not start at index 0, or be larger than any memory.
        """
        at = [i[threads] for i in index]
        shape = tuple(max(n, int(i.max(initial=-1)) + 1) for n, i in zip(self._shape, at, strict=True))
        if any(int(i.min(initial=0)) < 0 for i in at) or prod(shape) > MOST:
            raise IndexError
        if shape != self._shape or not self.state.size:
            self._enlarge(shape)
        places = np.zeros(threads.size, np.int64)
        for n, i in zip(shape, at, strict=True):
            places = places * n + i
        first = np.zeros(self.state.size, np.int64)
        first[places[::-1]] = threads[::-1]
        return places, first[places]

    def _enlarge(self, shape: tuple[int, ...]) -> None:
        """Make a larger box, with what the smaller one has."""
        size, before = prod(shape), np.arange(self.state.size)
        places = np.zeros(before.size, np.int64)
        for n, i in zip(shape, np.unravel_index(before, self._shape) if before.size else (), strict=False):
            places = places * n + i
        sets, of, above, state = self.sets, self.of, self.above, self.state
        self.sets = np.zeros((size, sets.shape[1]), np.uint64)
        self.of, self.above, self.state = filled(size, -1), np.zeros(size, np.int64), filled(size, -1)
        self.sets[places], self.of[places], self.above[places], self.state[places] = sets, of, above, state
        self._shape = shape

    def place(self, index: Sequence[int]) -> int | None:
        """The element at an index; ``None``: it was never written."""
        found = 0
        for n, i in zip(self._shape, index, strict=True):
            if not 0 <= i < n:
                return None
            found = found * n + i
        return found if self.state.size and self.state[found] >= 0 else None

    def read(self, index: Sequence[Ints], threads: Ints) -> tuple[Ints, Ints]:
        """The written elements that some threads read, and which of the threads read them."""
        inside = ones(threads.size) if self.state.size else np.zeros(threads.size, np.bool_)
        places = np.zeros(threads.size, np.int64)
        for n, i in zip(self._shape, index, strict=True):
            at = i[threads]
            inside &= (at >= 0) & (at < n)
            places = places * n + at
        if not all_of(inside):
            places, threads = places[inside], threads[inside]
        known = self.state[places] >= 0
        return (places, threads) if all_of(known) else (places[known], threads[known])


def writers_of(stored: Sequence[Ints], read: Sequence[Ints], cells: ThreadSets) -> tuple[Ints, tuple[int, int] | None]:
    """For each thread one that stores where it reads, -1: none does; and two that store different partial results in one place, if there are such.

    Args:
        stored, read: the places where threads store and read: numbers of each thread, one per axis.
        cells: the stored values; only known ones count.
    """
    count = len(cells.known)
    if not stored:
        keys = np.zeros(2 * count, np.int64)
    else:
        both = np.stack([np.concatenate(pair) for pair in zip(stored, read, strict=True)])
        keys = np.unique(both, axis=1, return_inverse=True)[1].reshape(-1)
    here, there = keys[:count], keys[count:]
    first = filled(keys.max(initial=0) + 1, -1)
    threads = numbers_of(cells.known)[::-1]
    first[here[threads]] = threads
    same = first[here]
    apart = numbers_of(cells.known & ((cells.sets != cells.sets[same]).any(axis=1) | (cells.of != cells.of[same])))
    return first[there], (int(same[apart[0]]), int(apart[0])) if apart.size else None
