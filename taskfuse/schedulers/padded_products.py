"""Products of factors whose rows are not multiples of 16 bytes: copied, with rows that are.

The copy engine loads such rows alone. Others are loaded by threads, down to one element of two bytes at a time, so that tensor cores wait for them
(:mod:`taskfuse.schedulers.loads`): odd widths, vocabularies of 50257 words. A copy of a factor costs a pass over it, which what makes it may do in passing; the
cost models say where that is less (:mod:`taskfuse.schedule.pad_product`).
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from taskfuse.ir.axes import iteration_position
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.matrix_instructions import accumulator_dtype
from taskfuse.ir.scalar import TRUE, Const
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.through_view import own_index
from taskfuse.schedulers.cost import MatmulProblem, rank
from taskfuse.schedulers.loads import copy_bytes
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import TMA_BYTES

ITEMSIZE = 2
"""Bytes of the elements that ``wgmma`` takes with either axis contiguous."""
GAIN = 0.9
"""The most time of copies and product, relative to the product without."""


def pad_products(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with copies of the factors of products that gain by it; ``None`` if none does.

    Args:
        extent: numbers for extents.
    """
    found = [(e.output.name, *best) for e in needed(fusion) if isinstance(e, Reduction) and (best := _padding(fusion, e, extent)) is not None]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name, length, places in found:
        script.pad_product(script.fusion.tensor(name), length, places)
    return script


def _padding(fusion: Fusion, expr: Reduction, extent: Sizes) -> tuple[int, list[int]] | None:
    """The length of a product's sums, and the factors that are copied; ``None`` if that gains nothing, or a factor is not read at axes of the product."""
    reads = [replace(read, index=own_index(fusion, expr, read)) for read in storage_reads(fusion, expr)]
    two = factors(fusion, expr, reads)
    if two is None or not two.make_a_matrix or expr.body.name != "mul" or expr.combine.name != "add" or expr.output.schedule.transforms or expr.ends:
        return None
    dtypes = {read.tensor.dtype for read in reads}
    axes = two.as_matrices(expr.output)
    whole = axes.extent(axes.k)
    if len(dtypes) > 1 or not isinstance(whole, Const) or len(two.summed) > 1 or not all(_is_plain(read) for read in reads):
        return None
    (dtype,) = dtypes
    if dtype.itemsize != ITEMSIZE or accumulator_dtype(dtype, dtype) is not expr.output.dtype:
        return None
    facts, unit = fusion.facts(), TMA_BYTES // ITEMSIZE
    length = -(-whole.value // unit) * unit
    sizes = [copy_bytes(read.tensor, facts) for read in (two.a, two.b)]
    copied = [j for j, size in enumerate(sizes) if size < TMA_BYTES or length > whole.value]
    if min(sizes) == TMA_BYTES:
        return None
    m, n = (extent(axes.extent(p)) for p in (axes.m, axes.n))
    batch = prod(extent(axes.extent(p)) for p in axes.batch)
    access = (sizes[0] % TMA_BYTES, sizes[1] % TMA_BYTES)
    by_threads = MatmulProblem(m, n, whole.value, batch, ITEMSIZE, target=extent.target, access=access)
    in_bulk = MatmulProblem(m, n, length, batch, ITEMSIZE, target=extent.target)
    moved = [2.0 * ITEMSIZE * extent.elements(read.tensor) for j, read in enumerate((two.a, two.b)) if j in copied]
    copies = sum(extent.target.kernel_us(extent.target.dram_us(size)) for size in moved)
    if rank(in_bulk)[0].us + copies > GAIN * rank(by_threads)[0].us:
        return None
    return length, [two.places[j] for j in copied]


def _is_plain(read: Read) -> bool:
    """Whether an element is read at different axes, or at one place along them, wherever there is one."""
    positions = [iteration_position(e) for e in read.index if not isinstance(e, Const)]
    return read.valid is TRUE and None not in positions and len(set(positions)) == len(positions)
