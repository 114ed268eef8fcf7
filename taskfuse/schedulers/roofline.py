"""The roofline of a fusion: a lower bound on the time of any kernel of it, whatever its schedule.

One launch, and the slowest of these: each input that is read, read once, and each output written; each tensor computed once; products
multiplied by the fastest units for their types.
"""

from __future__ import annotations

from math import prod

from taskfuse.dtypes import float32
from taskfuse.ir.contraction import factors
from taskfuse.ir.expr import MathExpr, Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.matrix_instructions import accumulator_dtype
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.drop_axes import free_axes
from taskfuse.schedule.tile_windows import windowed_read, windows_of
from taskfuse.schedulers.instructions import slots
from taskfuse.schedulers.schedule import Sizes


def bytes_of(fusion: Fusion, extent: Sizes) -> float:
    """Bytes of the inputs that something reads, and of the outputs."""
    return float(sum(extent.elements(tv) * tv.dtype.itemsize for tv in (*(tv for tv in fusion.inputs if tv.uses), *fusion.outputs)))


def instructions(fusion: Fusion, extent: Sizes) -> float:
    """Instructions of the CUDA cores, each tensor computed once. Sums of products of two tensors do not count: tensor cores may compute them much faster."""
    return float(sum(_points(fusion, e, extent) * slots(e) for e in needed(fusion) if factors(fusion, e) is None))


def roofline(fusion: Fusion, extent: Sizes) -> float:
    """A lower bound on the time of any kernel of ``fusion``, in microseconds."""
    target = extent.target
    read: dict[TensorView, float] = {}
    for e in needed(fusion):
        points = _points(fusion, e, extent)
        for r in storage_reads(fusion, e):
            read[r.tensor] = read.get(r.tensor, 0.0) + points
    moved = sum(min(read.get(tv, 0.0), extent.elements(tv)) * tv.dtype.itemsize for tv in fusion.inputs)
    moved += sum(extent.elements(tv) * tv.dtype.itemsize for tv in fusion.outputs)
    return target.kernel_us(target.dram_us(moved), target.issue_us(instructions(fusion, extent)), products_us(fusion, extent))


def products_us(fusion: Fusion, extent: Sizes) -> float:
    """A lower bound on the time to multiply and add for the sums of products of a fusion, in microseconds."""
    target = extent.target
    found = 0.0
    for e in needed(fusion):
        if isinstance(e, Reduction) and (two := factors(fusion, e)) is not None:
            a, b = two.a.tensor.dtype, two.b.tensor.dtype
            is_fast = two.make_a_matrix and a is not float32 and accumulator_dtype(a, b) is not None
            points = _points(fusion, e, extent)
            found += target.tensor_us(points, max(a.itemsize, b.itemsize)) if is_fast else target.issue_us(points)
    return found


def _points(fusion: Fusion, e: MathExpr, extent: Sizes) -> float:
    """Points at which an expression must be computed. Elements of another tensor that windows have several times are each taken once."""
    left_out = free_axes(fusion, e)
    points = float(prod(extent(a.extent) for k, a in enumerate(e.output.root) if k not in left_out))
    taken = windowed_read(e) if windows_of(fusion, e.output) else None
    return points if taken is None else min(points, float(extent.elements(taken.tensor)))
