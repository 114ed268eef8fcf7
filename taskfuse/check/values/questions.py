"""Questions of the value layer: what holds where an access happens, whether an element exists, and what follows from that.

A question goes to constant bounds first, then to samples, which only say "no", then to linear arithmetic, first with the nearest facts and then with all, and
last to the prover.
"""

from __future__ import annotations

from collections.abc import Iterable

from taskfuse.check.bounded_variables import BoundedElement
from taskfuse.check.bounds import by_parts
from taskfuse.check.constraints import Constraints
from taskfuse.check.linear import Linear
from taskfuse.check.ranges import Ranges, nonnegative_form, terms_of
from taskfuse.check.samples import fails
from taskfuse.check.values.claims import Place
from taskfuse.ir.scalar import Const, Expr, FloorDiv, Min, Mod, Product, const, elements_of, eq, ge, le, lt, remembered, simplify, sym

MEMORY = 1 << 14
"""The most elements whose existence conditions are cached."""


def inside(element: Iterable[Expr], shape: Iterable[Expr]) -> tuple[Expr, ...]:
    """The conditions that an element exists."""
    return _inside(tuple(element), tuple(shape))


@remembered(MEMORY)
def _inside(element: tuple[Expr, ...], shape: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return tuple(c for e, n in zip(element, shape, strict=True) for c in (ge(e, 0), lt(e, n)) if not isinstance(c, Const) or not c.value)


def nonempty(shape: Iterable[Expr], ranges: Ranges) -> tuple[Expr, ...]:
    """The facts that follow if an array has elements: each extent is positive, and so are its factors, none of which is negative."""
    found: dict[Expr, None] = {}
    for n in shape:
        match n:
            case Product(factors=parts) if all((ranges.of(e)[0] or 0) >= 0 and ranges.of(e)[0] is not None for e in parts):
                found |= dict.fromkeys(parts)
            case Const():
                pass
            case _:
                found[n] = None
    return tuple(ge(e, 1) for e in found)


def proves(constraints: Constraints, condition: Expr) -> bool:
    """True only if a condition holds."""
    if isinstance(condition, Const):
        return condition.value != 0
    if constraints.ranges.implies(condition):
        return True
    form = nonnegative_form(condition)
    if form is None:
        return constraints.proves(condition)
    narrow, question = constraints.about(form)
    if fails(narrow, ge(question, 0)):
        return False
    close, asked = constraints.closely(form)
    if Linear.of(close).nonnegative(asked, 1):
        return True
    if Linear.of(narrow).nonnegative(question, 1) or constraints.proves(condition):
        return True
    terms, constant = terms_of(question)
    divisions = any(isinstance(t, FloorDiv | Mod) and not isinstance(t.b, Const) for t, _ in terms)
    return divisions and constant >= 0 and all(k > 0 for _, k in terms) and by_parts(question, narrow)


def equal(constraints: Constraints, a: Expr, b: Expr) -> bool:
    """True only if two expressions have one value."""
    if a is b:
        return True
    difference = a - b
    if difference is const(0) or isinstance(difference, Const):
        return difference is const(0)
    if constraints.ranges.of(difference) == (0, 0):
        return True
    if fails(*constraints.about(eq(difference, 0))):
        return False
    least = _least(constraints, difference)
    if least is not difference and equal(constraints, least, const(0)):
        return True
    if simplify(difference, constraints.facts) is const(0) or proves(constraints, eq(a, b)):
        return True
    return (bool(elements_of(difference)) or _spans_in_quotients(constraints, difference)) and in_spans(constraints, difference) is const(0)


def _spans_in_quotients(constraints: Constraints, difference: Expr) -> bool:
    """True if an element that an instruction accesses stands in a quotient or a remainder: ``(2*x + e)//(2*n)`` is ``x//n`` by the span of e alone."""
    spans = {str(a.symbol) for a in constraints.assumptions if isinstance(a, BoundedElement)}
    return any(isinstance(t, FloorDiv | Mod) and not t.free.isdisjoint(spans) for t, _ in terms_of(difference)[0])


def in_spans(constraints: Constraints, e: Expr) -> Expr:
    """``e`` simplified by the constraints and by the constant spans of the elements that an instruction accesses: in a function they have no linear form."""
    facts = constraints.facts
    for assumption in constraints.assumptions:
        if isinstance(assumption, BoundedElement):
            facts = facts.with_range(str(assumption.symbol), *assumption.span)
    return simplify(e, facts)


def _least(constraints: Constraints, e: Expr) -> Expr:
    """``e`` with the least argument instead of a minimum in its sum, such as a clamped index, where one is known to be the least."""
    for term, factor in terms_of(e)[0]:
        args = term.args if isinstance(term, Min) else ()
        for arg in args:
            if all(other is arg or proves(constraints, le(arg, other)) for other in args):
                return e + factor * (arg - term)
    return e


def known_at(place: Place) -> Constraints:
    """The constraints where an access happens."""
    spans = (BoundedElement(sym(name), (0, n - 1)) for name, n in place.points)
    known = place.node.context.constraints if place.known is None else place.known
    return known.given(*spans, *place.given)
