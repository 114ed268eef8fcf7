"""The layout of a block's Shared memory, and its size: buffers, mbarriers, claimed numbers, offsets of groups."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ZERO, Expr, lookups_of, maximum, simplify
from taskfuse.kir.declarations import CLAIM_BYTES, TensorParam
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.walk import expressions, walk
from taskfuse.target import MBARRIER_BYTES


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """Byte offsets in the block's Shared memory, and its size in bytes."""

    buffers: dict[str, Expr]
    mbarriers: dict[str, Expr]
    queues: dict[str, Expr]
    offsets: dict[str, Expr]
    bytes: Expr


def shared_layout(kernel: Kernel) -> SharedLayout:
    """Buffers at their offsets, the others one after another; then mbarriers, the numbers that the block claims, and the offsets that it computes."""
    placed: dict[str, Expr] = {}
    end: Expr = ZERO
    top: Expr = ZERO
    for b in kernel.buffers:
        if not MEDIA[b.memory].is_placed:
            continue
        offset = _align(end, b.align) if b.offset is None else b.offset
        placed[b.name] = offset
        end = simplify(offset + b.bytes_of_block)
        top = _max(top, end)
    barriers: dict[str, Expr] = {}
    if kernel.mbarriers:
        top = _align(top, MBARRIER_BYTES)
        for m in kernel.mbarriers:
            barriers[m.name] = top
            top = simplify(top + MBARRIER_BYTES * m.slots)
    queues: dict[str, Expr] = {}
    for q in kernel.queues:
        queues[q.name] = top = _align(top, CLAIM_BYTES)
        top = simplify(top + CLAIM_BYTES * (q.size + 1))  # all numbers, and that there are no more
    offsets: dict[str, Expr] = {}
    for p in summed_up(kernel):
        offsets[p.name] = top = _align(top, p.dtype.itemsize)
        top = simplify(top + p.dtype.itemsize * p.shape[0])
    return SharedLayout(placed, barriers, queues, offsets, top)


def summed_up(kernel: Kernel) -> tuple[TensorParam, ...]:
    """The tables of offsets that each block computes from lengths before anything else, since its statements read them."""
    given = [o for p in kernel.table_inputs if (o := p.offsets) is not None]
    read = {found.tensor.name for s in walk(kernel) for e in expressions(s) for found in lookups_of(e)} if given else set[str]()
    return tuple(o for o in given if o.name in read)


def _max(a: Expr, b: Expr) -> Expr:
    return simplify(maximum(a, b))


def _align(e: Expr, k: int) -> Expr:
    return simplify((e + (k - 1)) // k * k)
