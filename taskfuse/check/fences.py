"""Registers that the threads of a launch have touched since their last ``FENCE wgmma``.

A thread executes ``wgmma.fence`` before its first wgmma, and between every other access to a register and a wgmma that uses it as an accumulator or
as a part of its matrix A (PTX ISA, "wgmma.fence"). Whether it does depends on the order of its own statements alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taskfuse.kir import Kernel, walk
from taskfuse.kir.nodes import Access, Wgmma

Ints = NDArray[np.int64]


def operands(kernel: Kernel) -> set[str]:
    """The Local arrays that hold accumulators, or matrices A, of wgmmas."""
    multiplies = [s for s in walk(kernel) if isinstance(s, Wgmma)]
    return {access.buffer for s in multiplies for access in (s.acc, s.a) if isinstance(access, Access)}


class Fences:
    """What each thread has not fenced.

    Args:
        sizes: elements of each array that wgmmas use.
        threads: of the block.
    """

    def __init__(self, sizes: Mapping[str, int], threads: int) -> None:
        self._never = np.ones(threads, np.bool_)
        self._touched = {name: np.zeros((threads, size), np.bool_) for name, size in sizes.items()}

    def touch(self, buffer: str, threads: Ints, first: Ints, count: int) -> None:
        """Each thread reads or writes ``count`` elements from its ``first`` on, other than by a wgmma."""
        if buffer in self._touched:
            self._touched[buffer][threads[:, None], first[:, None] + np.arange(count)] = True

    def fence(self, threads: Ints) -> None:
        """The threads execute ``FENCE wgmma``."""
        self._never[threads] = False
        for touched in self._touched.values():
            touched[threads] = False

    def missing(self, threads: Ints) -> int | None:
        """A thread that never executed a fence."""
        return _first(threads, self._never[threads])

    def open(self, buffer: str, threads: Ints, first: Ints, count: int) -> int | None:
        """A thread that has touched one of ``count`` elements from its ``first`` on, and not fenced it."""
        return _first(threads, np.any(self._touched[buffer][threads[:, None], first[:, None] + np.arange(count)], axis=1))


def _first(threads: Ints, where: NDArray[np.bool_]) -> int | None:
    return int(threads[int(np.argmax(where))]) if where.any() else None
