"""Work queues: how the proof models a loop over claimed numbers.

Which block claims which number depends on timing. But at the end each number has been claimed by one block, and all threads of a block have gone through
the block's numbers in rising order. So a launch is one of the kernel in which a table says who owns each number, and every block goes through all numbers::

    FOR w in 0..T:
      IF blockIdx.x == clamp(q[w of T], 0, blocks - 1):
        body

A statement proved for any content of the table holds of every launch. *Termination*: a claim waits only for the claiming thread of its own block, which does
not wait. If a launch were stuck with some numbers unclaimed, the kernel with any table that agrees on the claimed ones would be stuck at the same place.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.dtypes import int32
from taskfuse.ir.scalar import element, eq, sym
from taskfuse.ir.types import BLOCK_TYPES
from taskfuse.kir import Kernel, map_stmts
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import Branch, For, If, Stmt


def owned(kernel: Kernel) -> Kernel:
    """The kernel with a table of owners in place of each queue; the same object if it has no queue."""
    if not kernel.queues:
        return kernel
    sizes = {q.name: q.size for q in kernel.queues}

    def written(s: Stmt) -> Stmt:
        if not isinstance(s, For) or s.queue is None:
            return s
        owner = element(sym(s.queue), sym(s.var), sizes[s.queue], 0, kernel.grid[0] - 1)
        mine = If((Branch(eq(sym(BLOCK_TYPES[0].index_name), owner), s.body),), location=s.location)
        return replace(s, body=(mine,), queue=None)

    tables = tuple(TensorParam(name, int32, (size,), False) for name, size in sizes.items())
    return replace(kernel, params=(*tables, *kernel.params), body=map_stmts(kernel.body, written), queues=())
