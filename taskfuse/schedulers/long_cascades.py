"""Walks of few rows over many keys (split-KV): the keys are split into chunks, which fill the GPU, and a second kernel joins their results.

A walk over the keys occupies one block for some rows. With few rows, as in decoding token by token, most multiprocessors are idle.
Chunks of the keys (:func:`taskfuse.chunk_cascade`), as a batch axis of both products, make more walks, each shorter; their results go through memory once more
(Dao et al., "Flash-Decoding for long-context inference", 2023). The cost model of :mod:`taskfuse.schedulers.attention_cost` decides whether that is faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from taskfuse.errors import ScheduleError, UnsupportedError
from taskfuse.ir.fusion import Fusion
from taskfuse.schedule.cascade_plan import CascadePlans
from taskfuse.schedule.copy import copy_fusion
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers.attention_cost import planned, planned_chunks
from taskfuse.schedulers.attention_math import find
from taskfuse.schedulers.long_products import CACHED, GAIN, MOST_CHUNKS
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segment_ways import RowViews
from taskfuse.schedulers.walks import walks


class KeyChunks(NamedTuple):
    """The best chunks of the keys of a walk.

    Attributes:
        reductions: names of those of the walk.
        n: the number of chunks.
        multiple: divides the length of a chunk.
        us: expected microseconds of both kernels.
    """

    reductions: tuple[str, ...]
    n: int
    multiple: int
    us: float


def chunk_long_cascades(fusion: Fusion, extent: Sizes) -> Script | None:
    """A copy of ``fusion`` with chunks of keys for the walks that gain; ``None`` if none does.

    Args:
        extent: numbers for extents.
    """
    found: list[KeyChunks] = []
    for ways in walks_alone(fusion):
        chunks = [c for walk in ways if (c := chunks_of(walk, extent)) is not None]
        found += [min(chunks, key=lambda c: c.us)] if chunks else []
    if not found:
        return None
    script = Script(copy_fusion(fusion)[0])
    for chunks in found:
        script.chunk_cascade([script.fusion.tensor(name) for name in chunks.reductions], chunks.n, chunks.multiple)
    return script


def walks_alone(fusion: Fusion) -> Iterator[tuple[Fusion, ...]]:
    """Each walk as a fusion of its own: with the views that a kernel may take as arrays of rows, and, if there are some, with the tensors behind them, as
    keys of which a view has the values."""
    parts, rows = Parts(fusion), RowViews(fusion)
    for tensors in walks(fusion):
        views = rows.of(tensors)
        yield tuple(parts.extract(tensors, fusion.name, taken) for taken in ((views, ()) if views else ((),)))


def chunks_of(walk: Fusion, extent: Sizes) -> KeyChunks | None:
    """The best chunks of a fusion that is a walk; ``None`` if it is not a walk, or as fast without them.

    Args:
        extent: numbers for extents of a fusion that it is part of.
    """
    own = Sizes(walk, {name: size for name, size in extent.values.items() if name in walk.dims}, extent.target)
    try:
        found = find(walk)
        whole = planned(walk, found, own)[0].us
        CascadePlans(found.reductions)
    except (UnsupportedError, ScheduleError):
        return None
    target = own.target
    results = own.elements(found.reductions[-1]) * found.reductions[-1].dtype.itemsize

    def joining(n: int) -> float:
        moved = float((n + 1) * results)
        return target.kernel_us(moved / target.l2_bytes_per_us if moved < target.l2_bytes * CACHED else target.dram_us(moved)) - target.overlap_us

    options = planned_chunks(walk, found, range(2, MOST_CHUNKS + 1), own, lambda n: GAIN * whole - joining(n))
    best = min(options, key=lambda n: options[n].us + joining(n), default=None)
    us = math.inf if best is None else options[best].us + joining(best)
    if best is None or us >= GAIN * whole:
        return None
    return KeyChunks(tuple(tv.name for tv in found.reductions), best, options[best].config.chunk, us)
