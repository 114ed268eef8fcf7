"""Atoms: the instructions that execute some axes of an expression as one.

Passes read rows of this table and never ask which op they see. ``completion`` says when the effect is done; every dependence edge of a
tensor passes its retire, so that "executed" is never taken for "done".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from taskfuse.ir.types import ParallelType


class Completion(Enum):
    """When an atom's effect is done."""

    IMMEDIATE = "immediate"
    FIFO = "fifo"
    BYTES = "bytes"


class Bounds(Enum):
    """What an atom does out of bounds: nothing (needs a predicate), reads a fill value, or clips its writes."""

    PREDICATE = "predicate"
    FILL = "fill"
    CLIP = "clip"


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
        multicast: what it brings is the same in several blocks of a cluster: they share one copy, into the Shared memory of each.
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
    multicast: bool = False


SCALAR = Atom("scalar", (0, 0), None, 1, 8, False, Completion.IMMEDIATE, Bounds.PREDICATE, False)
VECTOR = Atom("vector", (1, 1), ParallelType.Vectorize, 1, 16, True, Completion.IMMEDIATE, Bounds.PREDICATE, True)
# Bulk tensor copies (PTX ISA, "cp.async.bulk.tensor"): one thread starts them, the copy engine makes them.
TMA_LOAD = Atom("tma_load", (1, 5), ParallelType.Bulk, 1, 1 << 17, False, Completion.BYTES, Bounds.FILL, True, is_async=True)
TMA_LOAD_MULTICAST = Atom(
    "tma_load_multicast", (1, 5), ParallelType.Bulk, 1, 1 << 17, False, Completion.BYTES, Bounds.FILL, True, is_async=True, multicast=True
)
TMA_STORE = Atom("tma_store", (1, 5), ParallelType.Bulk, 1, 1 << 17, False, Completion.FIFO, Bounds.CLIP, True, is_async=True)

ATOMS: dict[str, Atom] = {a.name: a for a in (SCALAR, VECTOR, TMA_LOAD, TMA_LOAD_MULTICAST, TMA_STORE)}
