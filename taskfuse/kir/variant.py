"""Variants: the assumptions of a CUDA text about its arguments.

One kernel has several texts, its variants. Which one a launch takes follows from the arguments: their layouts, and whether every integer of the kernel
fits 32 bits. All variants compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ArgumentLayout(Enum):
    """The layout of a tensor argument.

    - DENSE: row-major without gaps, the base address a multiple of 16 bytes (of the element size, if no vector is copied).
    - ROWS: any strides but 1 for the last axis; the base address and the other strides are multiples of every vector copied.
    - STRIDED: any strides (zero and negative ones too), any base address; vectors are copied element by element.
    """

    DENSE = "dense"
    ROWS = "rows"
    STRIDED = "strided"


@dataclass(frozen=True, slots=True)
class Variant:
    """The assumptions of one text.

    Attributes:
        forms: layout of each tensor argument, in the order of the kernel's parameters.
        wide: false: every integer expression of the kernel fits 32 bits for the arguments; true: those for which no bound is known use 64.
    """

    forms: tuple[ArgumentLayout, ...]
    wide: bool = False
