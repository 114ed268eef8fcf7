"""Walks of few rows over many keys (split-KV): the keys are split into chunks, which fill the GPU, and a second kernel joins their results.

A walk over the keys occupies one block for some rows. Where there are few, as while a model writes its answer token by token, most multiprocessors have none.
Chunks of the keys (:func:`taskfuse.chunk_cascade`), as a batch axis of both products, make more walks, each shorter; their results go through memory once more
(Dao et al., "Flash-Decoding for long-context inference", 2023). The cost model of :mod:`taskfuse.schedulers.attention_cost` decides whether that is faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from taskfuse.errors import ScheduleError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.tensor import TensorView
from taskfuse.schedule.cascade_plan import CascadePlans
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.attention import find
from taskfuse.schedulers.attention_cost import planned, planned_chunks
from taskfuse.schedulers.long_products import CACHED, GAIN, MOST_CHUNKS
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.walks import walks


def chunk_long_cascades(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with chunks of keys for the walks that gain; ``None`` if none does.

    Args:
        extent: numbers for extents.
    """
    script: Script | None = None
    for names, n, length in _found(fusion, extent):
        script = script or Script(copy_fusion(fusion)[0])
        try:
            script.chunk_cascade([script.fusion.tensor(name) for name in names], n, length)
        except ScheduleError:  # another walk has changed what it reads
            continue
    return script if script is not None and script.lines else None


def _found(fusion: Fusion, extent: Sizes) -> Iterator[tuple[list[str], int, int]]:
    """The reductions of each walk that gains, how many chunks it gains by, and a multiple of their lengths."""
    for tensors in walks(fusion):
        found = _best(fusion, tensors, extent)
        if found is not None:
            yield found


def _best(fusion: Fusion, tensors: Sequence[TensorView], extent: Sizes) -> tuple[list[str], int, int] | None:
    """The best number of chunks of the walk that computes some tensors; ``None`` if it is none, or fastest as one."""
    part = Parts(fusion).extract(tensors, fusion.name)
    own = Sizes(part, {name: size for name, size in extent.values.items() if name in part.dims}, extent.target)
    try:
        walk = find(part)
        whole = planned(part, walk, own)[0].us
        CascadePlans(walk.reductions)
    except (UnsupportedError, ScheduleError):
        return None
    target = extent.target
    results = own.elements(walk.reductions[-1])

    options = planned_chunks(part, walk, range(2, MOST_CHUNKS + 1), own)

    def both(n: int) -> float:
        moved = float((n + 1) * results * walk.reductions[-1].dtype.itemsize)
        joins = target.kernel_us(moved / target.l2_bytes_per_us if moved < target.l2_bytes * CACHED else target.dram_us(moved))
        return options[n].us - target.overlap_us + joins

    best = min(options, key=both, default=None)
    if best is None or both(best) >= GAIN * whole:
        return None
    return [tv.name for tv in walk.reductions], best, options[best].config.chunk
