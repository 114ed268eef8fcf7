"""Two sets of terms are equal: a bijection maps the terms of one to those of the other.

The variables of a part of the rewritten set determine a point of the original set: each original variable is an offset plus a number whose digits are some of
the part's variables. This map has an inverse; an original point is in the image of a part if its digits satisfy the part's conditions. The images must lie in
the original set, cover it, and be disjoint (unless a term may be combined twice).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from taskfuse.check.rewrites.digits import digits_of
from taskfuse.check.rewrites.elements import ElementPairs, chosen, holds, learn
from taskfuse.check.rewrites.sides import At, Different, points
from taskfuse.check.rewrites.sums import DEPTH, TermPart, eliminated, reduced_points
from taskfuse.ir.scalar import (
    ONE,
    ZERO,
    Compare,
    CompareOp,
    Const,
    Expr,
    Facts,
    Max,
    Min,
    Sum,
    Sym,
    and_,
    compare,
    const,
    ge,
    le,
    lt,
    not_,
    prove,
    substitute,
)
from taskfuse.kir.operands import Access, IndexOf
from taskfuse.kir.witness import Definition, Reduce, operands_of

FEW = 4
"""The most values of a variable that are enumerated in the search for terms."""
MOST = 5
"""The most variables of a part for which maps are tried."""


def compare_parts(elements: ElementPairs, written: Sequence[TermPart], now: Sequence[TermPart], facts: Facts, *, is_idempotent: bool = False) -> None:
    """Return if a bijection maps the terms of the rewritten parts to those of the original ones.

    Raises:
        Different: there is none, or no proof was found.
    """
    images = [_Images(elements, part, is_idempotent, facts) for part in written]
    for part in now:
        _placed(part, images, facts)
    for found in images:
        found.check()


def _placed(part: TermPart, images: Sequence[_Images], facts: Facts) -> None:
    """Find the terms of a part; where nothing says which they are, for each value of a variable with few, as where these are steps of unequal length."""
    before = [list(found.images) for found in images]
    try:
        _place(part, images)
    except Different:
        few = [(v, n.value) for v, n in part.variables if isinstance(n, Const) and 1 < n.value <= FEW]
        for v, n in few:
            for found, kept in zip(images, before, strict=True):
                found.images = list(kept)
            try:
                for k in range(n):
                    for one in eliminated(part.at({v.name: const(k)}), facts):
                        _place(one, images)
            except Different:
                continue
            return
        raise


def _place(part: TermPart, images: Sequence[_Images]) -> None:
    """Find the written terms that a part's terms are: all of them, if terms may be combined twice."""
    reason = ""
    is_placed = False
    for found in images:
        try:
            found.add(part)
        except Different as error:
            reason = reason or error.reason
            continue
        is_placed = True
        if not found.is_idempotent:
            return
    if not is_placed:
        raise Different(reason or "a term is there, and none was written")


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """The original points to which a part's terms belong.

    Attributes:
        part: the part.
        to: the original variables, as functions of the part's.
        conditions: the original points in the image, over the original variables.
    """

    part: TermPart
    to: Mapping[str, Expr]
    conditions: tuple[Expr, ...]


class _Images:
    """The images of parts in one part of what was written."""

    def __init__(self, elements: ElementPairs, written: TermPart, is_idempotent: bool, facts: Facts) -> None:
        self.elements = elements
        self.written = written
        self.is_idempotent = is_idempotent
        self.facts = facts
        self.images: list[Image] = []

    def add(self, part: TermPart) -> None:
        """Add the image of a part.

        Raises:
            Different: its terms are not in the original set, or it is not proved disjoint from the other images.
        """
        made, inside = self._image(part), self.written.inside(self.facts)
        if self.images and not self.is_idempotent:
            made = replace(made, conditions=_needed(made.conditions, inside))
            self.images = [replace(image, conditions=_needed(image.conditions, inside)) for image in self.images]
            if not all(_apart(made, other, inside) for other in self.images):
                raise Different(f"the term at {self._point()} may be met twice")
        self.images.append(made)

    def check(self) -> None:
        """Return if the images cover the original set.

        Raises:
            Different: no proof was found.
        """
        inside = self.written.inside(self.facts)
        if self.images:
            self._covered(inside, sorted(self.images, key=lambda image: len(image.conditions)))
            return
        if not (any(prove(le(n, 0), self.facts) for _, n in self.written.variables) or any(prove(not_(c), inside) for c in self.written.conditions)):
            raise Different("no term is left")

    def _covered(self, inside: Facts, images: Sequence[Image]) -> None:
        """Do nothing if all written points of some facts have images: those that one leaves have others."""
        first, *others = images
        for condition in first.conditions:
            if holds(condition, inside):
                continue
            if not others:
                raise Different(f"nothing shows that the term at {self._point()} is met: {condition}")
            self._covered(inside.with_assumption(not_(condition)), others)
            inside = inside.with_assumption(condition)

    def _point(self) -> str:
        return f"[{', '.join(v.name for v, _ in self.written.variables)}]"

    def _image(self, part: TermPart) -> Image:
        """The image of a part, which lies in the written set."""
        inside = part.inside(self.facts)
        reason = ""
        for to in self._maps(part, inside):
            conditions = self._inverse(part, to)
            if conditions is None:
                continue
            found = Image(part, to, conditions)
            try:
                self._is_term(found, inside)
            except Different as error:
                reason = reason or error.reason
                continue
            return found
        tensors = ", ".join(o.operand.buffer for o in part.operands if isinstance(o.operand, Access))
        raise Different(reason or f"nothing says which terms {tensors} has")

    def _is_term(self, image: Image, inside: Facts) -> None:
        """The part's term is that at a written point, which exists."""
        part, to, written = image.part, image.to, self.written
        for v, n in written.variables:
            if not (holds(ge(to[v.name], 0), inside) and holds(lt(to[v.name], n), inside)):
                raise Different(f"a term at {to[v.name]} was not written: there are {n}")
        for condition in written.conditions:
            if not holds(substitute(condition, to), inside):
                raise Different(f"a term was not written, where {not_(condition)}")
        part.check(written.at(to), self.elements, inside)

    # -- maps -----------------------------------------------------------------------------------------------------------------------

    def _maps(self, part: TermPart, inside: Facts) -> Iterator[dict[str, Expr]]:
        """Written variables from a part's: as its operands say, which read the same elements; then as digits, in any order."""
        wanted = [v for v, _ in self.written.variables]
        found: dict[str, Expr] = {}
        for a, b in part.alike(self.written):
            self._matched(a, b, inside, {v.name for v in wanted}, found)
        if len(found) == len(wanted):
            yield found
            if self._inverse(part, found) is not None:
                return
        if len(part.variables) > MOST or not wanted:
            return
        for places in product(range(len(wanted)), repeat=len(part.variables)):
            groups = [[x for x, p in zip(part.variables, places, strict=True) if p == k] for k in range(len(wanted))]
            if all(self._has_room(g, n) for g, (_, n) in zip(groups, self.written.variables, strict=True)):
                for orders in product(*(permutations(g) for g in groups)):
                    yield {v.name: _number(digits) for v, digits in zip(wanted, orders, strict=True)}

    def _has_room(self, group: Sequence[tuple[Sym, Expr]], extent: Expr) -> bool:
        size: Expr = ONE
        for _, n in group:
            size = size * n
        return prove(ge(size, extent), self.facts)

    def _matched(self, a: At, b: At, inside: Facts, wanted: set[str], found: dict[str, Expr], depth: int = 0) -> None:
        """Learn written variables from two operands that should be equal, or from what they are made of."""
        mine, yours = a.side.seen(a, inside, is_converted=True), b.side.seen(b, inside, is_converted=True)
        match mine.operand, yours.operand:
            case IndexOf(value=e), IndexOf(value=f):
                learn(e, chosen(f, inside), wanted, found)
            case Access(buffer=name, index=index), Access(buffer=other, index=there) if name == other:
                for e, f in zip(index, there, strict=False):
                    learn(e, chosen(f, inside), wanted, found)
            case Access(index=index), Access(index=there) if depth < DEPTH and len(found) < len(wanted):
                d, e = mine.side.defined(mine.operand), yours.side.defined(yours.operand)
                if d is not None and e is not None and type(d.rule) is type(e.rule):
                    point, other = self._point_of(mine, d, index), self._point_of(yours, e, there)
                    for o, p in zip(operands_of(d.rule), operands_of(e.rule), strict=False):
                        self._matched(mine.side.at(o, point), yours.side.at(p, other), inside, wanted, found, depth + 1)
            case _:
                pass

    def _point_of(self, at: At, d: Definition, index: tuple[Expr, ...]) -> Mapping[str, Expr]:
        return reduced_points(at, d, d.rule, self.elements).point if isinstance(d.rule, Reduce) else points(index)

    def _inverse(self, part: TermPart, to: Mapping[str, Expr]) -> tuple[Expr, ...] | None:
        """Which written points a map reaches from where a part has terms: conditions on the written variables. ``None`` if it is no map of digits."""
        own: dict[str, Expr] = {}
        reached: list[Expr] = []
        extents = dict((v.name, n) for v, n in part.variables)
        for v, _ in self.written.variables:
            digits = digits_of(to[v.name], v, extents, self.facts)
            if digits is None or not own.keys().isdisjoint(digits.values):
                return None
            own |= digits.values
            reached += [ge(digits.rest, 0), lt(digits.rest, digits.size)]
        if len(own) < len(extents):
            return None
        return tuple(c for condition in (*reached, *(substitute(c, own) for c in part.conditions)) for c in _bounds(condition))


def _number(digits: Sequence[tuple[Sym, Expr]]) -> Expr:
    """The number with some digits, the last of which counts ones."""
    value: Expr = ZERO
    for v, n in digits:
        value = value * n + v
    return value


def _bounds(condition: Expr) -> Iterator[Expr]:
    """A bound by a minimum, or of a maximum, as bounds by, or of, each operand: one that fails says more."""
    if isinstance(condition, Compare) and condition.op in (CompareOp.LT, CompareOp.LE):
        difference = condition.b - condition.a
        for term, k in difference.terms if isinstance(difference, Sum) else ((difference, 1),):
            if isinstance(term, Min if k > 0 else Max):
                for x in term.args:
                    yield from _bounds(compare(condition.op, ZERO, difference - k * term + k * x))
                return
    yield condition


def _apart(a: Image, b: Image, inside: Facts) -> bool:
    """True only if no written point is in both."""
    if prove(not_(and_(*a.conditions)), _with(inside, b.conditions)):
        return True
    every = [*b.conditions, *a.conditions]
    return any(holds(not_(c), _with(inside, [other for other in every if other is not c])) for c in a.conditions)


def _needed(conditions: Sequence[Expr], inside: Facts) -> tuple[Expr, ...]:
    """Conditions without those that follow from the others: few, so that one that fails says much."""
    kept = list(conditions)
    for condition in conditions:
        others = [c for c in kept if c is not condition]
        if prove(condition, _with(inside, others)):
            kept = others
    return tuple(kept)


def _with(facts: Facts, conditions: Sequence[Expr]) -> Facts:
    for condition in conditions:
        facts = facts.with_assumption(condition)
    return facts
