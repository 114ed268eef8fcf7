"""Equivalent forms of a statement's visits.

Conditions become ends of spans, and symbols with a single value become that value; symbols with at most one value become parts of a point; thread indices,
and symbols that do not begin at 0, become symbols of their own; ends that exclude only points past an axis' end are dropped; block indices of clusters become
digits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from taskfuse.check.constraints import Constraints
from taskfuse.check.normalize import BLOCK_NAMES
from taskfuse.check.ranges import terms_of
from taskfuse.check.tables import distinct, distinct_columns
from taskfuse.check.values.questions import equal, proves
from taskfuse.check.values.runs import Span, Visits, below
from taskfuse.ir.scalar import Const, Expr, Min, Sym, const, le, minimum, private, simplify, substitute, sym


def shortened(v: Visits) -> Visits:
    """The same visits, with conditions that bound one symbol from above, by what does not run, in its span: ``x < a`` and ``x < b`` is ``x < min(a, b)``."""
    spans, left = dict(v.spans), list[Expr]()
    for c in v.conditions:
        (name,) = found if len(found := c.free & v.spans.keys()) == 1 else ("",)
        bound = below(c, sym(name)) if name and name not in (v.rows or {}) else None
        stop = spans[name][1] if name else None
        if bound is None or stop is None:
            left.append(c)
        else:
            spans[name] = spans[name][0], minimum(stop, bound)
    return v if len(left) == len(v.conditions) else replace(v, spans=spans, conditions=tuple(left))


def in_clusters(v: Visits) -> Visits:
    """The visits with each block index of clusters as two digits: the cluster, and the block's index in it."""
    kernel = v.node.context.kernel
    spans, digits = dict(v.spans), dict[str, Expr]()
    facts = v.node.path[0].block.context.facts  # not those at the statement, of which its conditions are some
    for name, blocks, extent in zip(BLOCK_NAMES, kernel.grid, kernel.cluster, strict=True):
        if extent is const(1) or name not in spans or spans[name] != (const(0), blocks) or name in (v.rows or {}):
            continue
        del spans[name]
        cluster, place = private(f"{name}.cluster"), private(f"{name}.place")
        spans[cluster.name], spans[place.name] = (const(0), simplify(blocks // extent, facts)), (const(0), extent)
        facts = facts.with_range(cluster.name, 0, None).with_range(place.name, 0, extent - 1)
        digits[name] = cluster * extent + place
    if not digits:
        return v

    def written(e: Expr) -> Expr:
        return simplify(substitute(e, digits), facts)

    spans = {name: (written(start), None if stop is None else written(stop)) for name, (start, stop) in spans.items()}
    return replace(v, point=tuple(map(written, v.point)), spans=spans, conditions=tuple(map(written, v.conditions)))


def apart(v: Visits) -> Visits:
    """The visits with thread indices of a fixed range of consecutive values replaced by new symbols, from 0 on."""
    rows = dict(v.rows or {})
    spans, ranges = dict(v.spans), v.ranges
    moved: dict[str, Expr] = {}
    for name in sorted(rows):
        values = distinct(rows[name])
        others = {n: of for n, of in rows.items() if n != name}
        count = distinct_columns(np.stack(list(others.values()))).shape[1] if others else 1
        if not values.size or values[-1] - values[0] + 1 != values.size or count * values.size != rows[name].size:
            continue
        first = rows[name] == values[0]
        rows = {n: of[first] for n, of in others.items()}
        own = private(f"{name}.from.{values[0]}")
        moved[name] = own + int(values[0])
        spans[own.name] = const(0), const(values.size)
        ranges = ranges.with_span(own, (0, values.size - 1))
    if not moved:
        return v
    left = {n: span for n, span in spans.items() if n not in moved}
    point, conditions = (tuple(simplify(substitute(e, moved)) for e in of) for of in (v.point, v.conditions))
    return Visits(v.node, point, left, conditions, ranges, rows or None)


def begun_at_zero(v: Visits) -> Visits:
    """The visits with symbols that begin elsewhere replaced by new ones, from 0 on: of code one iteration behind that of its loop."""
    spans, ranges = dict(v.spans), v.ranges
    moved: dict[str, Expr] = {}
    for name, (start, stop) in v.spans.items():
        if name in (v.rows or {}) or stop is None or not isinstance(start, Const) or not start.value:
            continue
        own = private(f"{name}.from.{start}")
        moved[name] = own + start
        del spans[name]
        spans[own.name] = const(0), stop - start
        _, most = v.ranges.of(sym(name))
        ranges = ranges.with_span(own, (0, None if most is None else most - start.value))
    if not moved:
        return v
    point, conditions = (tuple(simplify(substitute(e, moved)) for e in of) for of in (v.point, v.conditions))
    return Visits(v.node, point, spans, conditions, ranges, v.rows)


def named_once(v: Visits, extents: Iterable[Expr], constraints: Constraints) -> Visits:
    """The visits with points that name symbols of at most one value, such as those of a loop up to ``min(n, 1)``.

    Such a symbol has its first value ``a`` wherever it has one, so ``c + s - a`` is ``c``: a constant index of an axis, first of those that may have no points.
    """
    point, extents = list(v.point), tuple(extents)
    axes = sorted((k for k, e in enumerate(point) if isinstance(e, Const)), key=lambda k: isinstance(extents[k], Const))
    others = (*v.point, *v.conditions)
    for name, (start, stop) in v.spans.items():
        bounds = (e for other, span in v.spans.items() if other != name for e in span if e is not None)
        if not axes or stop is None or name in (v.rows or {}) or any(name in e.free for e in (*others, *bounds)):
            continue
        if not isinstance(stop - start, Const) and proves(constraints, le(stop, start + 1)):
            k = axes.pop(0)
            point[k] = point[k] + sym(name) - start
    return v if tuple(point) == v.point else replace(v, point=tuple(point))


def settled(v: Visits) -> Visits:
    """The visits with symbols of one value replaced by that value, also in the spans of others."""
    rows = v.rows or {}
    fixed: dict[str, Expr] = {n: const(int(of[0])) for n, of in rows.items() if of.size and (of == of[0]).all()}
    for name, (start, stop) in v.spans.items():
        if name not in rows and isinstance(start, Const) and stop is start + 1:
            fixed[name] = start
    if not fixed:
        return v
    left = {n: of for n, of in rows.items() if n not in fixed}
    if rows and not left and next(iter(rows.values())).size != 1:  # the same values more than once
        return v
    point, conditions = (tuple(simplify(substitute(e, fixed)) for e in of) for of in (v.point, v.conditions))
    spans: dict[str, Span] = {n: (substitute(a, fixed), None if b is None else substitute(b, fixed)) for n, (a, b) in v.spans.items() if n not in fixed}
    return Visits(v.node, point, spans, conditions, v.ranges, left or None)


def lengthened(v: Visits, extents: Iterable[Expr], constraints: Constraints) -> Visits:
    """Visits of the same points of a box, where no span ends early to spare points past an axis' end.

    Where a point is at ``s + rest`` on an axis of extent ``n``, with ``rest >= 0``, values of ``s`` from ``n`` on visit no point of the box: a span that
    ends at ``min(n, m)`` may end at ``m``. Points past the end are visited then that were not before.
    """
    spans = dict(v.spans)
    for e, extent in zip(v.point, extents, strict=True):
        terms, constant = terms_of(e)
        if constant < 0 or not all(k > 0 and isinstance(t, Sym) and t.name in spans and _from_zero(spans[t.name]) for t, k in terms):
            continue
        for term, k in terms:
            start, end = spans[str(term)]
            stop = None if end is None else simplify(end, constraints.facts)
            if k != 1 or not isinstance(stop, Min) or term.free & (v.rows or {}).keys():
                continue
            rest = [a for a in stop.args if not equal(constraints, a, extent)]
            if rest and len(rest) < len(stop.args):
                spans[str(term)] = start, minimum(*rest)
    return v if spans == v.spans else replace(v, spans=spans)


def _from_zero(span: Span) -> bool:
    """True only if a span begins at 0 or above."""
    return isinstance(span[0], Const) and span[0].value >= 0
