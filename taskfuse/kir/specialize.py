"""A kernel at given extents: every expression is one over constants and indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from taskfuse.errors import InputError
from taskfuse.ir.scalar import Expr, const, substitute
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Dim3, HostParam, TensorParam
from taskfuse.kir.walk import map_definition, map_expressions, map_stmts


def specialized(kernel: Kernel, extents: Mapping[str, int]) -> Kernel:
    """``kernel`` with its extents, and the host parameters, replaced by their values.

    Args:
        extents: a value for every extent of the kernel; other names do not count.

    Raises:
        InputError: an extent has no value, or one that breaks what the kernel declares of it.
        ZeroDivisionError, IndexError: an expression has no value at these extents.
    """
    values: dict[str, Expr] = {}
    for e in kernel.extents:
        size = extents.get(e.name)
        if size is None or not e.admits(size):
            reason = f"extent {e.name} is not given" if size is None else f"{size} is no value of extent {e.name}"
            raise InputError(index=0, fusion=kernel.name, reason=reason)
        values[e.name] = const(size)
    for p in kernel.params:
        if isinstance(p, HostParam):
            values[p.name] = substitute(p.value, values)

    def at(e: Expr) -> Expr:
        return substitute(e, values) if e.free else e

    def shape(extents: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(at, extents))

    return replace(
        kernel,
        extents=(),
        params=tuple(replace(p, shape=shape(p.shape)) if isinstance(p, TensorParam) else p for p in kernel.params if not isinstance(p, HostParam)),
        grid=cast("Dim3", shape(kernel.grid)),
        block=cast("Dim3", shape(kernel.block)),
        cluster=cast("Dim3", shape(kernel.cluster)),
        buffers=tuple(replace(b, shape=shape(b.shape), offset=None if b.offset is None else at(b.offset)) for b in kernel.buffers),
        semaphores=tuple(replace(s, shape=shape(s.shape), count=at(s.count)) for s in kernel.semaphores),
        body=map_stmts(kernel.body, lambda s: map_expressions(s, at)),
        definitions=tuple(map_definition(d, at) for d in kernel.definitions),
    )
