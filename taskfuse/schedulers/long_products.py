"""Products of few tiles and long sums (split-K): the sums are split into chunks, which fill the GPU, and a second kernel adds the partial sums.

A result of few tiles occupies few multiprocessors, each of which loops over all of k. Chunks of k, as a batch axis of the product, make more tiles; their
partial sums go through memory once more, in a kernel that is short if the result is small. The cost models of products decide whether that is faster. Of
several axes, as a convolution sums over, the last one is cut. Where no number of chunks of one length makes up the whole, as of the 8 x 197 tokens of images,
a product of its own adds the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import ceil, inf, prod

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
STEP = SHORTEST // 2
"""What divides the length of chunks that do not make up the whole sum."""
TILES = ((64, 64), (64, 128), (128, 128), (128, 256))
"""Tiles, one of which for each multiprocessor such chunks make, unless up to twice as many chunks make up the whole."""
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
    """Cut a sum into chunks, and a rest, if there is one, which have their factors at their own points, through views or computed there. Returns the chunks."""
    whole = product.root[axis].extent
    assert isinstance(whole, Const)
    rest: Sequence[TensorView] = ()
    if whole.value % length:
        product, *rest = script.cut_reduction(product, axis, whole.value // length * length)
    chunks = script.new(product, "chunk_reduction", axis, length)
    for part in (chunks, *rest):
        _move_windows(script, part)
        compute_at(script, part)
        operands(script, part, is_product=True)
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

    def us(chunks: int, length: int, is_part: bool = True) -> float:
        if not is_fast:
            size = batch * chunks, m, n, walks * length
            return min(mma_us(size, two.a.tensor.dtype, two.b.tensor.dtype, expr.output.dtype, target), simt_us(size, expr.output.dtype.itemsize, target))
        stored = int(not is_part), int(is_part)
        problem = MatmulProblem(m, n, length, batch * chunks, itemsize, *stored, target=target, walks=walks, box_of=rows if is_several else ())
        return min(rank(order)[0].us for order in problem.orders)

    def both(chunks: int, length: int, us: Callable[[int, int], float]) -> float:
        rest = k - chunks * length
        moved = (chunks + 1 + (rest > 0)) * batch * m * n * expr.output.dtype.itemsize
        added = target.kernel_us(moved / target.l2_bytes_per_us if moved < target.l2_bytes * CACHED else target.dram_us(moved))
        beside = max(us(1, rest) - target.launch_us, 0.0) if rest else 0.0  # one list of tiles has both
        return us(chunks, length) + beside - target.overlap_us + added

    aligned = (SPAN if is_several else VECTOR_BYTES) // itemsize
    if not is_fast and k % aligned:
        aligned = 1  # the CUDA cores take elements one by one along such a sum
    possible = [(c, k // c) for c in range(2, MOST_CHUNKS + 1) if k % c == 0 and k // c % aligned == 0 and walks * k // c >= SHORTEST]
    filling = {min(MOST_CHUNKS, k // SHORTEST, target.sms // max(1, batch * ceil(m / height) * ceil(n / width))) for height, width in TILES}
    ragged = [(c, length) for c in sorted(filling) if c > 1 and (length := k // c // STEP * STEP) >= SHORTEST and not any(c <= p < 2 * c for p, _ in possible)]
    if batch * m * n >= target.sms * SHORTEST**2 * 4:
        return None
    found: int | None = None
    if computed_for(fusion, expr):
        computed_us = cache(partial(_computed_us, fusion, expr.output.name, axes.k, extent))
        few = [(c, length) for c, length in possible if batch * c * m * n <= MOST_WAVES * target.sms * LARGEST_TILE]
        found = _best([few], lambda c, length: both(c, length, computed_us), computed_us(1, k))
    if found is None:
        found = _best([possible, [] if is_several else ragged], lambda c, length: both(c, length, us), us(1, k, False))
    return None if found is None else (axes.k, found)


def _best(ways: Sequence[Sequence[tuple[int, int]]], us: Callable[[int, int], float], whole_us: float) -> int | None:
    """The length of the chunks that gain most, by numbers and lengths of chunks; those of later ways only if they gain more. ``None`` if none gain."""
    found, least = None, whole_us
    for chunks in ways:
        best = min(chunks, key=lambda c: us(*c), default=None)
        if best is not None and least < inf and us(*best) < GAIN * least:
            found, least = best[1], us(*best)
    return found


def _computed_us(fusion: Fusion, name: str, axis: int, extent: Sizes, chunks: int, length: int) -> float:
    """Microseconds of a product in chunks whose factors are computed on their way to the tensor cores; infinite where they cannot be."""
    script = Script(copy_fusion(fusion)[0])
    product = script.fusion.tensor(name)
    try:
        if chunks > 1:
            product = cut(script, product, axis, length)
        else:
            compute_at(script, product)
        expr = product.definition
        assert expr is not None
        tensors = [*computed_for(script.fusion, expr), product]
        part = Parts(script.fusion).extract(tensors, fusion.name, RowViews(script.fusion).of(tensors))
        return offer(part, sizes={name: size for name, size in extent.values.items() if name in part.dims}, target=extent.target).us
    except TaskfuseError:
        return inf
