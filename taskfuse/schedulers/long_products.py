"""Products of few tiles and long sums (split-K): the sums are split into chunks, which fill the GPU, and a second kernel adds the partial sums.

A result of few tiles occupies few multiprocessors, each of which loops over all of k. Chunks of k, as a batch axis of the product, make more tiles; their
partial sums go through memory once more, in a kernel that is short if the result is small. The cost models of products decide whether that is faster. Of
several axes, as a convolution sums over, the last one is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from math import inf, prod

from taskfuse.dtypes import float32
from taskfuse.errors import TaskfuseError
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import Reduction, padded_read
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.through_view import own_index
from taskfuse.schedulers.block_sums import SPAN
from taskfuse.schedulers.canonical import operands
from taskfuse.schedulers.computed_factors import compute_at, computed_for
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.matmul import offer
from taskfuse.schedulers.matmul_candidates import rank
from taskfuse.schedulers.mma_gemm import mma_us
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_ways import RowViews
from taskfuse.schedulers.simt_gemm import simt_us
from taskfuse.target import VECTOR_BYTES

MOST_CHUNKS = 256
SHORTEST = 128
"""The fewest elements of a chunk: two steps of a tensor core's tiles."""
CACHED = 1 / 3
"""The share of the L2 cache up to which partial sums are expected to stay there until they are added."""
MOST_WAVES = 2
"""Tiles of chunks for each multiprocessor, of :data:`LARGEST_TILE`, up to which chunks may gain where factors are computed."""
LARGEST_TILE = 128 * 256
"""Elements of the largest tile."""
GAIN = 0.95
"""The most time of both kernels, relative to the product without chunks."""


def chunk_long_products(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with chunks for the products that gain, whose factors are then read through views; ``None`` if no product gains.

    Args:
        extent: numbers for extents.
    """
    found = [(e.output.name, *best) for e in needed(fusion) if isinstance(e, Reduction) and (best := _chunk(fusion, e, extent)) is not None]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name, axis, length in found:
        cut(script, script.fusion.tensor(name), axis, length)
    return script


def cut(script: Script, product: TensorView, axis: int, length: int) -> TensorView:
    """Cut a sum into chunks, which have their factors at their own points, through views or computed there."""
    chunks = script.new(product, "chunk_reduction", axis, length)
    _move_windows(script, chunks)
    compute_at(script, chunks)
    operands(script, chunks, is_product=True)
    return chunks


def _move_windows(script: Script, chunks: TensorView) -> None:
    """Let chunks read windows of their own channels, which are a part of a row of the input, with its padding."""
    fusion, definition = script.fusion, chunks.definition
    assert definition is not None
    for windows in [read.tensor for read in storage_reads(fusion, definition) if padded_read(fusion.definition(read.tensor)) is not None]:
        for made in script.recompute(windows, [chunks]):
            if made.definition is not None and free_axes(fusion, made.definition):
                script.new(made, "drop_axes")


def _chunk(fusion: Fusion, expr: Reduction, extent: Sizes) -> tuple[int, int] | None:
    """The reduced axis of a product, the last of several, and the length of its chunks; ``None`` if chunks gain nothing."""
    two = factors(fusion, expr, [replace(read, index=own_index(fusion, expr, read)) for read in storage_reads(fusion, expr)])
    if two is None or not two.make_a_matrix or len(expr.output.schedule.transforms):
        return None
    if expr.output.dtype.is_float and expr.output.dtype.bits < float32.bits:
        return None  # each part would be rounded
    is_several = len(two.summed) > 1
    axes = two.as_matrices(expr.output, in_boxes=is_several)
    whole = axes.extent(axes.k)
    if not isinstance(whole, Const):
        return None
    rows = tuple(extent(axes.extent(p)) for p in axes.rows)
    m, n, walks = prod(rows), extent(axes.extent(axes.n)), prod(extent(axes.extent(p)) for p in axes.summed)
    batch = 1
    for p in axes.batch:
        batch *= extent(axes.extent(p))
    k, itemsize, target = whole.value, two.a.tensor.dtype.itemsize, extent.target
    is_fast = accumulator_dtype(two.a.tensor.dtype, two.b.tensor.dtype, Family.WGMMA) is expr.output.dtype and two.a.tensor.dtype is not float32

    def us(chunks: int) -> float:
        if not is_fast:
            size = batch * chunks, m, n, walks * k // chunks
            return min(mma_us(size, two.a.tensor.dtype, two.b.tensor.dtype, expr.output.dtype, target), simt_us(size, expr.output.dtype.itemsize, target))
        stored = int(chunks == 1), int(chunks > 1)
        problem = MatmulProblem(m, n, k // chunks, batch * chunks, itemsize, *stored, target=target, walks=walks, box_of=rows if is_several else ())
        return min(rank(order)[0].us for order in problem.orders)

    def both(chunks: int, us: Callable[[int], float]) -> float:
        moved = (chunks + 1) * batch * m * n * expr.output.dtype.itemsize
        return us(chunks) - target.overlap_us + target.kernel_us(moved / target.l2_bytes_per_us if moved < target.l2_bytes * CACHED else target.dram_us(moved))

    aligned = (SPAN if is_several else VECTOR_BYTES) // itemsize
    if not is_fast and k % aligned:
        aligned = 1  # the CUDA cores take elements one by one along such a sum
    possible = [c for c in range(2, MOST_CHUNKS + 1) if k % c == 0 and k // c % aligned == 0 and walks * k // c >= SHORTEST]
    if not possible or batch * m * n >= target.sms * SHORTEST**2 * 4:
        return None
    ways = [(us, possible)]
    if computed_for(fusion, expr):
        few = [c for c in possible if batch * c * m * n <= MOST_WAVES * target.sms * LARGEST_TILE]
        ways.insert(0, (cache(partial(_computed_us, fusion, expr.output.name, axes.k, k, extent)), few))
    for each_us, counts in ways:
        best, whole_us = min(counts, key=lambda c: both(c, each_us), default=1), each_us(1)
        if best > 1 and whole_us < inf and both(best, each_us) < GAIN * whole_us:
            return axes.k, k // best
    return None


def _computed_us(fusion: Fusion, name: str, axis: int, k: int, extent: Sizes, chunks: int) -> float:
    """Microseconds of a product in chunks whose factors are computed on their way to the tensor cores; infinite where they cannot be."""
    script = Script(copy_fusion(fusion)[0])
    product = script.fusion.tensor(name)
    try:
        if chunks > 1:
            product = cut(script, product, axis, k // chunks)
        else:
            compute_at(script, product)
        expr = product.definition
        assert expr is not None
        tensors = [*computed_for(script.fusion, expr), product]
        part = Parts(script.fusion).extract(tensors, fusion.name, RowViews(script.fusion).of(tensors))
        return offer(part, sizes={name: size for name, size in extent.values.items() if name in part.dims}, target=extent.target).us
    except TaskfuseError:
        return inf
