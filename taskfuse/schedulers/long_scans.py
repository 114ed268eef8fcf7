"""Scans in chunks, computed by several kernels: the chunks, their totals, the combination of both.

Where a row may be longer than what a block holds; or where rows lie side by side, and these kernels are expected to be faster than one in which the threads
of a block share a row (:mod:`taskfuse.schedulers.scan`), or one thread walks along it.
"""

from __future__ import annotations

from math import inf, isqrt, prod

from taskfuse.count import IN_FLIGHT
from taskfuse.ir.expr import Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed
from taskfuse.schedulers.scan import is_long
from taskfuse.schedulers.scan_cost import ScanProblem, rank
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import WARP

LONG = 2048
"""Elements of a chunk of rows that do not fit a block."""
GAIN = 0.9
"""The most time of the kernels with chunks, relative to the scan without."""


def chunk_long_scans(fusion: Fusion, extent: Sizes) -> tuple[tuple[str, int], ...]:
    """Split the scans of ``fusion`` that are then faster, or that no single kernel can compute.

    Args:
        extent: numbers for extents.

    Returns:
        Their names, and the elements of a chunk.
    """
    found = [(e, _chunk(fusion, e, extent)) for e in needed(fusion) if isinstance(e, Scan)]
    for expr, chunk in found:
        if chunk is not None:
            expr.output.chunk_scan(chunk)
    return tuple((e.output.name, chunk) for e, chunk in found if chunk is not None)


def _chunk(fusion: Fusion, expr: Scan, extent: Sizes) -> int | None:
    """The elements of a chunk; ``None`` for a scan that is not split."""
    if expr.axis == len(expr.output.root) - 1:
        return LONG if is_long(fusion, expr) else None
    steps, target = expr.output.root[expr.axis].extent, extent.target
    if not isinstance(steps, Const):
        return None
    columns = prod(extent(a.extent) for k, a in enumerate(expr.output.root) if k != expr.axis)
    moved = target.dram_us(2.0 * extent.elements(expr.output) * expr.output.dtype.itemsize)

    def walk(length: int, columns: int) -> float:
        """Microseconds to scan columns by one thread each, in waves of resident threads."""
        waves = max(1.0, columns / (target.sms * target.limits.warps * WARP))
        return waves * length * target.assumed.load_cycles / IN_FLIGHT / target.clock_mhz

    def apart(length: int) -> float:
        chunks = -(-steps.value // length)
        return target.kernel_us(moved, walk(length, columns * chunks)) + target.kernel_us(walk(chunks, columns)) + target.kernel_us(moved)

    root = isqrt(max(steps.value, 1))
    best = min((1 << k for k in range(2, root.bit_length() + 2)), key=apart)
    one = min(target.kernel_us(moved, walk(steps.value, columns)), _in_one_kernel(expr, columns, steps.value, extent))
    return best if best < steps.value and apart(best) < GAIN * one else None


def _in_one_kernel(expr: Scan, columns: int, steps: int, extent: Sizes) -> float:
    """Microseconds to scan columns that lie side by side, each by threads of one block; infinite if no block holds one."""
    tv = expr.output
    sizes, moved = (tv.dtype.itemsize,), float(columns * steps * tv.dtype.itemsize)
    problem = ScanProblem(
        rows=columns,
        columns=steps,
        run=prod(extent(a.extent) for a in tv.root[expr.axis + 1 :]),
        loads=sizes,
        stores=sizes,
        totals=(tv.dtype.compute.itemsize,),
        loaded=moved,
        stored=moved,
        slots=2.0 * columns * steps,
        target=extent.target,
    )
    return next((found.us for found in rank(problem)), inf)
