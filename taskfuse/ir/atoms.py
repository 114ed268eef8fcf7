"""Atoms: the instructions that execute some axes of an expression as one.

Passes read rows of this table and never ask which op they see. ``completion`` says when the effect is done; every dependence edge of a
tensor passes its retire, so that "executed" is never taken for "done".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from taskfuse.ir.types import ParallelType


class Completion(Enum):
    """When an atom's effect is done.

    IMMEDIATE: at once. FIFO: when its batch is retired from a queue. BYTES: when its bytes have arrived at a barrier. ARRIVAL: when the thread
    that issued it has retired it, or when an arrival of the thread that waits for it has been counted at a barrier.
    """

    IMMEDIATE = "immediate"
    FIFO = "fifo"
    BYTES = "bytes"
    ARRIVAL = "arrival"


class Bounds(Enum):
    """What an atom does out of bounds: nothing (needs a predicate), reads a fill value, clips its writes, or writes zeros as a whole.

    ZERO: its elements are all inside or all outside, and outside it writes zeros where storage has room for them.
    """

    PREDICATE = "predicate"
    FILL = "fill"
    CLIP = "clip"
    ZERO = "zero"


@dataclass(frozen=True, slots=True)
class Atom:
    """One row.

    Attributes:
        name: printed name.
        axes: the least and the greatest number of axes that the atom covers.
        binds: the parallel type that the covered axes get; ``None`` if it covers none.
        lanes: threads that execute it together: 1, 32 or 128.
        max_bytes: bytes of one access at most.
        power_of_two: the covered extents must be powers of two.
        completion: when its effect is done.
        bounds: what it does out of bounds.
        copies_only: the definition must be a plain copy.
        is_async: it reads and writes Shared memory through the asynchronous proxy.
        min_bytes: bytes of one access at least.
    """

    name: str
    axes: tuple[int, int]
    binds: ParallelType | None
    lanes: int
    max_bytes: int
    power_of_two: bool
    completion: Completion
    bounds: Bounds
    copies_only: bool
    is_async: bool = False
    min_bytes: int = 1


SCALAR = Atom("scalar", (0, 0), None, 1, 8, False, Completion.IMMEDIATE, Bounds.PREDICATE, False)
VECTOR = Atom("vector", (1, 1), ParallelType.Vectorize, 1, 16, True, Completion.IMMEDIATE, Bounds.PREDICATE, True)
# Copies of each thread from Global to Shared memory (PTX ISA, "cp.async"), made in the generic proxy.
CP_ASYNC = Atom("cp_async", (0, 1), ParallelType.Vectorize, 1, 16, True, Completion.ARRIVAL, Bounds.ZERO, True, min_bytes=4)
# Bulk tensor copies (PTX ISA, "cp.async.bulk.tensor"): one thread starts them, the copy engine makes them.
TMA_LOAD = Atom("tma_load", (1, 5), ParallelType.Bulk, 1, 1 << 17, False, Completion.BYTES, Bounds.FILL, True, is_async=True)
TMA_STORE = Atom("tma_store", (1, 5), ParallelType.Bulk, 1, 1 << 17, False, Completion.FIFO, Bounds.CLIP, True, is_async=True)

ATOMS: dict[str, Atom] = {a.name: a for a in (SCALAR, VECTOR, CP_ASYNC, TMA_LOAD, TMA_STORE)}
