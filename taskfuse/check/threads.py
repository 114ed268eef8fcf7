"""Sets of threads: those that satisfy the conditions around a statement, their number, their warps.

Blocks of constant extents are enumerated. With symbolic extents a set is a box: intervals on the axes with symbols, an enumeration of the
others together. Linear thread id = x + Dx*(y + Dy*z); a warp is 32 consecutive ids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import all_of, any_of, greatest, numbers_of, ones, spread
from taskfuse.check.index_bounds import bounds_of, box_count, effective_extents, value_of
from taskfuse.check.masks import Mask
from taskfuse.check.statement_tree import BLOCK_NAMES, THREAD_NAMES, THREADS, Conditions, Context, StatementTree, linear_thread
from taskfuse.check.tables import distinct
from taskfuse.ir.scalar import (
    ONE,
    ZERO,
    Const,
    Expr,
    children,
    const,
    evaluate,
    ge,
    is_multiple,
    prove,
    simplify,
    sym,
)
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True)
class SplitConditions:
    """Conditions by their dependencies.

    Attributes:
        threads: they depend on the thread and on nothing that changes during the launch: they select participants.
        uniform: they depend on no thread index: all threads of a block agree.
        varying: they depend on the thread and on loop variables, cursors or the block.
    """

    threads: Conditions
    uniform: Conditions
    varying: Conditions


class Threads:
    """Questions about the threads of one kernel's blocks."""

    def __init__(self, tree: StatementTree) -> None:
        kernel = tree.kernel
        self.extents = dict(zip(THREAD_NAMES, kernel.block, strict=True))
        self.grid = dict(zip(BLOCK_NAMES, kernel.grid, strict=True))
        self.context = tree.root.context
        x, y, _ = kernel.block
        self.strides: dict[str, Expr] = {THREAD_NAMES[0]: const(1), THREAD_NAMES[1]: x, THREAD_NAMES[2]: x * y}
        self.single = frozenset(n for n, e in (*self.extents.items(), *self.grid.items()) if isinstance(e, Const) and e.value == 1)
        self.launch = frozenset(e.name for e in kernel.extents) | {p.name for p in kernel.params}
        self._splits: dict[Conditions, SplitConditions] = {}
        self._counts: dict[Conditions, Expr | None] = {}
        self._implied: dict[tuple[Conditions, Conditions, Constraints | None], bool] = {}
        self._equations: dict[tuple[str, Conditions], tuple[Expr, ...]] = {}
        self._masks = tree.masks
        self.shape = self._masks.shape
        self._env, self._warps = self._masks.values, self._masks.warps

    @cached_property
    def outer(self) -> frozenset[str]:
        """The axes on whose strides warps begin anew."""
        return self.alike(WARP)

    @cached_property
    def warp(self) -> Expr:
        """The number of a thread's warp in its block."""
        return simplify(linear_thread(self.context.kernel) // WARP, self.context.facts)

    # -- conditions -----------------------------------------------------------------------------------------------------------------

    def split(self, conditions: Conditions) -> SplitConditions:
        """The conditions by their dependencies."""
        found = self._splits.get(conditions)
        if found is None:
            threads = tuple(c for c in conditions if not c.free.isdisjoint(THREADS) and c.free <= THREADS | self.launch)
            uniform = tuple(c for c in conditions if c.free.isdisjoint(THREADS))
            varying = tuple(c for c in conditions if c not in threads and c not in uniform)
            found = self._splits[conditions] = SplitConditions(threads, uniform, varying)
        return found

    def alike(self, size: int) -> frozenset[str]:
        """Thread indices that have one value in each group of ``size`` consecutive threads: a warp, a warpgroup."""
        return frozenset(n for n in THREAD_NAMES if is_multiple(self.strides[n], size, self.context.facts))

    def mask(self, conditions: Iterable[Expr]) -> Mask | None:
        """The threads that satisfy conditions on thread indices; ``None`` if this depends on more than constants."""
        return self._masks.of(conditions)

    def values(self, e: Expr) -> NDArray[np.int64] | None:
        """An expression per thread; ``None`` if it depends on more than constants."""
        if self.shape is None or not e.free <= THREADS:
            return None
        return spread(np.asarray(evaluate(e, self._env), dtype=np.int64), self._warps.size)

    # -- sets -----------------------------------------------------------------------------------------------------------------------

    def count(self, conditions: Conditions) -> Expr | None:
        """The number of threads that satisfy conditions on thread indices; ``None``: unknown."""
        key = tuple(sorted(set(conditions), key=lambda c: c.key))
        if key not in self._counts:
            mask = self.mask(key)
            self._counts[key] = const(int(mask.sum())) if mask is not None else box_count(key, self.extents, THREAD_NAMES, self.context)
        return self._counts[key]

    def everyone(self, conditions: Conditions) -> bool:
        """True only if all threads of a block satisfy conditions on thread indices."""
        mask = self.mask(conditions)
        if mask is not None:
            return all_of(mask)
        return all(self.context.ranges.implies(c) or prove(c, self.context.facts) for c in conditions)

    def same(self, a: Conditions, b: Conditions) -> bool:
        """True only if two conditions on thread indices select the same threads."""
        if set(a) == set(b):
            return True
        one, two = self.mask(a), self.mask(b)
        if one is not None and two is not None:
            return all_of(one == two)
        return self.implies(a, b) and self.implies(b, a)

    def implies(self, a: Conditions, b: Conditions, context: Context | None = None) -> bool:
        """True only if threads that satisfy ``a`` (in a context, if given) satisfy ``b``."""
        missing = tuple([c for c in b if c not in a])
        if not missing:
            return True
        key = a, missing, None if context is None else context.constraints
        found = self._implied.get(key)
        if found is None:
            found = self._implied[key] = self._implies(a, missing, context)
        return found

    def _implies(self, a: Conditions, missing: Conditions, context: Context | None) -> bool:
        selected = self.split(a).threads
        one, two = self.mask(selected), self.mask(missing)
        if one is not None and two is not None:
            if not any_of(one & ~two):
                return True
            if context is None or all(c in selected or c.free.isdisjoint(THREADS) for c in context.constraints.assumptions):
                return False  # nothing else is known of a thread
        known = self.context.constraints.given(*a) if context is None else context.constraints
        return all(known.ranges.implies(c) or known.proves(c) for c in missing)

    def disjoint(self, a: Conditions, b: Conditions) -> bool:
        """True only if no thread satisfies both."""
        mask = self.mask((*a, *b))
        return mask is not None and not any_of(mask)

    # -- warps ----------------------------------------------------------------------------------------------------------------------

    def _warp_masks(self, *sets: Conditions) -> tuple[NDArray[np.int64], list[Mask]] | None:
        """Warp numbers and masks of sets over the threads that differ within warps; ``None``: unknown."""
        masks = [self.mask(s) for s in sets]
        if self.shape is not None and all(m is not None for m in masks):
            return self._warps, [m for m in masks if m is not None]
        names = [n for n in THREAD_NAMES if n not in self.outer and self.extents[n] is not const(1)]  # the axes within one warp
        shared = set(sets[0]).intersection(*sets[1:])
        extents = effective_extents(tuple(shared), self.extents, self.context)
        if not all(isinstance(extents[n], Const) and isinstance(self.strides[n], Const) for n in names):
            return None
        grid = np.meshgrid(*(np.arange(value_of(extents[n])) for n in names), indexing="ij") if names else [np.zeros(1, np.int64)]
        env = {n: g.reshape(-1) for n, g in zip(names, grid, strict=bool(names))}
        linear = sum((value_of(self.strides[n]) * env[n] for n in names), start=np.zeros(grid[0].size, np.int64))
        inner = set(names)
        found: list[Mask] = []
        for s in sets:
            mask = ones(grid[0].size)
            for c in s:
                if c.free <= inner:
                    mask = mask & np.asarray(evaluate(c, env), np.bool_)
                elif c not in shared or not c.free.isdisjoint(inner):
                    return None  # what warps there are depends on the outer axes alike in all sets, or this says nothing
            found.append(mask)
        return linear // WARP, found

    def whole_warps(self, conditions: Conditions) -> bool:
        """True only if the threads are whole warps of 32."""
        found = self._warp_masks(conditions)
        if found is None:
            return False
        warps, (mask,) = found
        return _all_or_none(warps[mask], WARP)

    def complete_warps(self, conditions: Conditions) -> bool:
        """True only if the threads are all existing threads of some warps: the last warp of a block may have fewer than 32."""
        mask = self.mask(conditions)
        if mask is None:
            return self.everyone(conditions) or self.whole_warps(conditions)
        return not any_of(_among(self._warps[~mask], self._warps[mask]))

    def whole_groups(self, conditions: Conditions, size: int) -> bool:
        """True only if the threads are whole groups of ``size`` consecutive ids; only for constant blocks."""
        mask = self.mask(conditions)
        if mask is None:
            return False
        return _all_or_none(numbers_of(mask) // size, size)

    def by_groups(self, conditions: Conditions, size: int, among: Conditions) -> bool:
        """True only if, of each group of ``size`` consecutive ids, all threads of ``among`` satisfy the conditions, or none; only for constant blocks."""
        mask, of = self.mask(conditions), self.mask(among)
        return mask is not None and of is not None and not any_of(_among(numbers_of(of & mask) // size, numbers_of(of & ~mask) // size))

    def covers_warps(self, conditions: Conditions, arriving: Conditions) -> bool:
        """True only if each warp with threads of the first set has one of the second."""
        found = self._warp_masks(conditions, arriving)
        if found is None:
            return False
        warps, (mask, few) = found
        return all_of(_among(warps[mask], warps[few]))

    def covers_values(self, e: Expr, conditions: Conditions, arriving: Conditions) -> bool:
        """True only if each value that an expression has in the first set of threads it has in the second, too."""
        values, all_, few = self.values(e), self.mask(conditions), self.mask(arriving)
        return values is not None and all_ is not None and few is not None and all_of(np.isin(values[all_], values[few]))

    def one_value(self, e: Expr, size: int, alike: frozenset[str]) -> bool:
        """True only if an expression has one value in each group of ``size`` consecutive threads, which agree on the indices ``alike``."""
        if e.free & THREADS <= alike:
            return True
        values = self.values(e)
        if values is None:
            parts = children(e)
            return bool(parts) and all(self.one_value(part, size, alike) for part in parts)
        groups = np.arange(len(values)) // size
        return all_of(values == values[groups * size])

    def constant_in_warps(self, values: NDArray[np.int64], mask: Mask) -> bool:
        """True only if the chosen threads of each warp have one value."""
        warps, chosen = self._warps[mask], values[mask]
        return all(distinct(chosen[warps == w]).size == 1 for w in distinct(warps).tolist())

    def one_warp(self, conditions: Conditions, context: Context, pinned: frozenset[str]) -> bool:
        """True only if threads that satisfy conditions and agree on the pinned indices are of one warp."""
        if pinned >= THREADS:
            return True
        mask = self.mask(self.split(conditions).threads)
        if mask is not None:
            key = np.zeros(self._warps.shape, np.int64)
            for n in sorted(pinned & THREADS):
                key = key * 1024 + self._env[n]
            chosen, warps = key[mask], self._warps[mask]
            order = np.argsort(chosen, kind="stable")
            chosen, warps = chosen[order], warps[order]
            same = chosen[1:] == chosen[:-1]
            if not any_of((warps[1:] != warps[:-1])[same]):
                return True
        linear = ZERO
        for n in THREAD_NAMES:
            linear = linear + sym(n) * self.strides[n]
        known = context.constraints.given(*(c for c in self.split(conditions).threads if c not in context.conditions))
        warp = simplify(linear // WARP, known.facts)
        return warp.free & THREADS <= pinned | self.fixed(context)

    def fixed(self, context: Context) -> frozenset[str]:
        """The indices (of threads and blocks) that have one constant value in a context."""
        found: set[str] = set()
        for n in (*THREAD_NAMES, *BLOCK_NAMES):
            lo, hi = context.ranges.of(sym(n))
            if lo is not None and lo == hi:
                found.add(n)
        return frozenset(found)

    def equations(self, name: str, context: Context) -> tuple[Expr, ...]:
        """The values that the conditions of a context give to an index."""
        key = name, context.conditions
        if key not in self._equations:
            bounds = (bounds_of(name, context, conditions=(c,)) for c in context.conditions if name in c.free)
            self._equations[key] = tuple(lo for lo, hi in filter(None, bounds) if lo is hi and name not in lo.free)
        return self._equations[key]

    def at_least_one(self, conditions: Conditions) -> bool:
        """True only if a thread of each block satisfies conditions on thread indices."""
        count = self.count(conditions)
        return count is not None and (count.value > 0 if isinstance(count, Const) else prove(ge(count, 1), self.context.facts))

    def at_most_one(self, conditions: Conditions) -> bool:
        """True only if no two threads of a block satisfy the conditions."""
        count = self.count(self.split(conditions).threads)
        return isinstance(count, Const) and count.value <= 1

    def exactly_one(self, conditions: Conditions) -> bool:
        """True only if one thread of a block satisfies the conditions on threads, whatever the values of loop variables and cursors."""
        split = self.split(conditions)
        return not split.varying and self.count(split.threads) is ONE


def _among(numbers: NDArray[np.int64], others: NDArray[np.int64]) -> Mask:
    """Which of some small numbers are among others."""
    if not numbers.size or not others.size:
        return np.zeros(numbers.size, np.bool_)
    found = np.zeros(max(greatest(numbers), greatest(others)) + 1, np.bool_)
    found[others] = True
    return found[numbers]


def _all_or_none(groups: NDArray[np.int64], size: int) -> bool:
    """True if each group that a number stands for is there as often as its size."""
    sizes = np.bincount(groups, minlength=1)
    return all_of((sizes == 0) | (sizes == size))
