"""Equal digits of indices: combinations of equations, and bounds on what their terms can compensate. Independent of the accesses behind the indices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from taskfuse.check.ranges import Span, terms_of
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Mod, Product, Sym, const, simplify

Simplifier = Callable[[Expr], Expr]
"""Gives an equal expression, under what is known where the expression has its value."""


def most_of(digits: list[tuple[Expr, Expr, list[Expr]]], choice: int) -> Expr:
    """The most that digits can compensate together; ``choice``: selects one of several bounds."""
    total: Expr = const(0)
    for weight, _, reaches in digits:
        total = total + weight * reaches[min(choice, len(reaches) - 1)]
    return total


def quotients_in(e: Expr) -> Iterator[tuple[Expr, int, Expr]]:
    """``a``, ``k`` and ``a + k*r`` for each term ``a//k`` of a sum ``a//k + r``."""
    for t, c in terms_of(e)[0]:
        match t:
            case FloorDiv(a, Const(value=k)) if c == 1 and k > 0:
                yield a, k, a + (e - t) * k
            case _:
                pass


def composed(equations: list[tuple[Expr, Expr]], left: Simplifier = simplify, right: Simplifier = simplify) -> list[tuple[Expr, Expr]]:
    """Equations, and those of dividends: two numbers with equal quotients and equal remainders are equal.

    Args:
        left, right: for expressions of either side.
    """
    found = [(x, y, frozenset[int]()) for x, y in equations]  # with the remainders that were taken: none can tell more a second time
    known = set(equations)
    for x, y, taken in found:
        for n, (low_x, low_y) in enumerate(equations):
            if n in taken or (x is y and low_x is low_y):
                continue
            wholes = dict(_dividends(y, low_y, right))
            for k, whole in _dividends(x, low_x, left):
                if k in wholes and (whole, wholes[k]) not in known:
                    known.add((whole, wholes[k]))
                    found.append((whole, wholes[k], taken | {n}))
    return [(x, y) for x, y, _ in found]


def _dividends(quotient: Expr, remainder: Expr, simpler: Simplifier) -> Iterator[tuple[int, Expr]]:
    """``k`` and ``k*quotient + remainder``, without the remainder ``b % k``: ``b + k*r`` where the quotient is ``b//k + r``.

    ``b`` may be a quotient ``a//n`` itself, and the quotient written without ``b``, as bounds of what ``b`` is made of allow: ``(1024*i + 16*j + t) // 48`` is
    ``(64*i + j) // 3`` for ``0 <= t < 16``.
    """
    match remainder:
        case Mod(b, Const(value=k)) if k > 0:
            is_told = False
            for a, divisor, _ in quotients_in(quotient):
                if divisor % k == 0 and remainder is (part := a // (divisor // k)) % k:
                    is_told = True
                    yield k, part + (quotient - a // divisor) * k
            rest = const(0) if is_told else simpler(quotient - b // k)
            left_over = dict(terms_of(rest)[0])
            is_without = left_over.items() < dict(terms_of(quotient)[0]).items()  # the quotient of b was a part of it
            if not is_told and is_without and all(isinstance(term, Sym) for term in left_over):
                yield k, b + rest * k
        case _:
            pass


def terms_up_to(weight: int, e: Expr) -> Expr:
    """The terms of a sum with coefficients of at most ``weight``."""
    return sum((term * k for term, k in terms_of(e)[0] if abs(k) <= weight), const(0))


def joined_rows(rows: list[tuple[int, Expr | None, Span]]) -> list[tuple[int, Expr | None, Span]]:
    """Rows by descending weight; those of equal weight are merged."""
    found: dict[int, tuple[int, Expr | None, Span]] = {}
    for k, atom, (lo, hi) in rows:
        w = abs(k)
        if k < 0:
            lo, hi = None if hi is None else -hi, None if lo is None else -lo
        known = found.get(w)
        if known is None:
            found[w] = (w, atom, (lo, hi))
        else:
            low, high = known[2]
            found[w] = (w, None, (None if low is None or lo is None else low + lo, None if high is None or hi is None else high + hi))
    return [found[w] for w in sorted(found, reverse=True)]


def span_of_difference(a: Span, b: Span) -> Span:
    """Bounds of the difference of two numbers."""
    return None if a[0] is None or b[1] is None else a[0] - b[1], None if a[1] is None or b[0] is None else a[1] - b[0]


def degree_of(e: Expr) -> int:
    """The most factors of a term of a sum."""
    terms, _ = terms_of(e)
    return max((len(t.factors) if isinstance(t, Product) else 1 for t, _ in terms), default=0)


def constant_of(e: Expr) -> int:
    """The size of a constant; 0 of any other expression."""
    return abs(e.value) if isinstance(e, Const) else 0
