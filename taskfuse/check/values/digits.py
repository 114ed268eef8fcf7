"""Low digits of points that vary independently, and so need no table.

If every statement adds the same values ``0..n`` of a symbol to an axis, whatever the other symbols are, and all else on that axis is a multiple of
``n``, a point is visited as often as its quotient by ``n``. The symbol is then removed and the axis shortened: the same question about fewer points.
"""

from __future__ import annotations

from dataclasses import replace

from taskfuse.check.ranges import terms_of
from taskfuse.check.values.runs import Visits
from taskfuse.ir.scalar import Const, Expr, Sym, const

Shape = tuple[Expr, ...]


def without_digits(visits: list[Visits], extents: Shape) -> tuple[list[Visits], Shape]:
    """The question without such digits; the same objects if there are none."""
    for axis, extent in enumerate(extents):
        while isinstance(extent, Const):
            found = _lowest(visits, axis, extent.value)
            if found is None:
                break
            n, names = found
            visits = [_divided(v, axis, n, name) for v, name in zip(visits, names, strict=True)]
            extent = const(extent.value // n)
            extents = (*extents[:axis], extent, *extents[axis + 1 :])
    return visits, extents


def _lowest(visits: list[Visits], axis: int, extent: int) -> tuple[int, list[str]] | None:
    """How many values such a digit has, and its symbol in each statement."""
    names: list[str] = []
    sizes: set[int] = set()
    for v in visits:
        found = _alone(v, axis)
        if found is None:
            return None
        names.append(found[0])
        sizes.add(found[1])
    if len(sizes) != 1:
        return None
    n = sizes.pop()
    return (n, names) if extent % n == 0 else None


def _alone(v: Visits, axis: int) -> tuple[str, int] | None:
    """A symbol that occurs on one axis only, as a term of its own, and its number of values, which divides everything else on the axis."""
    terms, constant = terms_of(v.point[axis])
    for term, k in terms:
        if not isinstance(term, Sym) or k != 1 or term.name not in v.spans or term.name in (v.rows or ()):
            continue
        name = term.name
        start, stop = v.spans[name]
        if start is not const(0) or not isinstance(stop, Const) or stop.value < 2 or constant % stop.value:
            continue
        others = [other for other, _ in terms if other is not term]
        elsewhere = [*others, *(e for i, e in enumerate(v.point) if i != axis), *v.conditions, *(e for span in v.spans.values() for e in span if e is not None)]
        if all(m % stop.value == 0 for other, m in terms if other is not term) and not any(name in e.free for e in elsewhere):
            return name, stop.value
    return None


def _divided(v: Visits, axis: int, n: int, name: str) -> Visits:
    terms, constant = terms_of(v.point[axis])
    quotient: Expr = const(constant // n)
    for term, k in terms:
        if not (isinstance(term, Sym) and term.name == name):
            quotient = quotient + term * (k // n)
    spans = {other: span for other, span in v.spans.items() if other != name}
    return replace(v, point=(*v.point[:axis], quotient, *v.point[axis + 1 :]), spans=spans)
