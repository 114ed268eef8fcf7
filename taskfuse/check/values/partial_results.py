"""The contents of registers and workspaces while a reduction is joined: for each thread or place, the set of threads whose accumulators it contains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taskfuse.ir.scalar import Expr

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]


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


def places(index: list[Ints], among: Bools) -> dict[tuple[int, ...], slice | list[int]]:
    """The threads, of some, that read each element; a slice: all threads read one."""
    if all(not any(i.strides) for i in index):  # one number, spread over the threads
        return {tuple(int(i[0]) for i in index): slice(len(among))}
    readers: dict[tuple[int, ...], list[int]] = {}
    threads = np.flatnonzero(among)
    for t, row in zip(threads.tolist(), zip(*(i[threads].tolist() for i in index), strict=True), strict=True):
        readers.setdefault(row, []).append(t)
    return {**readers}


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
    first = np.full(keys.max(initial=0) + 1, -1, np.int64)
    threads = np.flatnonzero(cells.known)[::-1]
    first[here[threads]] = threads
    same = first[here]
    apart = np.flatnonzero(cells.known & ((cells.sets != cells.sets[same]).any(axis=1) | (cells.of != cells.of[same])))
    return first[there], (int(same[apart[0]]), int(apart[0])) if apart.size else None
