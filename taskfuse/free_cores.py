"""Cores that nobody needs: those that a process may use, less the processes beside it that are at work.

Processes that compile fusions in parallel take as many cores as there are. Work that may turn out not to be needed, such as machine code of kernels that a
search may not choose, takes no core then that another fusion waits for; when few fusions are left, it does again. Who forks the processes makes the marks, one
byte for each in memory that they share.
"""

from __future__ import annotations

import mmap
from collections.abc import Generator
from contextlib import contextmanager

from taskfuse.options import cores

_marks: mmap.mmap | None = None


def share(processes: int) -> None:
    """Make the marks of processes that this one will fork."""
    global _marks
    _marks = mmap.mmap(-1, processes)


@contextmanager
def at_work(process: int) -> Generator[None]:
    """Mark this process, which has a number among those that share marks, for as long as it works."""
    marks = _marks
    assert marks is not None
    marks[process] = 1
    try:
        yield
    finally:
        marks[process] = 0


def free_cores() -> int:
    """How many cores this process and its threads may use, itself included: at least 1."""
    busy = 0 if _marks is None else sum(_marks[:])
    return max(1, cores() - max(0, busy - 1))
