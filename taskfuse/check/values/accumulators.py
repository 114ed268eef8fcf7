"""Accumulators: registers in which statements accumulate the terms of a reduction, and the accesses of other statements to them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from taskfuse.check.statement_tree import Node
from taskfuse.check.values.claims import Place
from taskfuse.check.values.questions import known_at
from taskfuse.ir.scalar import FALSE, Const, Expr, Sym, conjuncts, const, evaluate, substitute, sym
from taskfuse.kir.nodes import For

MOST = 4096
"""The most values of an index that are listed."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """A statement that takes terms.

    Attributes:
        place: its accumulators, and the element of the result of each.
        point: the point of the iteration space.
        points: symbols over the terms that it takes at once.
    """

    node: Node
    place: Place
    point: tuple[Expr, ...]
    points: tuple[tuple[str, int], ...]


def determined(t: Term, scope: list[Node]) -> set[str]:
    """The loops whose variables follow from an accumulator's place."""
    loops = {n.stmt.var for n in t.node.loops if n not in scope and isinstance(n.stmt, For)}
    return {name for e in t.place.index for name in e.free if name in loops}


def is_determined(loop: Node, t: Term) -> bool:
    """True if the iteration of a loop follows from an accumulator's place."""
    return isinstance(loop.stmt, For) and any(loop.stmt.var in e.free for e in t.place.index)


def is_read(want: Place, index: tuple[int, ...]) -> bool:
    """False only if an access reads no element of its buffer, since an enclosing condition fails."""
    at = {e.name: const(i) for e, i in zip(want.index, index, strict=True) if isinstance(e, Sym)}
    around = want.node.conditions if want.known is None else [a for a in want.known.assumptions if isinstance(a, Expr)]
    return not any(substitute(part, at) is FALSE for c in around for part in conjuncts(c) if not part.free.isdisjoint(at))


def read_places(want: Place) -> frozenset[tuple[int, ...]] | None:
    """The elements that an access may read, one by one; ``None`` if they may be any, are too many, or its indices are symbols, so that intervals say it."""
    if all(isinstance(e, (Sym, Const)) for e in want.index):
        return None
    ranges, names = known_at(want).ranges, sorted({name for e in want.index for name in e.free})
    spans = [(lo, hi) for lo, hi in (ranges.of(sym(n)) for n in names) if lo is not None and hi is not None and lo <= hi]
    if len(spans) < len(names) or prod(hi - lo + 1 for lo, hi in spans) > MOST:
        return None
    at = dict(zip(names, (axis.reshape(-1) for axis in np.meshgrid(*(np.arange(lo, hi + 1) for lo, hi in spans), indexing="ij")), strict=True))
    count = prod(hi - lo + 1 for lo, hi in spans)
    columns = [np.broadcast_to(np.asarray(evaluate(e, at), np.int64), count) for e in want.index]
    return frozenset(zip(*(column.tolist() for column in columns), strict=True))


def touches(node: Node, place: Place) -> bool:
    """False only if a statement of the same thread does not access the registers of an accumulator."""
    found = [a for side in node.accesses for a in side if a.buffer == place.buffer]
    return any(not disjoint(Place(node, a.buffer, a.index, place.tensor, ()), place) for a in found)


def disjoint(one: Place, two: Place) -> bool:
    """True if two statements of one thread access different registers."""
    if len(one.index) != len(two.index):
        return False
    for k, (a, b) in enumerate(zip(one.index, two.index, strict=True)):
        last = k == len(one.index) - 1
        first, second = ((substitute(e, {name: const(0) for name, _ in p.points}), p.points[0][1] if p.points and last else 1) for e, p in ((a, one), (b, two)))
        (e, m), (f, n) = first, second
        lo, hi = known_at(one).ranges.of(e)
        low, high = known_at(two).ranges.of(f)
        if None not in (lo, hi, low, high) and (int(hi or 0) + m <= int(low or 0) or int(high or 0) + n <= int(lo or 0)):
            return True
    return False
