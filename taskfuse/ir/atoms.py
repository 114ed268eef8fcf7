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
        axes: number of axes that the atom covers.
        binds: the parallel type that the covered axes get; ``None`` if it covers none.
        lanes: threads that execute it together: 1, 32 or 128.
        max_bytes: bytes of one contiguous access; the covered extent times the element size must be a power of two up to it.
        completion: when its effect is done.
        bounds: what it does out of bounds.
        copies_only: the definition must be a plain copy.
    """

    name: str
    axes: int
    binds: ParallelType | None
    lanes: int
    max_bytes: int
    completion: Completion
    bounds: Bounds
    copies_only: bool


SCALAR = Atom("scalar", 0, None, 1, 8, Completion.IMMEDIATE, Bounds.PREDICATE, False)
VECTOR = Atom("vector", 1, ParallelType.Vectorize, 1, 16, Completion.IMMEDIATE, Bounds.PREDICATE, True)
