"""Loading tiles of an operand into the ring: by the copy engine, or by the threads of the loading role.

The copy engine (TMA) needs rows that are multiples of 16 bytes. Other rows are copied by threads, in the widest pieces that start at
multiples of their own size in every row: 8 or 4 bytes by ``cp.async``, one element of 2 bytes by a load and a store. All of them write zeros
past the end of the tensor, which add nothing to a sum. A thread waits for its copies of a slot before it arrives at ``full``: wgmma
reads the slot through the asynchronous proxy, so a fence must follow the copies.
"""

from __future__ import annotations

from math import ceil, gcd

from taskfuse.ir import atoms
from taskfuse.ir.scalar import Expr, Facts, is_multiple
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedulers.script import Recorded
from taskfuse.target import TMA_AXES, TMA_BYTES, Target

LOADING_THREADS = 128
TOGETHER = 16
"""Loads that a thread has in flight before it stores their values."""


def copy_bytes(tv: TensorView, facts: Facts) -> int:
    """Bytes of one access that copies ``tv``: the most that ``cp.async`` takes and its rows are provably multiples of, or one element."""
    row: Expr = tv.shape[-1] * tv.dtype.itemsize
    sizes = (size for size in (TMA_BYTES, 8, atoms.CP_ASYNC.min_bytes) if size > tv.dtype.itemsize and is_multiple(row, size, facts))
    return next(sizes, tv.dtype.itemsize)


def is_bulk(tv: TensorView, facts: Facts) -> bool:
    """True if the copy engine can read ``tv``."""
    return copy_bytes(tv, facts) == TMA_BYTES and tv.ndim <= TMA_AXES


def by_threads(call: Recorded, size: int, itemsize: int) -> None:
    """Spread the copy of a tile, the last two loop axes, over the threads of the loading role: neighbors along a row first.

    Args:
        size: bytes of one access.
    """
    elements = size // itemsize
    if elements > 1:
        call.split(-1, elements).merge(-3).split(-2, LOADING_THREADS)
        call.bind(-2, P.TIDx)
        call.set_atom(atoms.CP_ASYNC, (-1,))
        return
    call.merge(-2).split(-1, LOADING_THREADS)
    call.split(-2, gcd(int(str(call.tensor.loop[-2].extent)), TOGETHER))
    call.bind(-2, P.Unroll)
    call.bind(-1, P.TIDx)


def copy_cycles(tiles: tuple[int, int], access: tuple[int, int], itemsize: int, target: Target) -> float:
    """Cycles that the threads of the loading role take for a slot: nothing of the next slot is in flight while they wait.

    Args:
        tiles: bytes of each operand's tile.
        access: bytes of one access to each; 0: the copy engine brings it.
    """
    accesses = [tile // size // LOADING_THREADS if size else 0 for tile, size in zip(tiles, access, strict=True)]
    rounds = sum(ceil(n / TOGETHER) for n, size in zip(accesses, access, strict=True) if size == itemsize)
    latency, issued = target.products.copy_latency_cycles, target.products.access_cycles * sum(accesses)
    return latency * rounds + issued if rounds else max(latency, issued)  # asynchronous copies overlap their latency with each other


def told(tv: TensorView, facts: Facts) -> str:
    """A note on how threads load ``tv``, and which facts would help; empty if the copy engine loads it."""
    if is_bulk(tv, facts):
        return ""
    size = copy_bytes(tv, facts)
    if size == TMA_BYTES:
        return f"{tv!r}: copied by threads, {size} bytes at once: the copy engine takes {TMA_AXES} axes at most"
    unit = TMA_BYTES // tv.dtype.itemsize
    return f"{tv!r}: copied by threads, {size} bytes at once: for bulk copies declare rows of multiples of {TMA_BYTES} bytes, tf.dim(..., multiple_of={unit})"
