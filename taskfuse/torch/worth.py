"""Whether a fusion can be as fast as torch's own ops: expected times of both, before anything is compiled.

The least time of a fusion is its roofline: its bytes, or the instructions of its definition, whichever take longer; products of matrices, which take as long
in both, are left out. torch's op moves the same bytes, and has at most so many instructions for each element as a sort by digits has (:data:`DIGITS` passes).
Where the definition needs more than that, as a sort by exchanges of a long row does, torch has an algorithm that taskfuse has not. Short rows, and few, are as
well sorted in a fusion.

Of products the schedulers' cost models tell the time; torch's are expected to be at the roofline, which they nearly reach (benchmarks/results/matmul.txt).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskfuse.cuda.present import present
from taskfuse.errors import UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.canonical import canonical
from taskfuse.schedulers.matmul import offer as matmul_offer
from taskfuse.schedulers.roofline import bytes_of, instructions, roofline
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


def product_times(fusion: Fusion, products: Sequence[Fusion], rest: Fusion, joins: bool) -> tuple[float, float] | None:
    """The expected time of a fusion of products and what follows them, and at least that of torch, in microseconds; ``None`` without a scheduler for it.

    Args:
        fusion: all of it.
        products: each product alone.
        rest: what follows, which is one kernel.
        joins: what reads the result would be in the kernel of the rest, too: then it saves only its reads of the products.
    """
    target = present()
    form = canonical(fusion, Sizes(fusion, None, target))
    try:
        ours = matmul_offer(fusion if form is None else form.fusion, target=target).us
    except UnsupportedError:
        return None
    extent = Sizes(rest, None, target)
    read = target.dram_us(float(sum(f.outputs[0].dtype.itemsize * Sizes(f, None, target).elements(f.outputs[0]) for f in products)))
    return ours, sum(roofline(f, Sizes(f, None, target)) for f in products) + (read if joins else roofline(rest, extent))
