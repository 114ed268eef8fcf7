"""Threads that execute a statement together, of one block or of many, and the values of their symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from taskfuse.check.drawn_launches import drawn_tables
from taskfuse.check.refuted import TooLarge
from taskfuse.check.statement_tree import BLOCK_NAMES, CLUSTER_NAMES, THREAD_NAMES
from taskfuse.check.values.terms import Bools, Ints
from taskfuse.ir.scalar import Const, Expr, compile_expr, evaluate
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import For, Stmt
from taskfuse.target import MAX_THREADS, WARP

Number = int | Ints
MOST = 1 << 16
"""The most threads of a launch."""


class ExecutedLaunch:
    """The threads of a launch, numbered block after block; each block has a multiple of 32 numbers.

    Attributes:
        per: numbers of a block, of which the first ``threads`` are threads.
        clusters: the number of each block's cluster.
    """

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int]) -> None:
        self.symbols: dict[str, int | Ints] = {**symbols, **drawn_tables(kernel, symbols)}
        grid, shape, self.cluster = (tuple(int(evaluate(e, symbols)) for e in dims) for dims in (kernel.grid, kernel.block, kernel.cluster))
        self.blocks, self.threads = prod(grid), prod(shape)
        if not 0 < self.threads <= MAX_THREADS or self.blocks * self.threads > MOST:
            raise TooLarge
        self.per = -(-self.threads // WARP) * WARP
        block, thread = np.divmod(np.arange(self.blocks * self.per), self.per)
        self._fixed: dict[str, Ints] = {}
        for names, number, extents in ((BLOCK_NAMES, block, grid), (THREAD_NAMES, thread, shape)):
            self._fixed |= dict(zip(names, (number % extents[0], number // extents[0] % extents[1], number // (extents[0] * extents[1])), strict=True))
        self._fixed |= {name: self._fixed[b] % n for name, b, n in zip(CLUSTER_NAMES, BLOCK_NAMES, self.cluster, strict=True)}
        self.everybody = np.flatnonzero(thread < self.threads)
        self.grid = grid
        (gx, gy, _), (cx, cy, cz), b = grid, self.cluster, np.arange(self.blocks)
        self.clusters: Ints = b % gx // cx + gx * (b // gx % gy // cy + gy * (b // (gx * gy) // cz))
        self._functions: dict[Expr, tuple[tuple[str, ...], Any]] = {}

    def fixed(self, name: str, ids: Ints) -> Number:
        """A symbol that never changes, of some threads."""
        if name in self.symbols:
            return self.symbols[name]
        found = self._fixed[name][ids]
        return int(found[0]) if len(found) and (found == found[0]).all() else found

    def function(self, e: Expr) -> tuple[tuple[str, ...], Any]:
        """The symbols of an expression, and the expression as a function of them."""
        found = self._functions.get(e)
        if found is None:
            names = tuple(sorted(e.free))
            found = self._functions[e] = names, compile_expr(e, names)
        return found

    def thread(self, number: int) -> str:
        """A thread in words."""
        thread = f"thread {number % self.per}"
        return thread if self.blocks == 1 else f"block {self.block(number // self.per)}, {thread}"

    def block(self, number: int) -> str:
        """A block in words: one index, or those of each type."""
        x, y, _ = self.grid
        return str(number) if number < x or y * self.grid[2] == 1 else f"({number % x}, {number // x % y}, {number // (x * y)})"


@dataclass(slots=True, eq=False)
class ExecutionFrame:
    """A list of statements, and the position of some threads in it.

    Attributes:
        key: distinguishes the lists of one statement (arms of a chain).
        loop: the loop whose body it is.
        splits: whether other threads that entered it are elsewhere.
    """

    body: tuple[Stmt, ...]
    key: int
    role: str
    at: int = 0
    loop: For | None = None
    splits: bool = False


@dataclass(slots=True, eq=False)
class ExecutedLanes:
    """Some threads at one place.

    Attributes:
        ids: their numbers, ascending.
        own: symbols with a value for each thread: loop variables, cursors; numbers, or arrays in the order of ``ids``.
        waits: they have arrived at their statement, and wait.
    """

    launch: ExecutedLaunch
    ids: Ints
    own: dict[str, Number]
    stack: list[ExecutionFrame]
    waits: bool = False
    _fixed: dict[str, Number] = field(default_factory=lambda: dict[str, Number]())
    _values: dict[Expr, Number] = field(default_factory=lambda: dict[Expr, Number]())
    _parts: dict[tuple[int, int], ExecutedLanes] = field(default_factory=lambda: dict[tuple[int, int], ExecutedLanes]())

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def blocks(self) -> Ints:
        """The block of each."""
        return self.ids // self.launch.per

    @property
    def role(self) -> str:
        """Label of the innermost labelled arm."""
        return self.stack[-1].role if self.stack else ""

    @property
    def place(self) -> tuple[int, ...]:
        """Their place: comparable, in the order of the text."""
        return tuple(n for f in self.stack for n in (f.key, f.at))

    @property
    def whole_warps(self) -> bool:
        """True if they are all threads of some warps."""
        n = len(self.ids)
        if n % WARP:
            return False
        rows = self.ids.reshape(-1, WARP)
        return bool(((rows[:, 0] % WARP == 0) & (rows[:, -1] - rows[:, 0] == WARP - 1)).all())

    def symbol(self, name: str) -> Number:
        """The value of a symbol."""
        found = self.own.get(name)
        if found is None:
            found = self._fixed.get(name)
            if found is None:
                found = self._fixed[name] = self.launch.fixed(name, self.ids)
        return found

    def value(self, e: Expr) -> Number:
        """The value of an expression: a number if it is the same for all."""
        if isinstance(e, Const):
            return e.value
        known = self._values.get(e)
        if known is not None:
            return known
        names, function = self.launch.function(e)
        found: Any = function(*[self.symbol(n) for n in names])
        number: Number = int(found) if isinstance(found, int) else np.asarray(found)
        if self.is_fixed(names):
            self._values[e] = number
        return number

    def is_fixed(self, names: Iterable[str]) -> bool:
        """True if the values of symbols never change for these threads."""
        return self.own.keys().isdisjoint(names)

    def values(self, e: Expr) -> Ints:
        """The value of an expression for each."""
        found = self.value(e)
        return np.full(len(self.ids), found, np.int64) if isinstance(found, int) else np.asarray(found, np.int64)

    def holds(self, e: Expr) -> bool | Bools:
        """The threads for which a condition holds, as a mask; a bool if for all or for none."""
        found = self.value(e)
        if isinstance(found, int):
            return bool(found)
        mask = np.asarray(found, np.bool_)
        return True if mask.all() else mask if mask.any() else False

    def some(self, where: Bools | Ints) -> ExecutedLanes:
        """Some of them, at the same place."""
        own = {name: v if isinstance(v, int) else v[where] for name, v in self.own.items()}
        stack = [ExecutionFrame(f.body, f.key, f.role, f.at, f.loop, f.splits) for f in self.stack]
        return ExecutedLanes(self.launch, self.ids[where], own, stack, self.waits)

    def in_iterations(self, var: str, values: Ints) -> ExecutedLanes:
        """Each of them in each of some iterations of a loop, one after another: of what a thread writes at one place, the last one is left."""
        found = self.some(np.repeat(np.arange(len(self.ids)), len(values)))
        found.own[var] = np.tile(values, len(self.ids))
        return found

    def part(self, key: tuple[int, int], where: Bools) -> ExecutedLanes:
        """A subset of these threads: the same object for the same ``key``, with their present state."""
        found = self._parts.get(key)
        if found is None or len(found) != np.count_nonzero(where) or not (found.ids == self.ids[where]).all():
            found = self._parts[key] = self.some(where)
        else:
            found.own = {name: v if isinstance(v, int) else v[where] for name, v in self.own.items()}
        return found

    def joined(self, other: ExecutedLanes) -> ExecutedLanes:
        """The union of two sets of threads at one place."""
        ids = np.concatenate([self.ids, other.ids])
        order = np.argsort(ids)
        own: dict[str, Number] = {}
        for name in self.own.keys() & other.own.keys():
            a, b = self.own[name], other.own[name]
            if isinstance(a, int) and isinstance(b, int) and a == b:
                own[name] = a
            else:
                parts = [np.full(len(x), v, np.int64) if isinstance(v, int) else v for x, v in ((self, a), (other, b))]
                own[name] = np.concatenate(parts)[order]
        for mine, its in zip(self.stack, other.stack, strict=True):
            mine.splits = mine.splits or its.splits
        return ExecutedLanes(self.launch, ids[order], own, self.stack, self.waits)
