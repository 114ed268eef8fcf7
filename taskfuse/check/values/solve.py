"""Integer equations for the iteration and the thread that wrote an element.

Indices are made of loop variables, thread indices and points by splits and merges, so an equation determines its symbols one after
another: a symbol that stands alone, or the digits of a number in mixed radix. Each step is an equivalence in the ranges of the symbols, so the
solution found is the only one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import gcd

from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Mod, Sym, const, substitute

Equation = tuple[Expr, Expr]
"""An expression in the writer's symbols, and the value that it must have."""

Spans = Mapping[str, tuple[Expr, Expr]]
"""The first value of a symbol and the end (exclusive)."""


class Open(Exception):
    """Raised if it is not proved that a value is right."""

    def __init__(self, reason: str, *nodes: Node) -> None:
        super().__init__(reason)
        self.reason = reason
        self.nodes = nodes

    def again(self) -> Open:
        """A copy to keep or to raise again, without the frames that this one went through, which would form a reference cycle."""
        return Open(self.reason, *self.nodes)


def solved(equations: list[Equation], unknown: Spans, simplified: Callable[[Expr], Expr], *, digits: bool = True) -> tuple[dict[str, Expr], list[Equation]]:
    """The unknown symbols as far as equations determine them, and the remaining equations (those without unknown symbols, too).

    Args:
        unknown: the symbols of the left sides to solve for; none occurs on a right side.
        digits: split numbers into digits.
    """
    found: dict[str, Expr] = {}
    left = list(equations)
    while True:
        for k, (a, b) in enumerate(left):
            difference = _reduced(simplified(substitute(a, found) - b) if found else a - b)
            made = _alone(difference, unknown)
            if not made and digits:
                made = _digits(difference, unknown) or _divided(difference, left, found, unknown)
            if made:
                found = {name: substitute(e, made) for name, e in found.items()} | made
                del left[k]
                break
        else:
            return found, [(substitute(a, found), b) for a, b in left]


def _reduced(difference: Expr) -> Expr:
    """A form with the same zeros, divided by the common factor of its terms."""
    terms, constant = terms_of(difference)
    step = gcd(constant, *(k for _, k in terms))
    if step <= 1:
        return difference
    reduced: Expr = const(constant // step)
    for term, k in terms:
        reduced = reduced + term * (k // step)
    return reduced


def _alone(difference: Expr, unknown: Spans) -> dict[str, Expr]:
    """A symbol that occurs once, with coefficient 1 or -1."""
    terms, _ = terms_of(difference)
    for term, k in terms:
        if isinstance(term, Sym) and term.name in unknown and abs(k) == 1:
            rest = difference - term * k
            if rest.free.isdisjoint(unknown):
                return {term.name: rest * -k}
    return {}


def _digits(difference: Expr, unknown: Spans) -> dict[str, Expr]:
    """Several symbols that are the digits of a number: the least weighs 1, each other one as much as all below it together count.

    Were the least more, not every number would have digits.
    """
    terms, _ = terms_of(difference)
    mine = [(term, k) for term, k in terms if not term.free.isdisjoint(unknown)]
    if not mine or not all(isinstance(t, Sym) for t, _ in mine):
        return {}
    if all(k < 0 for _, k in mine):
        difference, mine = -difference, [(t, -k) for t, k in mine]
    if any(k < 0 for _, k in mine):
        return {}
    mine.sort(key=lambda pair: pair[1])
    if mine[0][1] != 1:
        return {}
    value: Expr = const(0) - difference
    for t, k in mine:
        value = value + t * k
    found: dict[str, Expr] = {}
    for (t, k), (_, above) in pairwise(mine):
        assert isinstance(t, Sym)
        start, stop = unknown[t.name]
        if not isinstance(stop, Const) or start is not const(0) or k * stop.value != above:
            return {}
        found[t.name] = value // k % stop
    t, k = mine[-1]
    assert isinstance(t, Sym)
    if unknown[t.name][0] is not const(0):
        return {}
    found[t.name] = value // k
    return found


def _divided(difference: Expr, equations: list[Equation], found: Mapping[str, Expr], unknown: Spans) -> dict[str, Expr]:
    """``u // n`` and what is left of u in further equations: ``u % n``, or its digits, ``u % m``, ``u // m % l``, .. with ``n = m * l * ..``."""
    match _only(difference, unknown):
        case FloorDiv(Sym(name=name) as u, n), quotient if name in unknown and n.free.isdisjoint(unknown):
            pass
        case _:
            return {}
    parts = [part for a, b in equations if (part := _only(_reduced(substitute(a, found) - b), unknown)) is not None]
    rest, weight = const(0), const(1)
    while weight is not n:
        above = u if weight is const(1) else u // weight
        digit = next(((term.b, value) for term, value in parts if isinstance(term, Mod) and term.a is above), None)
        if digit is None or not digit[0].free.isdisjoint(unknown) or digit[0] is const(1):
            return {}
        rest, weight = rest + digit[1] * weight, weight * digit[0]
        if isinstance(weight, Const) and isinstance(n, Const) and weight.value > n.value:
            return {}
    return {name: quotient * n + rest}


def _only(difference: Expr, unknown: Spans) -> tuple[Expr, Expr] | None:
    """The only term of unknown symbols, with coefficient 1 or -1, and what it is where the difference is 0."""
    mine = [(term, k) for term, k in terms_of(difference)[0] if not term.free.isdisjoint(unknown)]
    match mine:
        case [(term, 1 | -1 as k)]:
            return term, (term * k - difference) * k
        case _:
            return None
