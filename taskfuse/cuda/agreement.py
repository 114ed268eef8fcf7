"""Conditions of branches with products that a warp reads from its first lane.

ptxas runs wgmmas one by one if they stand in a branch that it takes for divergent. A condition that comes from one lane is none. The text has this form
where all threads of each warp come to the branch together and have one value of each of its conditions; elsewhere a lane would wait for others that never
come, or follow them into an arm that is not its own.
"""

from __future__ import annotations

import numpy as np

from taskfuse.cuda.guarded_batches import guards_of_batches
from taskfuse.ir.scalar import Const, Expr, children, evaluate
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.kir import Kernel, bodies, walk
from taskfuse.kir.nodes import Branch, For, If, Stmt
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Cursor, WgmmaFence
from taskfuse.target import MAX_THREADS, WARP

THREADS = tuple(p.index_name for p in THREAD_TYPES)


def asked_of_a_lane(kernel: Kernel) -> frozenset[int]:
    """The branches of a kernel whose conditions are read from the first lane of each warp, by ``id``: none of those that are asked once for a batch."""
    found: set[int] = set()
    if any(isinstance(s, Wgmma) for s in walk(kernel)):
        _Warps(kernel).visit(kernel.body, True, found)
    return frozenset(found) - guards_of_batches(kernel)


def multiplies_alone(branch: Branch) -> bool:
    """True if wgmmas of a batch that begins elsewhere stand in a branch that some threads take."""
    if branch.cond.free.isdisjoint(THREADS):
        return False
    inside = [type(s) for s in walk(branch.body)]
    return Wgmma in inside and WgmmaFence not in inside


class _Warps:
    """Questions about the threads of each warp of a block; unknown if an extent of it is a symbol."""

    def __init__(self, kernel: Kernel) -> None:
        shape = [e.value for e in kernel.block if isinstance(e, Const)]
        self._threads: dict[str, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        if len(shape) == len(THREADS) and shape[0] * shape[1] * shape[2] <= MAX_THREADS:
            linear = np.arange(shape[0] * shape[1] * shape[2], dtype=np.int64)
            parts = linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])
            self._threads = dict(zip(THREADS, parts, strict=True))
        self._known: dict[Expr, bool] = {}

    def visit(self, body: tuple[Stmt, ...], whole: bool, found: set[int]) -> None:
        """Add the branches of a body. ``whole``: all threads of each warp come here together, or none."""
        for s in body:
            match s:
                case If(branches=branches):
                    if whole and any(map(multiplies_alone, branches)) and all(self._agree(b.cond) for b in branches):
                        found.add(id(s))
                    inside = whole
                    for b in branches:
                        inside = inside and self._agree(b.cond)
                        self.visit(b.body, inside, found)
                case For(start=start, stop=stop, step=step, body=inner):
                    self.visit(inner, whole and all(map(self._agree, (start, stop, step))), found)
                case _:
                    for inner in bodies(s):
                        self.visit(inner, whole, found)

    def _agree(self, e: Expr) -> bool:
        """True only if an expression has one value for all threads of each warp; its other symbols have, but for cursors, which are a thread's own."""
        known = self._known.get(e)
        if known is None:
            known = self._known[e] = self._found(e)
        return known

    def _found(self, e: Expr) -> bool:
        if e.free.isdisjoint(THREADS):
            return not any(Cursor.of(name) for name in e.free)
        if not e.free <= self._threads.keys():
            parts = children(e)
            return bool(parts) and all(map(self._agree, parts))
        try:
            values = np.asarray(evaluate(e, self._threads))
        except (ZeroDivisionError, IndexError):
            return False
        return bool((values == values[np.arange(len(values)) // WARP * WARP]).all())
