"""The threads that can access one element: what the indices of two accesses imply about their threads.

An index determines a thread's index if some allocation axis, or the row-major offset in the buffer or along the axes that have its digits, divided by a
constant, equals it: then two accesses of one element by the same expression are made by one thread. If this holds only for the number of the thread's warp,
they are made by lanes of one warp.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from taskfuse.ir.scalar import Const, Expr, bounds, const, simplify, substitute, sym
from taskfuse.ir.types import ParallelType
from taskfuse.kir.operands import Access
from taskfuse.lowering.plan import PStmt, base_name, is_base
from taskfuse.lowering.thread_ranges import ThreadRanges
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """An access of a statement.

    Attributes:
        loops: the variables of the loops around it.
    """

    stmt: PStmt
    access: Access
    loops: frozenset[str]


class AccessThreads:
    """Queries about the accesses of one plan.

    Args:
        shapes: of the buffers and outputs.
        ringed: buffers whose first axis is the slot of a ring.
    """

    def __init__(self, ranges: ThreadRanges, shapes: Mapping[str, tuple[Expr, ...]], ringed: Container[str]) -> None:
        self._ranges = ranges
        self._shapes = shapes
        self._ringed = ringed
        self._pins: dict[tuple[int, int, ParallelType], list[tuple[int, Expr, Expr | None, Expr]]] = {}

    def is_one_index(self, a: Touch, b: Touch, p: ParallelType) -> bool:
        """True if the two accesses can touch one element only from one index of ``p``."""
        starts = [self._ranges.range(u.stmt.task, p).start for u in (a, b)]
        bases = [sym(base_name(p, u.stmt.task)) for u in (a, b)]
        fixed = [bounds(base, u.stmt.facts) for base, u in zip(bases, (a, b), strict=True)]
        if all(lo is not None and lo == hi for lo, hi in fixed):
            one, two = (s + (lo or 0) for s, (lo, _) in zip(starts, fixed, strict=True))
            return simplify(one - two, self._ranges.facts) is const(0)
        if a.access.buffer != b.access.buffer:
            return False
        theirs = self._pinned(b, p)
        for axis, c, e, shift in self._pinned(a, p):
            for axis2, c2, e2, shift2 in theirs:
                if axis == axis2 and c is c2 and e is e2 and simplify(starts[0] - shift - starts[1] + shift2, self._ranges.facts) is const(0):
                    return True
        return False

    def is_one_warp(self, a: Touch, b: Touch) -> bool:
        """True if the two accesses can touch one element only from lanes of one warp, where whole warps lie along TIDx."""
        if a.access.buffer != b.access.buffer:
            return False
        starts = [self._ranges.range(u.stmt.task, ParallelType.TIDx).start for u in (a, b)]
        return starts[0] is starts[1] and not self._warp_places(a).isdisjoint(self._warp_places(b))

    def _warp_places(self, u: Touch) -> set[tuple[int, int, int]]:
        """How the index of an access determines the thread's warp: (axis, c, E) such that (index // c) % E is its number."""
        name = base_name(ParallelType.TIDx, u.stmt.task)
        _, last = bounds(sym(name), u.stmt.facts)
        if last is None or (last + 1) % WARP:
            return set()
        warps = (last + 1) // WARP
        warp, lane = sym(f"{name}.warp"), sym(f"{name}.lane")
        facts = u.stmt.facts.with_ranges({warp.name: (0, warps - 1), lane.name: (0, WARP - 1)})
        found: set[tuple[int, int, int]] = set()
        for axis, index in self._places(u, name):
            e = simplify(substitute(index, {name: warp * WARP + lane}), facts)
            c = simplify(substitute(e, {warp.name: warp + 1}) - e, facts)
            if warp.name in e.free and isinstance(c, Const) and c.value > 0 and simplify(e // c % warps, facts) is warp:
                found.add((axis, c.value, warps))
        return found

    def _pinned(self, u: Touch, p: ParallelType) -> list[tuple[int, Expr, Expr | None, Expr]]:
        """How the index of an access determines the thread's: (axis, c, E, shift) such that (index // c) % E = base + shift (no E: no modulo)."""
        key = (id(u.stmt), id(u.access), p)
        known = self._pins.get(key)
        if known is not None:
            return known
        name = base_name(p, u.stmt.task)
        base = sym(name)
        found: list[tuple[int, Expr, Expr | None, Expr]] = []
        for axis, e in self._places(u, name):
            if name not in e.free:
                continue
            c = simplify(substitute(e, {name: base + 1}) - e, u.stmt.facts)
            if name in c.free or c is const(0):
                continue
            quotient = simplify(e // c, u.stmt.facts)
            rest = simplify(quotient - base, u.stmt.facts)
            if all(not is_base(n) and n not in u.loops for n in rest.free):
                found.append((axis, c, None, rest))
            hi = u.stmt.facts.ranges.get(name, (None, None))[1]
            if hi is not None:
                modulo = simplify(hi + 1, u.stmt.facts)
                if simplify(quotient % modulo, u.stmt.facts) is base:
                    found.append((axis, c, modulo, const(0)))
        self._pins[key] = found
        return found

    def _places(self, u: Touch, name: str) -> list[tuple[int, Expr]]:
        """The index along each allocation axis; as further axes, row-major places: without the ring slot, an injective map of the whole index; and along the
        axes from the first to the last that have a digit of a thread's index, whatever lies along the others."""
        index = list(enumerate(u.access.index))
        shape = self._shapes.get(u.access.buffer)
        if shape is None or len(shape) < 2 or len(shape) != len(index):
            return index
        skip = 1 if u.access.buffer in self._ringed else 0
        n, digits = len(index), [k for k, e in index if name in e.free]
        runs = {(skip, n - 1): n}
        if len(digits) > 1:
            runs.setdefault((digits[0], digits[-1]), n + 1 + n * digits[0] + digits[-1])
        for (first, last), axis in runs.items():
            place = const(0)
            for e, extent in list(zip(u.access.index, shape, strict=True))[first : last + 1]:
                place = place * extent + e
            index.append((axis, simplify(place, u.stmt.facts)))
        return index
