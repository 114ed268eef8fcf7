"""Gathers: whether the lanes of a warp read at indices of their own, and how many of them a thread waits for one after another."""

from __future__ import annotations

from math import prod

from taskfuse.ir.axes import iteration_symbol
from taskfuse.ir.expr import Gather, MathExpr
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, storage_reads
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import WARP


def is_scattered(fusion: Fusion, expr: MathExpr) -> bool:
    """True if neighbors along the last axis of a gather have indices of their own."""
    if not isinstance(expr, Gather) or not expr.output.root:
        return False
    last = iteration_symbol(len(expr.output.root) - 1)
    return any(last.free & e.free for read in storage_reads(fusion, expr)[1:] for e in read.index)


def waited(fusion: Fusion, extent: Sizes) -> float:
    """The most gathers that a thread waits for one after another, as each step of a bisection reads where the one before says; of lanes that have indices of
    their own, for each wave of as many threads as a GPU holds.

    A merge of two rows of 256 takes 3.6 us for 131072 elements, in 9 such steps, and 27.7 us for two million (H200).
    """
    held = extent.target.sms * extent.target.limits.warps * WARP
    behind: dict[TensorView, int] = {}
    most = 0.0
    for expr in needed(fusion):
        tv = expr.output
        behind[tv] = isinstance(expr, Gather) + max((behind.get(read.tensor, 0) for read in storage_reads(fusion, expr)), default=0)
        waves = prod(extent(a.extent) for a in tv.root) / held if is_scattered(fusion, expr) else 1.0
        most = max(most, behind[tv] * max(1.0, waves))
    return most
