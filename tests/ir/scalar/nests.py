"""Symbols and loop nests of the tests of scalar expressions."""

from __future__ import annotations

from taskfuse.ir.scalar import (
    Expr,
    Facts,
    sym,
)

S, T, N, M = map(sym, ("S", "T", "N", "M"))
i0, i1, x, y, o = map(sym, ("i0", "i1", "x", "y", "o"))
tx, ty = sym("threadIdx.x"), sym("threadIdx.y")
DIMS = Facts().with_range("S", 0, None).with_range("T", 0, None).with_range("N", 0, None).with_range("M", 0, None)


def nest(**ranges: tuple[int, int | Expr]) -> Facts:
    facts = DIMS
    for name, (lo, hi) in ranges.items():
        facts = facts.with_range(name, lo, hi)
    return facts
