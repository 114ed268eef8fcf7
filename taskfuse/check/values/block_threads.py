"""The threads of a block whose joins are followed, one by one: all of them, also where extents of the block are symbolic.

A thread index of symbolic extent is followed in one of two ways. If every workspace has it as an axis of its own, threads that differ in it never meet
there: it is one unknown number (*fixed*). Otherwise it takes as many values as a block can have threads (*open*, one index at most), and every step is
followed for the largest block. What holds of that block holds of smaller ones if a step that a smaller one leaves out changes nothing there
(:mod:`taskfuse.check.values.cross_thread_reductions`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.flags import ones, spread
from taskfuse.check.statement_tree import THREAD_NAMES, Node
from taskfuse.check.values.solve import Open
from taskfuse.check.values.written import BufferStorage
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Compare, CompareOp, Const, Expr, Sym, conjuncts, evaluate
from taskfuse.kir import Kernel
from taskfuse.target import MAX_BLOCK, MAX_THREADS, WARP

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BlockThreads:
    """The threads that are followed.

    Attributes:
        index: followed thread indices of each.
        fixed: the thread indices that are one unknown number.
        along: the open thread index; ``""``: none.
        extent: number of values of the open index.
        is_whole_warps: whether each 32 consecutive threads are the lanes of a warp.
    """

    index: Mapping[str, Ints]
    fixed: frozenset[str]
    along: str
    extent: Expr
    is_whole_warps: bool
    _values: dict[Expr, Ints] = field(default_factory=dict[Expr, Ints], init=False, repr=False)

    @classmethod
    def of(cls, kernel: Kernel, joins: Iterable[Node], storages: Mapping[str, BufferStorage]) -> BlockThreads:
        """The threads of a kernel's blocks, for the statements that join a reduction. Raises :class:`Open`."""
        joins = tuple(joins)
        symbolic = {n: e for n, e in zip(THREAD_NAMES, kernel.block, strict=True) if not isinstance(e, Const)}
        fixed = frozenset(n for n in symbolic if _keeps_apart(n, joins, storages))
        left = [n for n in symbolic if n not in fixed]
        if len(left) > 1:
            raise Open("several extents of the block are not constant", joins[0])
        shape = [e.value if isinstance(e, Const) else 1 for e in kernel.block]
        lower = 1  # threads of each value of the indices that are not constants
        whole = True
        for name, n in zip(THREAD_NAMES, shape, strict=True):
            whole = whole and (name not in symbolic or lower % WARP == 0)
            lower *= n
        if left:
            k = THREAD_NAMES.index(left[0])
            shape[k] = max(1, min(MAX_BLOCK[k], MAX_THREADS // max(1, lower)))
        count = shape[0] * shape[1] * shape[2]
        linear = np.arange(count, dtype=np.int64)
        parts = linear % shape[0], linear // shape[0] % shape[1], linear // (shape[0] * shape[1])
        index = {n: part for n, part in zip(THREAD_NAMES, parts, strict=True) if n not in fixed}
        extent = symbolic[left[0]] if left else kernel.block[0]
        return cls(index, fixed, left[0] if left else "", extent, whole and count % WARP == 0)

    @property
    def count(self) -> int:
        """The number of followed threads."""
        return len(next(iter(self.index.values()))) if self.index else 1

    def says(self, e: Expr) -> bool:
        """True if an expression depends only on followed indices."""
        return e.free <= self.index.keys()

    def values(self, e: Expr) -> Ints:
        """Such an expression, of each thread."""
        found = self._values.get(e)
        if found is None:
            found = self._values[e] = spread(np.asarray(evaluate(e, self.index), np.int64), self.count)
        return found

    def chosen(self, conditions: Iterable[Expr]) -> Bools:
        """The threads selected by those of the conditions that depend on nothing else."""
        found = ones(self.count)
        for c in conditions:
            for part in conjuncts(c):
                if self.says(part):
                    found &= self.values(part).astype(np.bool_)
        return found

    def needed(self, condition: Expr) -> Ints | None:
        """For a condition ``e < extent`` that a thread of the open index exists: ``e`` of each thread. ``None`` for other conditions."""
        match condition:
            case Compare(op=CompareOp.LT, a=a, b=b) if self.along and b is self.extent and self.says(a):
                return self.values(a)
            case _:
                return None


def _keeps_apart(name: str, joins: Iterable[Node], storages: Mapping[str, BufferStorage]) -> bool:
    """True if a thread index is an axis of its own, the same one, of every place in memory that threads share, and chooses no step."""
    axes: dict[str, set[int]] = {}
    for node in joins:
        for side in node.accesses:
            for a in side:
                mine = {k for k, e in enumerate(a.index) if name in e.free}
                if MEDIA[storages[a.buffer].memory].is_private:
                    if mine:
                        return False
                    continue
                own = {k for k in mine if isinstance(a.index[k], Sym)}
                if len(own) != 1 or own != mine or axes.setdefault(a.buffer, own) != own:
                    return False
    return True
