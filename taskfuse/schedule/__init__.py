"""Scheduling: each module holds the calls of its name; this one plugs them into the methods of TensorView, AxisRef and Fusion.

Every call checks the schedule that it would make before it changes anything, and raises ScheduleError otherwise.
"""

from taskfuse.ir.calls import bind_scheduling
from taskfuse.schedule import (
    caching,
    chunk,
    chunk_product,
    chunk_reduction,
    clamp_read,
    cut_reduction,
    drop_axes,
    gather_as_sum,
    inlining,
    memory,
    pack_factors,
    pipeline,
    propagate,
    recompute,
    rfactor,
    scatter,
    search,
    split_fold,
    split_reduction,
    through_view,
    tile_shifts,
    tile_windows,
    transforms,
    unroll_reduction,
    unscatter,
)
from taskfuse.schedule import parallelize as binding


class _Calls:
    """Implements :class:`taskfuse.ir.calls.SchedulingCalls`."""

    split = staticmethod(transforms.split)
    merge = staticmethod(transforms.merge)
    reorder = staticmethod(transforms.reorder)
    swizzle = staticmethod(transforms.swizzle)
    rasterize = staticmethod(transforms.rasterize)
    parallelize = staticmethod(binding.parallelize)
    inline_at = staticmethod(inlining.inline_at)
    inline_together = staticmethod(inlining.inline_together)
    inline_most = staticmethod(inlining.inline_most)
    cache_after = staticmethod(caching.cache_after)
    cache_before = staticmethod(caching.cache_before)
    cache_fork = staticmethod(caching.cache_fork)
    duplicate = staticmethod(caching.duplicate)
    rfactor = staticmethod(rfactor.rfactor)
    chunk_product = staticmethod(chunk_product.chunk_product)
    chunk_reduction = staticmethod(chunk_reduction.chunk_reduction)
    cut_reduction = staticmethod(cut_reduction.cut_reduction)
    pack_factors = staticmethod(pack_factors.pack_factors)
    split_reduction = staticmethod(split_reduction.split_reduction)
    gather_as_sum = staticmethod(gather_as_sum.gather_as_sum)
    drop_axes = staticmethod(drop_axes.drop_axes)
    unroll_reduction = staticmethod(unroll_reduction.unroll_reduction)
    chunk_scan = staticmethod(chunk.chunk_scan)
    split_fold = staticmethod(split_fold.split_fold)
    tile_shifts = staticmethod(tile_shifts.tile_shifts)
    clamp_read = staticmethod(clamp_read.clamp_read)
    tile_windows = staticmethod(tile_windows.tile_windows)
    through_view = staticmethod(through_view.through_view)
    recompute = staticmethod(recompute.recompute)
    scatter = staticmethod(scatter.scatter)
    search_by = staticmethod(search.search_by)
    unscatter = staticmethod(unscatter.unscatter)
    set_memory_type = staticmethod(memory.set_memory_type)
    set_allocation_domain = staticmethod(memory.set_allocation_domain)
    set_atom = staticmethod(binding.set_atom)
    circular_buffer = staticmethod(memory.circular_buffer)
    in_flight = staticmethod(memory.in_flight)
    pipeline_stage = staticmethod(pipeline.pipeline_stage)
    take_turns = staticmethod(pipeline.take_turns)
    fragment = staticmethod(binding.fragment)
    propagate = staticmethod(propagate.propagate)


bind_scheduling(_Calls())
