"""Whether a fusion of an op can be as fast as torch's own: expected times of both, before anything is scheduled.

The least time of a fusion is its roofline: its bytes, or the instructions of its definition, whichever take longer; products of matrices, which take as long
in both, are left out. torch's op moves the same bytes, and has at most so many instructions for each element as a sort by digits has (:data:`DIGITS` passes).
Where the definition needs more than that, as a sort by exchanges of a long row does, torch has an algorithm that taskfuse has not. Short rows, and few, are as
well sorted in a fusion.
"""

from __future__ import annotations

from typing import Final

from taskfuse.cuda.present import present
from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.roofline import bytes_of, instructions
from taskfuse.schedulers.schedule import Sizes

DIGITS: Final = 8
"""Passes of a radix sort of 32-bit keys, 4 bits in each (Merrill and Grimshaw, "High Performance and Scalable Radix Sorting", 2011)."""
PASS: Final = 12
"""Instructions of a pass for each element."""


def times(fusion: Fusion) -> tuple[float, float]:
    """The least time of an op in a fusion that is launched anyway, and the expected time of torch's op, in microseconds on the GPU that is present.

    Args:
        fusion: the op alone.
    """
    target = present()
    extent = Sizes(fusion, None, target)
    elements = sum(extent.elements(tv) for tv in fusion.inputs)
    moved = target.dram_us(bytes_of(fusion, extent))
    return max(moved, target.issue_us(instructions(fusion, extent))), target.kernel_us(moved, target.issue_us(DIGITS * PASS * elements))
