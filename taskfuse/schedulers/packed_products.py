"""Products whose factors have a layout that neither copy engine nor tensor cores take: separate kernels pack the factors first.

The copy engine needs rows of multiples of 16 bytes, and tensor cores take elements of 8 bits along k only. Threads of the product's kernel can load other
rows, each element once per tile that needs it. A kernel that packs a factor reads it once, and the product then runs at full speed. The cost
models and the counted times decide.

Where a factor of 8 bits is computed of accumulators in their registers, as exponentials of scores, the other one is packed in the order in which these become
terms: values of attention.

Products of float32 run on CUDA cores, whose threads read vectors of rows or columns: factors with k last are turned, by these threads for each tile, or once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from taskfuse.dtypes import float32
from taskfuse.ir.atoms import SUM_OF_PRODUCTS, WGMMA_ARCH
from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.contraction import Factors, MatrixAxes, axes_of, computes, factors
from taskfuse.ir.expr import Read, Reduction
from taskfuse.ir.fragments import GROUP
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.matrix_instructions import Family, accumulator_dtype, transposes
from taskfuse.ir.scalar import is_multiple
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.repairs import depends
from taskfuse.schedule.through_view import own_index
from taskfuse.schedulers.cost import MatmulProblem
from taskfuse.schedulers.loads import copy_bytes, is_bulk
from taskfuse.schedulers.matmul_candidates import rank
from taskfuse.schedulers.mma_gemm import mma_us
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.simt_gemm import simt_us
from taskfuse.target import TMA_BYTES

WORTH = 1.5
"""The greatest expected time of all kernels, relative to the kernel whose threads copy the factors, with which packing is tried; counted times then decide."""


class Packing(NamedTuple):
    """A call of ``pack_factors``.

    Attributes:
        name: of the product.
        axis: its reduced axis.
        multiple: divides the padded length of that axis.
        operands: positions of the factors.
        turned: the reduced axis is the one before the last.
        as_columns: terms are in the order of accumulators.
    """

    name: str
    axis: int
    multiple: int
    operands: tuple[int, ...]
    turned: bool = False
    as_columns: bool = False


def pack_products(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with packed factors for the products that may gain from it; ``None`` if there are none.

    Args:
        extent: numbers for extents.
    """
    found = [packing for e in needed(fusion) if isinstance(e, Reduction) and (packing := _packing(fusion, e, extent)) is not None]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for one in found:
        script.pack_factors(script.fusion.tensor(one.name), one.axis, one.multiple, one.operands, turned=one.turned, as_columns=one.as_columns)
    return script


def _packing(fusion: Fusion, expr: Reduction, extent: Sizes) -> Packing | None:
    """How a product's factors are packed; ``None`` if its kernel takes them as they are, or nothing is gained."""
    tv, facts, target = expr.output, fusion.facts(), extent.target
    reads = tuple(replace(read, index=own_index(fusion, expr, read)) for read in storage_reads(fusion, expr))
    two = factors(fusion, expr, reads)
    if two is None or not computes(expr, SUM_OF_PRODUCTS) or not two.make_a_matrix or tv.schedule.transforms or not expr.is_whole:
        return None
    axes = two.as_matrices(tv)
    given = _beside_accumulators(fusion, two)
    if given is not None and not axes.summed and is_multiple(tv.root[axes.k].extent, GROUP, facts):
        return Packing(tv.name, axes.k, GROUP, (given,), as_columns=True)
    if axes.summed:
        return None
    dtype = two.a.tensor.dtype
    if dtype is float32 and two.b.tensor.dtype is float32:
        return _turning(tv, two, axes, reads, extent)
    if not target.has(WGMMA_ARCH, feature=True):
        return None
    is_fast = dtype is two.b.tensor.dtype and accumulator_dtype(dtype, dtype, Family.WGMMA) is tv.dtype
    if not is_fast:
        return None
    k = axes.k
    along_k = (two.a.index[-1] is iteration_symbol(k), two.b.index[-1] is iteration_symbol(k))
    is_refused = not (transposes(dtype) or all(along_k))
    if not is_refused and all(is_bulk(read.tensor, facts) for read in reads):
        return None
    multiple = TMA_BYTES // dtype.itemsize
    divides = is_multiple(tv.root[k].extent, multiple, facts)
    chosen = tuple(p for p, own in zip(two.places, along_k, strict=True) if not (divides and is_bulk(reads[p].tensor, facts)) or (is_refused and not own))
    m, n, depth = (extent(axes.extent(p)) for p in (axes.m, axes.n, axes.k))
    batch = prod(extent(axes.extent(p)) for p in axes.batch)
    access = tuple(0 if is_bulk(read.tensor, facts) else copy_bytes(read.tensor, facts) for read in (two.a, two.b))
    problem = MatmulProblem(m, n, depth, batch, dtype.itemsize, target=target)
    copies = sum(_copy_us(tv, reads[p], extent) for p in chosen)
    if is_refused:
        size = (batch, m, n, depth)
        least = min(mma_us(size, dtype, dtype, tv.dtype, target, along_k), simt_us(size, tv.dtype.itemsize, target))
    else:
        least = WORTH * rank(replace(problem, access=(access[0], access[1]), columns_contiguous=not along_k[1]))[0].us
    return Packing(tv.name, k, multiple, chosen) if rank(problem)[0].us + copies < least else None


def _beside_accumulators(fusion: Fusion, two: Factors) -> int | None:
    """The position of a factor of 8 bits, an input, beside one that is computed of another product; ``None``: these are no such factors."""
    if transposes(two.a.tensor.dtype) or not two.a.tensor.dtype.is_float:
        return None
    products = [e.output for e in needed(fusion) if isinstance(e, Reduction) and computes(e, SUM_OF_PRODUCTS)]
    for (a, b), place in (((two.a, two.b), two.places[1]), ((two.b, two.a), two.places[0])):
        if b.tensor.is_input and depends(fusion, a.tensor, products):
            return place
    return None


def _turning(tv: TensorView, two: Factors, axes: MatrixAxes, reads: Sequence[Read], extent: Sizes) -> Packing | None:
    """How factors of a product on CUDA cores are turned: threads that turn them on their way to Shared memory copy one element at a time, for each tile."""
    target, k = extent.target, axes.k
    chosen = tuple(p for p in two.places if reads[p].index[-1] is iteration_symbol(k))
    m, n, depth = (extent(axes.extent(p)) for p in (axes.m, axes.n, k))
    size = prod(extent(axes.extent(p)) for p in axes.batch), m, n, depth
    as_it_is, turned = (simt_us(size, tv.dtype.itemsize, target, along_k) for along_k in (len(chosen), 0))
    alike = len({reads[p].tensor for p in chosen}) < len(chosen)
    copies = sum(_copy_us(tv, reads[p], extent) for p in (chosen[:1] if alike else chosen))
    return Packing(tv.name, k, 1, chosen, turned=True) if chosen and turned + copies < as_it_is else None


def _copy_us(tv: TensorView, read: Read, extent: Sizes) -> float:
    """Microseconds of the kernel that copies a factor; a view may repeat elements, as windows do."""
    target, packed = extent.target, prod(extent(tv.root[p].extent) for p in axes_of(read))
    return target.kernel_us(target.dram_us((packed + min(packed, extent.elements(read.tensor))) * read.tensor.dtype.itemsize)) - target.overlap_us
