"""Constant ranges of integer expressions, which decide between 32 and 64 bits, and between C's division and Python's.

Intervals (:mod:`taskfuse.ir.scalar.intervals`) of the expression as it is written, intermediate values included, under the ranges of its symbols and without
the guards around it: a guarded index is computed only where its guard holds, so the range is conservative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from math import gcd, prod

from taskfuse.ir.scalar import (
    NO_FACTS,
    ONE,
    And,
    Compare,
    CompareOp,
    Element,
    Expr,
    Facts,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sum,
    Table,
    UpperBound,
    Xor,
    and_,
    children,
    const,
    interval,
    le,
)
from taskfuse.ir.types import BLOCK_TYPES, THREAD_TYPES
from taskfuse.kir import Kernel, bodies, expressions
from taskfuse.kir.declarations import IntegerParam, TensorParam
from taskfuse.kir.nodes import For, Stmt, TmaLoad, TmaStore
from taskfuse.kir.synchronization import Cursor, CursorInit
from taskfuse.kir.variant import ArgumentLayout, Variant
from taskfuse.kir.walk import own_symbols
from taskfuse.target import MAX_BLOCK, MAX_GRID

Range = tuple[int, int]

INT32: Range = (-(2**31), 2**31 - 1)
UNKNOWN = 2**62
"""The magnitude of an unknown integer is at most this: no address of a GPU is larger."""
INT64: Range = (1 - UNKNOWN, UNKNOWN - 1)
"""Range of integers that are computed in 64 bits: one bit less, for intermediate sums."""


def steady(cond: Expr, moving: AbstractSet[str], ranges: IntegerRanges) -> Expr:
    """``cond`` with those comparisons of sums that hold for all values of some symbols, or for none, written without these: ``8*x + i < 32`` is ``x < 4`` for
    each i from 0 to 7. A compiler would ask the same of each.

    Args:
        moving: symbols of loops that are copied for each value.
    """
    match cond:
        case And(args=args):
            return and_(*(steady(c, moving, ranges) for c in args))
        case Compare(op=CompareOp.LT | CompareOp.LE as op, a=a, b=b) if isinstance(rest := b - a, Sum) and not rest.free.isdisjoint(moving):
            least = 1 if op is CompareOp.LT else 0  # of rest
        case _:
            return cond
    kept = [(term, k) for term, k in rest.terms if term.free.isdisjoint(moving)]
    step = gcd(*(k for _, k in kept))
    if step <= 1:
        return cond
    low, high = ranges.of(sum((term * k for term, k in rest.terms if not term.free.isdisjoint(moving)), start=const(rest.const)))
    if (low - least) // step != (high - least) // step:
        return cond
    bound = (low - least) // step  # what is kept, divided by the step, is at least -bound
    if all(k < 0 for _, k in kept):
        return le(sum((term * (-k // step) for term, k in kept), start=const(0)), bound)
    return le(-bound, sum((term * (k // step) for term, k in kept), start=const(0)))


class IntegerRanges:
    """Ranges of expressions, given those of symbols. Each scope has its own: see :meth:`child`."""

    def __init__(self, symbols: Mapping[str, Range], within: Facts = NO_FACTS, limits: Range = INT32) -> None:
        self._limits = limits
        self._facts = within.with_ranges(symbols)
        self._fits: dict[Expr, bool] = {}

    def child(self, symbols: Mapping[str, Range]) -> IntegerRanges:
        """The ranges of a scope with more symbols."""
        return IntegerRanges(symbols, self._facts, self._limits)

    def loop(self, var: str, start: Expr, stop: Expr) -> IntegerRanges:
        """The ranges in the body of a loop ``start <= var < stop``."""
        lo = self.of(start)[0]
        return self.child({var: (lo, max(lo, self.of(stop)[1] - 1))})

    def ends(self, stop: Expr, step: Expr) -> bool:
        """True if the variable of a loop is within the limits where the loop ends: then it has passed ``stop - 1`` by at most a step."""
        return self.of(stop)[1] - 1 + self.of(step)[1] <= self._limits[1]

    def below(self, extent: Expr) -> Range:
        """The range of an index into ``extent``."""
        return 0, max(self.of(extent)[1] - 1, 0)

    def of(self, e: Expr) -> Range:
        """The least and the greatest value."""
        lo, hi = interval(e, self._facts)
        return -UNKNOWN if lo is None else max(lo, -UNKNOWN), UNKNOWN if hi is None else min(hi, UNKNOWN)

    def fits(self, e: Expr) -> bool:
        """True if ``e`` and its intermediate values are within the limits, by default those of 32-bit integers."""
        found = self._fits.get(e)
        if found is None:
            found = self._fits[e] = self._fit(e) or self._divides_by_zero(e)
        return found

    def _divides_by_zero(self, e: Expr) -> bool:
        """True only if an expression has no value: a guard keeps every thread from it, as of an axis without elements."""
        match e:
            case Select(cond, a, b):
                return self._divides_by_zero(cond) or (self._divides_by_zero(a) and self._divides_by_zero(b))
            case And(args) | Or(args):
                return self._divides_by_zero(args[0])
            case _:
                return (isinstance(e, FloorDiv | Mod) and self.of(e.b) == (0, 0)) or any(map(self._divides_by_zero, children(e)))

    def _fit(self, e: Expr) -> bool:
        match e:
            case Sum(terms, constant):
                # any order of the terms: the positive parts together, the negative parts together
                parts = [(k * lo, k * hi) if k > 0 else (k * hi, k * lo) for (lo, hi), k in ((self.of(t), k) for t, k in terms)]
                low = sum(min(lo, 0) for lo, _ in parts) + min(constant, 0)
                high = sum(max(hi, 0) for _, hi in parts) + max(constant, 0)
                return self._limits[0] <= low and high <= self._limits[1] and all(self.fits(t) for t, _ in terms)
            case Product(factors):
                magnitude = 1
                for factor in factors:
                    lo, hi = self.of(factor)
                    magnitude *= max(abs(lo), abs(hi), 1)
                return magnitude <= self._limits[1] and all(map(self.fits, factors))
            case FloorDiv(a, b) | Mod(a, b) | Xor(a, b) | Compare(_, a, b):
                return self._in(e) and self.fits(a) and self.fits(b)
            case Min(args) | Max(args) | And(args) | Or(args):
                return all(map(self.fits, args))
            case Select(cond, a, b):
                return self.fits(cond) and self.fits(a) and self.fits(b)
            case Not(a):
                return self.fits(a)
            case Table(_, index):
                return self._in(e) and self.fits(index)
            case Element(index=index, low=low, high=high):
                return all(map(self.fits, (index, low, high)))
            case UpperBound(size=size, low=low, high=high, divisor=divisor, step=step, sought=sought):
                rise = step * self.of(size)[1]
                least, most = self.of(low)[0] // divisor + min(rise, 0), self.of(high)[1] // divisor + max(rise, 0)  # of the elements that it compares
                return self._in(e) and self._limits[0] <= least and most <= self._limits[1] and all(map(self.fits, (size, low, high, sought)))
            case _:
                return self._in(e)

    def _in(self, e: Expr) -> bool:
        lo, hi = self.of(e)
        return self._limits[0] <= lo and hi <= self._limits[1]


def kernel_ranges(kernel: Kernel, values: Mapping[str, int] | None = None, limits: Range = INT32) -> IntegerRanges:
    """Ranges of extents and hardware indices; with ``values``, for these extents: others have any of their values."""
    symbols: dict[str, Range] = {}
    for e in kernel.extents:
        if values is not None and e.name not in values:
            most = e.most(values)
            symbols[e.name] = e.min, UNKNOWN if most is None else most
            continue
        low, high = (e.min, UNKNOWN if e.max is None else e.max) if values is None else (values[e.name], values[e.name])
        symbols[e.name] = low, high
    return _with_hardware(kernel, IntegerRanges(symbols, limits=limits))


def _with_hardware(kernel: Kernel, ranges: IntegerRanges) -> IntegerRanges:
    """Also ranges of the indices of blocks and threads."""
    indices: dict[str, Range] = {}
    for types, shape, most in (
        (BLOCK_TYPES, kernel.grid, MAX_GRID),
        (THREAD_TYPES, kernel.block, MAX_BLOCK),
    ):
        for ptype, extent, limit in zip(types, shape, most, strict=True):
            indices[ptype.index_name] = (0, max(min(ranges.of(extent)[1], limit) - 1, 0))
    for d, extent in zip("xyz", kernel.cluster, strict=True):
        indices[f"clusterIdx.{d}"] = (0, max(ranges.of(extent)[1] - 1, 0))
    return ranges.child(indices)


MOST_PHASES = INT32[1] - 1  # a ring is walked around less often


def cursor_ranges(cursor: CursorInit) -> dict[str, Range]:
    """Ranges of a ring cursor's symbols."""
    return dict(zip(Cursor(cursor.name).symbols, ((0, cursor.slots - 1), (0, 1), (0, MOST_PHASES)), strict=True))


def dense(kernel: Kernel) -> Variant:
    """The variant for tensors without gaps whose integers fit 32 bits, if such a variant is possible; a kernel of known shapes has no other."""
    return Variant(tuple(ArgumentLayout.DENSE for p in kernel.params if isinstance(p, TensorParam)), wide=not kernel.extents and not fits(kernel, {}))


def fits(kernel: Kernel, values: Mapping[str, int], limits: Range = INT32) -> bool:
    """True if for these extents, and all values of others, all integers are within the limits (32 bits), offsets in row-major tensors included."""
    return _all_fit(kernel, kernel_ranges(kernel, values, limits), limits)


def sizes(kernel: Kernel) -> list[str]:
    """The extents that shapes of arrays determine: those that are no arguments."""
    return [e.name for e in kernel.extents if not any(isinstance(p, IntegerParam) and p.name == e.name for p in kernel.params)]


def small_extents(kernel: Kernel) -> int | None:
    """The greatest power of two for which 32-bit integers hold all indices if no extent of an array is greater, whatever the integers are that are arguments;
    ``None``: there is none, or none was found. Any number serves a kernel of known shapes."""
    named = set(sizes(kernel))

    def is_small(power: int) -> bool:
        symbols = {e.name: (e.min, max(e.min, 1 << power) if e.name in named else UNKNOWN if e.max is None else e.max) for e in kernel.extents}
        return _all_fit(kernel, _with_hardware(kernel, IntegerRanges(symbols)), INT32)

    powers = range(INT32[1].bit_length())
    found = bisect_left(powers, True, key=lambda power: not is_small(power)) - 1
    return None if found < 0 else 1 << found


def _all_fit(kernel: Kernel, ranges: IntegerRanges, limits: Range) -> bool:
    shapes = {p.name: p.shape for p in kernel.params if isinstance(p, TensorParam)} | {b.name: b.shape for b in kernel.buffers}
    return all(ranges.of(prod(s, start=ONE))[1] <= limits[1] for s in shapes.values()) and all(_fit(kernel.body, ranges))


def coordinates_fit(kernel: Kernel, values: Mapping[str, int]) -> bool:
    """True if for these extents all coordinates of bulk copies are 32-bit integers, as PTX wants them ("cp.async.bulk.tensor"), whatever other integers are."""
    return all(_coordinates(kernel.body, kernel_ranges(kernel, values, INT64)))


def _coordinates(body: tuple[Stmt, ...], ranges: IntegerRanges) -> Iterator[bool]:
    for stmt in body:
        if isinstance(stmt, CursorInit):
            ranges = ranges.child(cursor_ranges(stmt))
        if isinstance(stmt, TmaLoad | TmaStore):
            spans = map(ranges.of, stmt.coords)
            yield all(INT32[0] <= lo and hi <= INT32[1] for lo, hi in spans)
        inner = ranges.loop(stmt.var, stmt.start, stmt.stop) if isinstance(stmt, For) else ranges
        for b in bodies(stmt):
            yield from _coordinates(b, inner)


def _fit(body: tuple[Stmt, ...], ranges: IntegerRanges) -> Iterator[bool]:
    for stmt in body:
        if isinstance(stmt, CursorInit):
            ranges = ranges.child(cursor_ranges(stmt))
        symbols = own_symbols(stmt)
        own = ranges.child({name: ranges.below(extent) for name, extent in symbols.items()}) if symbols else ranges
        yield all(own.fits(e) for e in expressions(stmt))
        inner = ranges
        if isinstance(stmt, For):
            yield ranges.ends(stmt.stop, stmt.step)
            inner = ranges.loop(stmt.var, stmt.start, stmt.stop)
        for b in bodies(stmt):
            yield from _fit(b, inner)
