"""Which width the integers of a kernel need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from taskfuse.cuda.ranges import INT32, Ranges, cursor_ranges, kernel_ranges
from taskfuse.ir.scalar import ONE
from taskfuse.kir import Kernel, bodies, expressions
from taskfuse.kir.nodes import CursorInit, For, Gather, HostParam, Stmt, TensorParam
from taskfuse.kir.walk import own_symbols


def fits(kernel: Kernel, values: Mapping[str, int]) -> bool:
    """True if for these extents every integer of the kernel fits 32 bits, offsets in row-major tensors included."""
    ranges = kernel_ranges(kernel, values)
    shapes = {p.name: p.shape for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.shape for b in kernel.buffers}
    inside = all(INT32[0] <= ranges.of(p.value)[0] and ranges.of(p.value)[1] <= INT32[1] for p in kernel.params if isinstance(p, HostParam))
    return inside and all(ranges.of(prod(s, start=ONE))[1] <= INT32[1] for s in shapes.values()) and all(_fit(kernel.body, ranges))


def _fit(body: tuple[Stmt, ...], ranges: Ranges) -> Iterator[bool]:
    for stmt in body:
        if isinstance(stmt, CursorInit):
            ranges = ranges.child(cursor_ranges(stmt))
        own = ranges.child({name: ranges.below(extent) for name, extent in own_symbols(stmt).items()}) if isinstance(stmt, Gather) else ranges
        yield all(own.fits(e) for e in expressions(stmt))
        inner = ranges.loop(stmt.var, stmt.start, stmt.stop) if isinstance(stmt, For) else ranges
        for b in bodies(stmt):
            yield from _fit(b, inner)
