"""Reductions whose rows are short runs of memory, far from one another: first over the axes outside the runs, then along them.

The gradient of the scales of a convolution's weights sums ``x[batch, out, in, 3, 3]`` over ``out`` and both axes of the window: a row has nine elements side by
side, then nine elsewhere. A warp that walks along a row asks for parts of many lines, and every run ends within a sector that another row has, too. Sums over
``out`` alone are columns: neighboring threads have neighboring elements of all runs. What is left are a few sums of nine.
"""

from __future__ import annotations

from math import prod

from taskfuse.dtypes import float32
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import ONE
from taskfuse.ir.storage import needed
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.target import LINE_BYTES

FEWEST = 16
"""The fewest runs of a row: the sums along them are so many times fewer elements."""


def sum_short_runs_last(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` whose reductions of rows that are short runs reduce the axes outside the runs first; ``None`` if it has none. Sums of floats then
    round in another order.

    Args:
        extent: numbers for extents.
    """
    found = [(e.output.name, axes) for e in needed(fusion) if isinstance(e, Reduction) and (axes := _outside(e, extent))]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name, axes in found:
        script.new(script.fusion.tensor(name), "rfactor", axes)
    return script


def _outside(expr: Reduction, extent: Sizes) -> list[int]:
    """The reduced axes before the last kept one, if few elements lie side by side after it."""
    tv = expr.output
    is_rounded = tv.dtype.is_float and tv.dtype.bits < float32.bits  # twice, then
    if len(expr.operands) > 1 or expr.rescaled is not None or not expr.is_whole or tv.schedule.transforms or is_rounded:
        return []
    last = max((k for k, a in enumerate(tv.root) if not a.is_reduction and a.extent is not ONE), default=0)
    runs = [k for k, a in enumerate(tv.root) if a.is_reduction and k > last]
    outside = [k for k, a in enumerate(tv.root) if a.is_reduction and k < last]
    is_short = 1 < prod(extent(tv.root[k].extent) for k in runs) * tv.dtype.itemsize <= LINE_BYTES and bool(runs)
    return outside if is_short and prod(extent(tv.root[k].extent) for k in outside) >= FEWEST else []
