"""Registers that the threads of a launch have accessed since their last ``FENCE wgmma``, and those of wgmmas in flight.

A thread executes ``wgmma.fence`` before its first wgmma, and between every other access to a register and a wgmma that uses it as an accumulator or
as a part of its matrix A (PTX ISA, "wgmma.fence"). It does not access these registers until it has waited for the wgmma ("wgmma.wait_group"); other
wgmmas may read the same operand, and those of one shape add to the same accumulators. All this depends on the order of the thread's own statements alone.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taskfuse.kir import Kernel, walk
from taskfuse.kir.operands import Access
from taskfuse.kir.products import Wgmma

Ints = NDArray[np.int64]


def operands(kernel: Kernel) -> set[str]:
    """The Local arrays that hold accumulators, or matrices A, of wgmmas."""
    multiplies = [s for s in walk(kernel) if isinstance(s, Wgmma)]
    return {access.buffer for s in multiplies for access in (s.acc, s.a) if isinstance(access, Access)}


class Fences:
    """The register accesses that each thread has not fenced.

    Args:
        sizes: elements of each array that wgmmas use.
        threads: of the block.
    """

    def __init__(self, sizes: Mapping[str, int], threads: int) -> None:
        self._never = np.ones(threads, np.bool_)
        self._touched = {name: np.zeros((threads, size), np.bool_) for name, size in sizes.items()}
        self._batch = {name: np.full((threads, size), -1) for name, size in sizes.items()}  # of the last wgmma with that register
        self._how = {name: np.zeros((threads, size), np.int64) for name, size in sizes.items()}
        self._numbers: dict[object, int] = {}
        self._closed = np.zeros(threads, np.int64)
        self._waited = np.zeros(threads, np.int64)

    def touch(self, buffer: str, threads: Ints, first: Ints, count: int) -> None:
        """Each thread reads or writes ``count`` elements from its ``first`` on, outside a wgmma."""
        if buffer in self._touched:
            self._touched[buffer][threads[:, None], first[:, None] + np.arange(count)] = True

    def fence(self, threads: Ints) -> None:
        """The threads execute ``FENCE wgmma``."""
        self._never[threads] = False
        for name, touched in self._touched.items():
            touched[threads] = False
            batches = self._batch[name]
            batches[threads] = np.where(batches[threads] < self._waited[threads][:, None], -1, batches[threads])

    def commit(self, threads: Ints) -> None:
        """The threads close a batch of wgmmas."""
        self._closed[threads] += 1

    def wait(self, threads: Ints, pending: int) -> None:
        """The threads wait until at most ``pending`` batches are unfinished."""
        self._waited[threads] = np.maximum(self._waited[threads], self._closed[threads] - pending)

    def busy(self, buffer: str, threads: Ints, first: Ints, count: int, how: object = None, *, waited: bool = False) -> int | None:
        """A thread some of whose ``count`` registers from its ``first`` on are in use by a wgmma in flight, in another way than ``how``.

        ``waited for``: also by one that the thread has waited for without a later fence.
        """
        if buffer not in self._batch:
            return None
        at = threads[:, None], first[:, None] + np.arange(count)
        least = np.zeros(len(threads), np.int64) if waited else self._waited[threads]
        others = (self._batch[buffer][at] >= least[:, None]) & (self._how[buffer][at] != self._numbers.get(how, -1))
        return _first(threads, np.any(others, axis=1))

    def issue(self, buffer: str, threads: Ints, first: Ints, count: int, how: object) -> None:
        """A wgmma of the threads uses ``count`` registers from the ``first`` on of each, in some way: uses in equal ways are compatible."""
        at = threads[:, None], first[:, None] + np.arange(count)
        self._batch[buffer][at] = self._closed[threads][:, None]
        self._how[buffer][at] = self._numbers.setdefault(how, len(self._numbers))

    def missing(self, threads: Ints) -> int | None:
        """A thread that never executed a fence."""
        return _first(threads, self._never[threads])

    def open(self, buffer: str, threads: Ints, first: Ints, count: int) -> int | None:
        """A thread that has accessed one of ``count`` elements from its ``first`` on without a later fence."""
        return _first(threads, np.any(self._touched[buffer][threads[:, None], first[:, None] + np.arange(count)], axis=1))


def _first(threads: Ints, where: NDArray[np.bool_]) -> int | None:
    return int(threads[int(np.argmax(where))]) if where.any() else None
