"""Values of expressions for the threads of one block of a launch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.defined import Demand, demands
from taskfuse.check.drawn_launches import drawn_tables
from taskfuse.check.refuted import Refuted, TooLarge
from taskfuse.check.statement_tree import BLOCK_NAMES, CLUSTER_NAMES, THREAD_NAMES
from taskfuse.ir.scalar import Const, Expr, compile_expr, evaluate
from taskfuse.kir import Kernel
from taskfuse.target import MAX_THREADS

Ints = NDArray[np.int64]


class ThreadValues:
    """The symbols of one block, thread by thread.

    Attributes:
        threads: their number.
        env: symbols: one value for all threads, or one for each.
        role: label of the innermost labelled arm.
    """

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], block: tuple[int, int, int]) -> None:
        self.role = ""
        shape = [int(evaluate(e, symbols)) for e in kernel.block]
        self.threads = shape[0] * shape[1] * shape[2]
        if not 0 < self.threads <= MAX_THREADS:
            raise TooLarge
        ids = np.arange(self.threads)
        self.env: dict[str, int | Ints] = dict(symbols)
        self.env |= dict(zip(BLOCK_NAMES, block, strict=True))
        self.env |= {name: b % int(evaluate(c, symbols)) for name, b, c in zip(CLUSTER_NAMES, block, kernel.cluster, strict=True)}
        self.env |= {THREAD_NAMES[0]: ids % shape[0], THREAD_NAMES[1]: ids // shape[0] % shape[1], THREAD_NAMES[2]: ids // (shape[0] * shape[1])}
        self._tables = drawn_tables(kernel, symbols)

    def of(self, e: Expr, ids: Ints) -> Ints:
        """The value of an expression, for some threads. Raises :class:`Refuted` if it has none."""
        if isinstance(e, Const):
            return np.full(len(ids), e.value, np.int64)
        for d in demands(e):
            self.demand(d, ids)
        names = sorted(e.free)
        given = (self._tables[n] if n in self._tables else self._own(self.env[n], ids) for n in names)
        found: Any = compile_expr(e, names)(*given)
        return np.full(len(ids), int(found), np.int64) if np.ndim(found) == 0 else np.asarray(found, np.int64)

    def demand(self, d: Demand, ids: Ints) -> None:
        """Raises :class:`Refuted` if a demand fails for a thread."""
        for c in d.conditions:
            ids = ids[self.of(c, ids).astype(np.bool_)]
        if not len(ids):
            return
        values = self.of(d.value, ids)
        bad = values < d.low
        if d.high is not None:
            bad |= values > (self.of(d.high, ids) if isinstance(d.high, Expr) else d.high)
        if bad.any():
            k = int(np.argmax(bad))
            raise Refuted(d.kind, f"{d.what} {d.value} is {values[k]}, and must be {d.bound}", f"thread {ids[k]}" + (f" in {self.role}" if self.role else ""))

    @staticmethod
    def _own(value: int | Ints, ids: Ints) -> int | Ints:
        return value if isinstance(value, int) else value[ids]

    def state(self, name: str) -> Ints:
        """A part of a cursor, per thread."""
        found = self.env.setdefault(name, np.zeros(self.threads, np.int64))
        assert not isinstance(found, int)
        return found
