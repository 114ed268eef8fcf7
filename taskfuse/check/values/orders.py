"""Points that are digits of one number: its quotient and remainder, and the order of tiles in groups of rows.

Visits of all numbers below a product are visits of a box: two axes that are quotient and remainder of a number count as one, and a number that
symbols enumerate gets a symbol for each of its digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, permutations

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.constraints import Constraints
from taskfuse.check.flags import greatest
from taskfuse.check.ranges import terms_of
from taskfuse.check.values.questions import equal, proves
from taskfuse.check.values.runs import Span, Visits, below
from taskfuse.check.values.solve import Open
from taskfuse.ir.scalar import (
    Compare,
    CompareOp,
    Const,
    Expr,
    FloorDiv,
    Min,
    Mod,
    Select,
    Sum,
    Sym,
    children,
    const,
    is_multiple,
    le,
    private,
    rebuild,
    simplify,
    substitute,
    sym,
)

Ints = NDArray[np.int64]
ROUNDS = 32
"""The most numbers of one statement that are split into digits."""


def reach_of(column: Ints, weights: dict[str, Expr], v: Visits, constraints: Constraints, extent: Expr | None = None) -> tuple[int, Expr | None]:
    """The number of points of a table along an axis, and the number of values of the higher digits: ``extent``, if it is that as it is; ``None``: unbounded."""
    if not weights:
        width = greatest(column) + 1 if column.size else 0
        return width, const(width)
    digits = sorted(weights.items(), key=lambda item: (not isinstance(item[1], Const), item[1].value if isinstance(item[1], Const) else 0, str(item[1])))
    weight = digits[0][1]
    if not isinstance(weight, Const) or weight.value < 1:
        raise Open(f"a step of {weight} along an axis", v.node)
    width = weight.value
    reach: Expr = const(width)
    while digits:
        k = next((k for k, (_, w) in enumerate(digits) if equal(constraints, w, reach)), None)
        if k is None:
            raise Open(f"nothing steps by {reach} along an axis", v.node)
        name, _ = digits.pop(k)
        start, stop = v.spans[name]
        if stop is None:
            if digits:
                raise Open(f"{name} has no known end, and others step further", v.node)
            return width, None
        reach = reach * (stop - start)
        if digits or reach is not extent:
            reach = simplify(reach, constraints.facts)
    return width, reach


def merged(visits: list[Visits], extents: tuple[Expr, ...], constraints: Constraints) -> tuple[list[Visits], tuple[Expr, ...]]:
    """Two axes that are quotient and remainder of one number, by the second one's extent, are one: a box of both is all numbers below its size."""
    for i, j in permutations(range(len(extents)), 2):
        numbers = [_number(v.point[i], v.point[j], extents[i], extents[j], constraints) for v in visits]
        if None in numbers:
            continue
        points = ([(e if k == i else x) for k, x in enumerate(v.point) if k != j] for v, e in zip(visits, numbers, strict=True) if e is not None)
        less = tuple(simplify(n * extents[j], constraints.facts) if k == i else n for k, n in enumerate(extents) if k != j)
        return merged([replace(v, point=tuple(point)) for v, point in zip(visits, points, strict=True)], less, constraints)
    return visits, extents


def _number(upper: Expr, lower: Expr, most: Expr, size: Expr, constraints: Constraints) -> Expr | None:
    """The number of which two axes, of ``most`` and ``size`` points, are quotient and remainder by ``size``."""
    match upper, lower:
        case FloorDiv(a=Mod(a=a, b=m), b=n), Mod(a=b, b=k) if a is b and n is k and equal(constraints, n, size) and equal(constraints, m, most * size):
            return a % m
        case FloorDiv(a=a, b=n), Mod(a=b, b=k) if a is b and n is k and equal(constraints, n, size):
            return a
        case Mod(a=FloorDiv(a=a, b=n), b=m), Mod(a=b, b=k) if a is b and n is k and equal(constraints, n, size) and equal(constraints, m, most):
            return a % (n * m)
        case _, Mod(a=a, b=k) if equal(constraints, k, size):  # the quotient is simpler where digits of the number fall out of it
            above = simplify(a // k, constraints.facts)
            return a if upper is above else a % (k * most) if upper is simplify(above % most, constraints.facts) else None
        case _:
            return None


# -- a number that symbols run through ---------------------------------------------------------------------------------------------------


def named(v: Visits, constraints: Constraints, *, every: bool, again: bool = False) -> Visits:
    """A new symbol for each digit of a number that takes all its values.

    Args:
        every: also for quotients by constants.
        again: points may be visited more than once; the last, incomplete quotient of a number is left open.
    """
    for _ in range(ROUNDS):
        turned = _turned(v, constraints)
        if turned is not None:
            v = turned
            continue
        numbers = dict.fromkeys(d for e in v.point for d in _divisions(e, every=every))
        if every:  # a number before its digits
            numbers = sorted((*numbers, *_bounded(v)), key=lambda number: -len(number[0].free & v.spans.keys()))
        exact = (_grouped(v, *n, constraints) or _divided(v, *n, constraints, again=again) or _split(v, *n, constraints) for n in numbers)
        made = chain(exact, (_divided(v, *n, constraints, again=again, cut=True) for n in numbers if again))
        found = next((m for m in made if m is not None), None)
        if found is None:
            break
        v = found
    return v


def _divisions(e: Expr, *, every: bool) -> Iterator[tuple[Expr, Expr]]:
    """Dividends and divisors; ``every``: constant ones, too."""
    if isinstance(e, (FloorDiv, Mod)) and (every or not isinstance(e.b, Const)):
        yield e.a, e.b
    for c in children(e):
        yield from _divisions(c, every=every)


def _new(v: Visits, name: str) -> Sym:
    """A fresh symbol: no text has its name."""
    return next(made for k in count() if (made := private(f"{name}.{k}")).name not in v.spans)


def _bounded(v: Visits) -> Iterator[tuple[Expr, Expr]]:
    """Numbers that conditions bound, with the divisors by which points have digits of them: low digits may stand by themselves, as ``i % 4`` of ``8*k + i``."""
    divisors = {k * c for e in v.point for k, c in _constants(e)}
    for c in v.conditions:
        match c:
            case Compare(op=CompareOp.LT | CompareOp.LE, a=a, b=b) if a.free <= v.spans.keys() and b.free.isdisjoint(v.spans):
                yield from ((a, const(n)) for n in sorted(divisors, reverse=True) if n > 1)
            case _:
                pass


def _constants(e: Expr) -> Iterator[tuple[int, int]]:
    """Pairs for each remainder and quotient by a constant: a divisor inside it, or 1, and its own divisor."""
    match e:
        case FloorDiv(b=Const(value=c)) | Mod(b=Const(value=c)):
            yield from ((k, c) for k in (1, *_quotients(e.a)))
        case _:
            pass
    for part in children(e):
        yield from _constants(part)


def _quotients(e: Expr) -> Iterator[int]:
    """The constants by which an expression divides."""
    match e:
        case FloorDiv(b=Const(value=k)) if k > 1:
            yield k
        case _:
            pass
    for part in children(e):
        yield from _quotients(part)


def _divided(v: Visits, a: Expr, n: Expr, constraints: Constraints, *, again: bool, cut: bool = False) -> Visits | None:
    """Symbols for ``a//n`` and ``a % n``: ``a`` runs over all numbers below a multiple of ``n``, or to any end.

    Args:
        again: or at least so far.
        cut: the last, incomplete quotient is left open.
    """
    span = _span(v, a, constraints) if n.free.isdisjoint(v.spans) else None
    if span is None:
        return None
    quotient = None
    if span[1] is not None:
        total = _least(span[1]) if again and not cut else span[1]
        quotient = simplify(total // n, constraints.facts)
        if not cut and not equal(constraints, quotient * n, total):
            return None
    q, r = _new(v, "quotient"), _new(v, "remainder")
    return _replaced(v, a, n, (q, r), {str(q): quotient, str(r): n}, a.free)


def _least(total: Expr) -> Expr:
    """``k*x`` of ``k*n*ceildiv(x, n)``, which is at least as much; other expressions unchanged."""
    match terms_of(total):
        case ((FloorDiv(a=a, b=Const(value=n)), k),), 0 if n > 0 and k > 0 and k % n == 0:
            return (a - (n - 1)) * (k // n)
        case _:
            return total


def _split(v: Visits, a: Expr, n: Expr, constraints: Constraints) -> Visits | None:
    """Two symbols for one of constant span, its quotient and remainder by a divisor of the number of its values: they take each pair of values once."""
    if not isinstance(a, Sym) or not isinstance(n, Const) or a.name not in v.spans or a.name in (v.rows or ()):
        return None
    start, stop = v.spans[a.name]
    if start is not const(0) or not isinstance(stop, Const) or not 1 < n.value < stop.value or stop.value % n.value:
        return None
    q, r = _new(v, "quotient"), _new(v, "remainder")
    most = stop.value // n.value
    facts = constraints.facts.with_range(str(q), 0, most - 1).with_range(str(r), 0, n.value - 1)
    digits = {a.name: q * n + r}

    def written(e: Expr) -> Expr:
        return e if a.name not in e.free else simplify(substitute(e, digits), facts)

    spans: dict[str, Span] = {name: (written(lo), None if hi is None else written(hi)) for name, (lo, hi) in v.spans.items() if name != a.name}
    spans |= {str(q): (const(0), const(most)), str(r): (const(0), n)}
    ranges = v.ranges.with_spans({q: (0, most - 1), r: (0, n.value - 1)})
    return replace(v, point=tuple(map(written, v.point)), spans=spans, conditions=tuple(map(written, v.conditions)), ranges=ranges)


def _grouped(v: Visits, r: Expr, h: Expr, constraints: Constraints) -> Visits | None:
    """Symbols for row and column of a tile, in the order that goes down the columns of one group of rows after another.

    Tile ``w`` of ``rows*columns`` is in group ``g = w//(G*columns)``, of ``h = min(G, rows - G*g)`` rows, at place ``r = w % (G*columns)``: its row is
    ``G*g + r % h``, its column ``r//h``. The groups before ``g`` have ``G*columns`` tiles each, so that ``r < h*columns`` also in the last one: quotient
    and remainder by ``h`` are all pairs of a column and a row of the group, each once. Then so are the pairs of all groups.
    """
    match h:
        case Min(args=(Const(value=height), last)) | Min(args=(last, Const(value=height))) if height > 0:
            pass
        case _:
            return None
    for group, k in terms_of(last)[0]:
        if k != -height or not isinstance(group, FloorDiv) or group.free.isdisjoint(v.spans):
            continue
        rows, u, d = last + group * height, group.a, group.b
        step = next((c for t, c in terms_of(r)[0] if t is u % d), 0)  # w = step*u + low, so w//(step*d) = u//d, w % (step*d) = step*(u % d) + low
        low = r - u % d * step
        least, most = v.ranges.of(low)
        columns = simplify(d * step // height, constraints.facts)
        if step < 1 or least is None or most is None or not 0 <= least <= most < step or not equal(constraints, columns * height, d * step):
            continue
        number = u * step + low
        span = _span(v, number, constraints) if rows.free.isdisjoint(v.spans) and columns.free.isdisjoint(v.spans) else None
        if span is not None and span[1] is not None and equal(constraints, span[1], rows * columns):
            row, column = _new(v, "row"), _new(v, "column")
            return _replaced(v, r, h, (column, row - group * height), {str(row): rows, str(column): columns}, number.free)
    return None


def _turned(v: Visits, constraints: Constraints) -> Visits | None:
    """The visits with a digit instead of its rotation or mirror image: whatever the other symbols are, both take the same values, once each.

    So is ``(a + r) % n``, or ``select(c, r, n - 1 - r)``, of all r below n: of the columns of a row of tiles that begins elsewhere, or runs down.
    """
    for e in dict.fromkeys(e for x in v.point for e in _orders(x)):
        for name in sorted(e.free & v.spans.keys() - (v.rows or {}).keys()):
            start, stop = v.spans[name]
            own = _new(v, "turned")
            if start is not const(0) or stop is None or not _permutes(e, sym(name), stop, constraints):
                continue
            put = _Put(e, own)
            point, conditions = (tuple(map(put, of)) for of in (v.point, v.conditions))
            bounds = [b for other, span in v.spans.items() if other != name for b in span if b is not None]
            if any(name in x.free for x in (*point, *conditions, *bounds)):
                continue
            spans: dict[str, Span] = {n: span for n, span in v.spans.items() if n != name}
            lo, hi = v.ranges.of(sym(name))
            return replace(v, point=point, conditions=conditions, spans=spans | {own.name: (start, stop)}, ranges=v.ranges.with_span(own, (lo, hi)))
    return None


def _orders(e: Expr) -> Iterator[Expr]:
    """Remainders and choices in an expression."""
    if isinstance(e, (Mod, Select)):
        yield e
    for part in children(e):
        yield from _orders(part)


def _permutes(e: Expr, r: Expr, n: Expr, constraints: Constraints) -> bool:
    """True only if an expression takes each number below ``n`` for one ``r`` of these numbers, whatever its other symbols are."""
    match e:
        case Mod(a=a, b=b):
            mine = [k for t, k in terms_of(a)[0] if not t.free.isdisjoint(r.free)]
            is_turned = r.free.isdisjoint(b.free) and [k for t, k in terms_of(a)[0] if t is r] == mine and mine in ([1], [-1])
            return (is_turned and (n is b or equal(constraints, n, b))) or equal(constraints, e + r, n - 1)
        case Select(cond=cond, a=a, b=b):
            return cond.free.isdisjoint(r.free) and all(_permutes(x, r, n, constraints) for x in (a, b))
        case _:
            return e is r or equal(constraints, e + r, n - 1)


class _Put:
    """One expression replaced by another."""

    def __init__(self, old: Expr, new: Expr) -> None:
        self.old = old
        self.new = new

    def __call__(self, e: Expr) -> Expr:
        return self.new if e is self.old else rebuild(e, self)


def _replaced(v: Visits, a: Expr, n: Expr, digits: tuple[Expr, Expr], extents: Mapping[str, Expr | None], free: frozenset[str]) -> Visits | None:
    """Points with other symbols, which run up to some extents, instead of those that a number is made of: ``digits`` are ``a//n`` and ``a % n``."""

    def written(e: Expr) -> Expr:
        match e:
            case FloorDiv(a=x, b=m) if x is a and m is n:
                return digits[0]
            case Mod(a=x, b=m) if x is a and m is n:
                return digits[1]
            case FloorDiv(a=x, b=m) if x is a and (times := simplify(m // n)) * n is m:
                return digits[0] // times
            case Mod(a=x, b=m) if x is a and (times := simplify(m // n)) * n is m:
                return digits[0] % times * n + digits[1]
            case _:
                return rebuild(e, written)

    def found(e: Expr) -> Expr:
        """The same where digits have fallen out of a number: ``a//k`` and ``a//k % c``, by what divides ``n``, as the prover writes them."""
        if e.free.isdisjoint(mine):
            return e
        match e:
            case Mod(a=x, b=m) if x is a and simplify(n // m) * m is n:
                return digits[1] % m
            case FloorDiv(a=x, b=m) if x is a and (times := simplify(n // m)) * m is n:
                return digits[0] * times + digits[1] // m
            case Mod(b=Const(value=c)) if c > 0:
                for k in (1, *_quotients(e.a)):
                    if is_multiple(n, k * c) and simplify(a // k % c) is e:
                        return digits[1] // k if n is const(k * c) else digits[1] // k % c
            case Sum() | FloorDiv() | Sym():
                for k in (1, *_quotients(e)):
                    if is_multiple(n, k) and simplify(a // k) is e:
                        return digits[0] if n is const(k) else digits[0] * simplify(n // k) + digits[1] // k
            case _:
                pass
        return rebuild(e, found)

    mine = free & v.spans.keys()
    point = tuple(map(written, v.point))
    if any(not e.free.isdisjoint(mine) for e in point):
        point = tuple(map(found, point))
        if any(not e.free.isdisjoint(mine) for e in point):
            return None
    spans: dict[str, Span] = {name: s for name, s in v.spans.items() if name not in mine}
    spans |= {name: (const(0), n) for name, n in extents.items()}
    return replace(v, point=point, spans=spans, conditions=tuple(c for c in v.conditions if c.free.isdisjoint(mine)))


def _span(v: Visits, a: Expr, constraints: Constraints) -> Span | None:
    """The numbers that symbols enumerate, each once, for any values of other symbols; ``None`` if unknown."""
    mine = a.free & v.spans.keys()
    if not mine or (v.rows is not None and mine & v.rows.keys()):
        return None
    bounds = [below(c, a) for c in v.conditions if not c.free.isdisjoint(mine)]
    ends = [t for t in bounds if t is not None]
    terms, constant = terms_of(a)
    weights: dict[str, Expr] = {str(t): const(k) for t, k in terms}
    if len(ends) < len(bounds) or constant or frozenset(weights) != mine or any(v.spans[m][0] is not const(0) for m in mine):
        return None
    try:
        width, reach = reach_of(np.zeros(1, np.int64), weights, v, constraints)
    except Open:
        return None
    if reach is not None:
        ends.append(reach)
    if width != 1 or any(not t.free.isdisjoint(v.spans) for t in ends):
        return None
    if not ends:
        return const(0), None
    total = next((t for t in ends if all(proves(constraints, le(t, other)) for other in ends)), None)
    return None if total is None else (const(0), total)
