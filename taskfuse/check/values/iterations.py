"""Iterations of loops that an accumulator's place tells apart: each has accumulators of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.accumulators import Term
from taskfuse.check.values.claims import Place
from taskfuse.check.values.questions import known_at
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import Expr, const, eq, le, lt, sym
from taskfuse.kir.nodes import For

Ints = NDArray[np.int64]
MOST = 1 << 18
"""The most accumulators of all iterations together."""


def own_accumulators(t: Term, scope: Sequence[Node], starts: Iterable[Place]) -> None:
    """Iterations of the loops named in an accumulator's place take terms in different accumulators, and none sets one that an earlier iteration has used.

    Args:
        scope: the question is about one iteration of these loops.

    Raises:
        Open: iterations may share one.
    """
    named = {name for e in t.place.index for name in e.free}
    own = [n for n in t.node.loops if n not in scope and _variable(n) in named]
    if not own:
        return
    if not all(any(e is sym(_variable(n)) for e in t.place.index) for n in own):
        iterations, places = _used(t.place, own, scope)
        _, where = np.unique(places, axis=0, return_inverse=True)
        where = where.reshape(-1)
        some = np.zeros(where.max(initial=-1) + 1, np.int64)
        some[where] = iterations
        if (some[where] != iterations).any():
            raise Open(f"iterations of {', '.join(map(_variable, own))} take terms in one accumulator", t.node)
    for s in starts:
        common = [n for n in own if n in s.node.loops]
        if not common or s.index == t.place.index:
            continue
        (mine, used), (theirs, set_) = _used(t.place, common, scope), _used(s, common, scope)
        _, where = np.unique(np.concatenate([used, set_]), axis=0, return_inverse=True)
        where = where.reshape(-1)
        first = np.full(where.max(initial=-1) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, where[: mine.size], mine)
        if (first[where[mine.size :]] < theirs).any():
            raise Open("an accumulator is set again after its first term", s.node)


def _variable(loop: Node) -> str:
    assert isinstance(loop.stmt, For)
    return loop.stmt.var


def _used(place: Place, numbered: Sequence[Node], scope: Sequence[Node]) -> tuple[Ints, Ints]:
    """The accumulators that a statement uses, in rows: the number of the iteration of some loops around it, and the place, in each iteration of ``scope``."""
    around = known_at(place)
    loops = {_variable(n): n for n in place.node.loops}
    spans: dict[str, tuple[int, int]] = {}
    names = [_variable(n) for n in numbered]
    names += [n for n in loops if n not in names and any(n in e.free for e in place.index)]
    filters: list[Expr] = []
    for name in names:
        lo, hi = around.ranges.of(sym(name))
        stmt = loops[name].stmt
        assert isinstance(stmt, For)
        if lo is None or hi is None:
            if loops[name] in scope:
                continue
            raise Open("which accumulators its iterations use is not known", place.node)
        spans[name] = lo, hi + 1
        bounds = le(stmt.start, sym(name)), lt(sym(name), stmt.stop), eq((sym(name) - stmt.start) % stmt.step, 0)
        filters += [c for c in bounds if c.free <= spans.keys()]
    spans |= {name: (0, n) for name, n in place.points if any(name in e.free for e in place.index)}
    if place.offset is not None or prod(hi - lo for lo, hi in spans.values()) > MOST:
        raise Open("which accumulators its iterations use is not known", place.node)
    table = ValueTable([{name: np.arange(lo, hi)} for name, (lo, hi) in spans.items()], filters)
    iterations = np.zeros(table.count, np.int64)
    for n in numbered:
        lo, hi = spans[_variable(n)]
        iterations = iterations * (hi - lo) + table.values(sym(_variable(n)))
    columns = [table.values(sym(_variable(n))) for n in scope if _variable(n) in spans]
    columns += [table.values(_moving(e, spans.keys(), place.node)) for e in place.index]
    return iterations, np.stack(columns, axis=1) if columns else np.zeros((table.count, 0), np.int64)


def _moving(e: Expr, names: Iterable[str], node: Node) -> Expr:
    """The terms of an index with some symbols; the others are the same in all iterations."""
    known = frozenset(names)
    total: Expr = const(terms_of(e)[1])
    for term, k in terms_of(e)[0]:
        if term.free <= known:
            total = total + term * k
        elif not term.free.isdisjoint(known):
            raise Open("which accumulators its iterations use is not known", node)
    return total
