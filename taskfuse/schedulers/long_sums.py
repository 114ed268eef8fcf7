"""Reductions of few and long rows (a loss, the norms of many gradients): chunks of each, and a reduction of their results.

The blocks of such a reduction share a row and wait for one another at a barrier of the grid: its launch overlaps with no other, and several take turns.
Reductions of chunks have enough rows without a barrier: those of different tensors run side by side, and so do the reductions of their results.
"""

from __future__ import annotations

from math import prod

from taskfuse.dtypes import float32
from taskfuse.ir.expr import Reduction
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import Const
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script

SHORTEST = 4096
"""The fewest elements of a row that blocks share."""
FEWEST = 8
"""Of the chunks of a row."""
BLOCKS = 2
"""Of each multiprocessor, at most."""
SIDE_BY_SIDE = 32
"""Rows of a block where neighbors in memory are of different rows."""


def chunk_long_sums(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with chunks for its long reductions of one operand; ``None`` if it has none. Sums of floats then round in another order.

    Args:
        extent: numbers for extents.
    """
    found = [(e.output.name, *chunk) for e in needed(fusion) if isinstance(e, Reduction) and (chunk := _chunk(e.output, e, extent)) is not None]
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for name, axis, length in found:
        script.new(script.fusion.tensor(name), "chunk_reduction", axis, length)
    return script


def _chunk(tv: TensorView, expr: Reduction, extent: Sizes) -> tuple[int, int] | None:
    """The reduced axis that is divided, and the length of its chunks; ``None`` if the reduction is short or has rows enough."""
    if len(expr.operands) > 1 or tv.schedule.transforms or (tv.dtype.is_float and tv.dtype.bits < float32.bits):
        return None
    lengths = {k: a.extent.value for k, a in enumerate(tv.root) if a.is_reduction and isinstance(a.extent, Const)}
    rows = extent.elements(tv)
    most = BLOCKS * extent.target.sms // -(-max(rows, 1) // (1 if tv.root[-1].is_reduction else SIDE_BY_SIDE))
    if most < FEWEST or prod(extent(a.extent) for a in tv.root if a.is_reduction) < SHORTEST:
        return None
    chunks = {k: max(c for c in range(1, most + 1) if n % c == 0) for k, n in lengths.items() if n > 0}
    axis = max(chunks, key=lambda k: chunks[k], default=None)
    return None if axis is None or chunks[axis] < FEWEST else (axis, lengths[axis] // chunks[axis])
