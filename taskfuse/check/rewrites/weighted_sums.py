"""Sums whose terms have weights: products of elements, of their reciprocals and of exponentials, as sets of such terms.

A **rescaled sum** multiplies its partial sum by a factor at the beginning of each step: at the end, the term of step c has been multiplied by the factors of
all later steps. Where each is ``exp(q*(m(t-1) - m(t)))``, m a running maximum, these are ``exp(q*(m(c) - m(last)))``, by induction. A term ``exp(q*(x -
m(c)))`` is then ``exp(q*(x - m(last)))``, as in the original, whatever the maximum was at step c. Other factors stay products over steps.

A guarded reference (:mod:`~taskfuse.check.rewrites.linear_forms`) may have no terms. Then each term of the sum must be 0 in both cases of the guard:
x is one of the reference's terms, so ``exp(q*(x - ..))`` is 0 as x is infinite, and the other factors are real numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import isfinite

import numpy as np

from taskfuse.check.rewrites.elements import ElementPairs, shown
from taskfuse.check.rewrites.linear_forms import Guard, LinearForm, LinearForms, is_one, number, reference, rounds
from taskfuse.check.rewrites.sides import CONVERSIONS, At, Different, assuming, each_value, points
from taskfuse.check.rewrites.sums import CombineForm, TermPart, reduced_points, terms_of
from taskfuse.check.rewrites.updates import SentPart, sent, sent_terms
from taskfuse.check.rewrites.weighted_terms import MUL, ONE, Monomial, WeightedTerms
from taskfuse.dtypes import DType, contains
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Const, Expr, Facts, Sym, lt, minimum, not_, prove, substitute
from taskfuse.kir.operands import Access, IndexOf, Operand
from taskfuse.kir.witness import Accumulate, Apply, Definition, Iterate, Pick, Reduce, Whole

COPY, FMA = ELEMENTWISE["copy"], ELEMENTWISE["fma"]
BASES = (ELEMENTWISE["exp"], ELEMENTWISE["exp2"])
"""The exponential functions."""
MOST = 64
"""The most parts of one sum."""
LARGEST = 88
"""The greatest constant of an exponent that is looked at: exponentials of greater ones are no numbers of float32."""


class WeightedSums:
    """Elements of either side as weighted sums.

    Args:
        stops: tensors whose elements are atoms.
        result: the dtype of the result, to which partial results may be rounded.
    """

    def __init__(self, elements: ElementPairs, stops: frozenset[str], result: DType) -> None:
        self.elements = elements
        self.forms = LinearForms(elements, stops)
        self.result = result
        self._known: dict[tuple[At, Facts], tuple[WeightedTerms, ...]] = {}

    def terms(self, at: At, facts: Facts) -> tuple[WeightedTerms, ...]:
        """The terms of an element.

        Raises:
            Different: there are too many, or some are infinite.
        """
        found = self._known.get((at, facts))
        if found is None:
            found = tuple(t for t in self._terms(at, facts) if t.monomial.coefficient or t.monomial.raw or t.monomial.has_zero)
            if len(found) > MOST:
                raise Different("a sum has too many parts")
            self._known[at, facts] = found
        return found

    def _terms(self, at: At, facts: Facts) -> Iterator[WeightedTerms]:
        at = at.side.seen(at, facts)
        value = number(at)
        if isinstance(at.operand, IndexOf) and isinstance(at.operand.value, Const):
            value = Fraction(at.operand.value.value)
        if value is not None:
            if isinstance(value, float):
                raise Different("a term is infinite")
            yield WeightedTerms((), (), Monomial(Fraction(value), has_zero=not value))
            return
        d = self.forms.defined(at)
        chosen = list(at.side.open_cases(at.operand, facts)) if d is not None and isinstance(at.operand, Access) else []
        if chosen:
            for case, conditions in each_value(chosen, facts):
                for t in self.terms(case, assuming(facts, conditions)):
                    yield t._replace(conditions=(*conditions, *t.conditions))
            return
        made: tuple[WeightedTerms, ...] | None = None
        match d:
            case Definition(rule=Apply() as rule) if rule.dtype.is_float and d.dtype.is_float:
                made = self._of_function(at, d, rule, facts)
            case Definition(rule=Reduce() as rule) if rule.combine is COMBINES["add"] and self._may_be(d.dtype, rule.dtype):
                made = self._of_sum(at, d, rule, facts)
            case Definition(rule=Reduce() as rule) if rule.combine is COMBINES["mul"] and self._may_be(d.dtype, rule.dtype):
                made = self._of_product(at, d, rule, facts)
            case Definition(rule=Iterate() as rule) if rule.op is FMA and self._may_be(d.dtype, rule.dtype):
                made = self._of_fold(at, d, rule, facts)
            case Definition(rule=Whole() as rule) if (updates := sent(rule, at.side, COMBINES["add"], d.dtype)) is not None and self._may_be(d.dtype, d.dtype):
                made = (*self._of_updates(at, rule, updates, facts),)
            case _:
                pass
        yield from (WeightedTerms((), (), Monomial(factors=((at, 1),))),) if made is None else made

    def _may_be(self, dtype: DType, wide: DType) -> bool:
        """True if a partial result may have a dtype and be computed in a wide one: neither is less than the result's."""
        return wide.is_float and contains(wide, self.result.compute) and contains(dtype, self.result)

    # -- functions ------------------------------------------------------------------------------------------------------------------

    def _of_function(self, at: At, d: Definition, rule: Apply, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """The terms of a function's result; ``None``: it is one of its own."""
        assert isinstance(at.operand, Access)
        operands = [at.side.at(o, points(at.operand.index)) for o in rule.operands]
        made = self._products(rule, operands, facts)
        narrowed = rounds(at, d, rule)
        if made is None or not narrowed:
            return made
        if all(not t.variables for t in made):
            return tuple(t._replace(monomial=replace(t.monomial, narrowed=t.monomial.narrowed | narrowed)) for t in made)
        return made if all(contains(n, self.result) for n in narrowed) else self._of_one(at, made)

    @staticmethod
    def _of_one(at: At, made: Sequence[WeightedTerms]) -> tuple[WeightedTerms, ...] | None:
        """An element that is rounded from a sum, as a term of its own: 0 where all of the sum's terms are, which have conditions in common."""
        if not all(t.monomial.coefficient for t in made):
            return None
        names = {v.name for t in made for v, _ in t.variables}
        shared = [c for c in made[0].conditions if c.free.isdisjoint(names) and all(c in t.conditions for t in made)] if made else []
        return (WeightedTerms((), tuple(shared), Monomial(factors=((at, 1),))),) if made else ()

    def _products(self, rule: Apply, operands: Sequence[At], facts: Facts) -> tuple[WeightedTerms, ...] | None:
        made: tuple[WeightedTerms, ...] | None = None
        match rule.op.name, operands:
            case (("copy" | "cast"), [a]) if a.side.dtype(a.operand).is_float:
                made = self.terms(a, facts)
            case "mul", [a, b]:
                made = self._product(a, b, facts)
            case "fma", [a, b, c]:
                product = self._product(a, b, facts)
                made = None if product is None else (*product, *self.terms(c, facts))
            case "div", [a, b]:
                made = tuple(t.times(self._inverse(b, facts)) for t in self.terms(a, facts))
            case "reciprocal", [a]:
                made = (self._inverse(a, facts),)
            case "neg", [a]:
                made = self._negated(a, facts)
            case "add", [a, b]:
                made = (*self.terms(a, facts), *self.terms(b, facts))
            case "sub", [a, b]:
                made = (*self.terms(a, facts), *self._negated(b, facts))
            case (("exp" | "exp2"), [a]):
                made = tuple(self._exponentials(rule.op, a, facts))
            case ("minimum" | "maximum") as name, [a, b]:
                clipped = self._clipped if name == "minimum" else self._lifted
                made = clipped(a, b, facts) or clipped(b, a, facts)
            case _, [condition, value, other] if rule.op.rule is DTypeRule.SELECT:
                made = self._chosen(condition, value, other, facts)
            case _:
                pass
        return made

    def _product(self, a: At, b: At, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """Each term of the one times each of the other, if one has no sum."""
        first, second = self.terms(a, facts), self.terms(b, facts)
        if any(t.variables for t in first) and any(t.variables for t in second):
            return None
        if not first or not second:
            return tuple(t.times(WeightedTerms((), (), Monomial(Fraction(0)))) for t in (*first, *second))
        return tuple(t.times(u) for t in first for u in second)

    def _negated(self, at: At, facts: Facts) -> tuple[WeightedTerms, ...]:
        return tuple(t.times(WeightedTerms((), (), Monomial(-ONE))) for t in self.terms(at, facts))

    def _inverse(self, at: At, facts: Facts) -> WeightedTerms:
        at = at.side.seen(at, facts)
        found = self.terms(at, facts)
        if len(found) == 1 and not found[0].variables and not found[0].conditions:
            return WeightedTerms((), (), found[0].monomial.inverse())
        return WeightedTerms((), (), Monomial(factors=((at, -1),)))

    def _exponentials(self, base: Elementwise, at: At, facts: Facts) -> Iterator[WeightedTerms]:
        """An exponential: 0 where its exponent is -inf, as the rest of it is real."""
        for case in self.forms.cases(at, facts):
            form = case.form
            if isinstance(form.constant, Fraction):
                exponents = {base: LinearForm(form.terms, form.constant)}
                yield WeightedTerms((), case.conditions, Monomial(exponents=exponents, narrowed=form.narrowed, guards=form.guards, raw=form.raw))
            elif form.constant < 0:
                yield WeightedTerms((), case.conditions, Monomial(Fraction(0), narrowed=form.narrowed, guards=form.guards, raw=form.raw))
            else:
                raise Different("an exponential is infinite")

    def _exponential(self, at: At, facts: Facts) -> tuple[WeightedTerms, Elementwise, LinearForm] | None:
        """An element that is one exponential alone."""
        found = self.terms(at, facts)
        if len(found) != 1 or found[0].variables or found[0].conditions or not found[0].monomial.is_exponential or len(found[0].monomial.exponents) != 1:
            return None
        ((base, form),) = found[0].monomial.exponents.items()
        return found[0], base, form

    def _clipped(self, at: At, bound: At, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """An exponential, or 0, that is not above a bound: of what is not above a reference, where that is finite, relative to it, plus a constant."""
        most, found = number(bound), self.terms(at, facts)
        alone = self._exponential_or_zero(found) if most is not None and most >= 0 else None
        if alone is None or most is None:
            return None
        term, base, form = alone
        if form.constant > LARGEST or base.function(np.float64(form.constant)) > most:
            return None
        inside = assuming(facts, term.conditions)
        for high, q in form.terms:
            combine = reference(high)
            if combine is not None and (q < 0) == (combine is COMBINES["maximum"]):
                low = LinearForm(tuple(pair for pair in form.terms if pair[0] != high)).times(-1 / q)
                if self.forms.is_bounded(low, high, inside):
                    return found
        return None

    def _lifted(self, at: At, bound: At, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """An exponential, or 0, that is not below a bound, which is not above 0."""
        least, found = number(bound), self.terms(at, facts)
        return found if least is not None and least <= 0 and self._exponential_or_zero(found) is not None else None

    @staticmethod
    def _exponential_or_zero(found: Sequence[WeightedTerms]) -> tuple[WeightedTerms, Elementwise, LinearForm] | None:
        """The one exponential among terms that are 0 but for it, which has conditions; ``None``: they are others."""
        there = [t for t in found if t.monomial.coefficient]
        if len(there) != 1 or any(t.monomial.factors or t.monomial.products or t.variables for t in found):
            return None
        (term,) = there
        if not term.monomial.is_exponential or len(term.monomial.exponents) != 1:
            return None
        ((base, form),) = term.monomial.exponents.items()
        return term, base, form

    def _chosen(self, condition: At, value: At, other: At, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """A choice: 1 where two numbers are equal, and an exponential of a multiple of their difference, which is 1 there; or one that references decide."""
        if number(value) == 1:
            found = self._exponential(other, facts)
            for a, b in self.forms.operands(condition.side.seen(condition, facts), "eq", is_exact=True) if found is not None else ():
                difference = self._difference(a, b, facts)
                if found is not None and difference is not None and _is_multiple(found[2], difference):
                    return (found[0],)
        decided = self.forms.decided((condition, value, other), facts)
        if decided is None:
            return None
        guards, chosen = decided
        return tuple(
            t._replace(monomial=replace(t.monomial, guards=t.monomial.guards | guards, raw=t.monomial.raw - guards)) for t in self.terms(chosen, facts)
        )

    def _difference(self, a: At, b: At, facts: Facts) -> LinearForm | None:
        one, other = self.forms.only(a, facts), self.forms.only(b, facts)
        return None if one is None or other is None or one.narrowed or other.narrowed else one + other.times(-ONE)

    # -- sums -----------------------------------------------------------------------------------------------------------------------

    def _of_sum(self, at: At, d: Definition, rule: Reduce, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        if rule.body is not MUL and rule.body not in CONVERSIONS:
            return None
        reduced = reduced_points(at, d, rule, self.elements)
        inside = _inside(facts, reduced.variables, reduced.conditions)
        first, *others = (at.side.at(o, reduced.point) for o in rule.terms)
        made = self._product(first, others[0], inside) if others else self.terms(first, inside)
        if made is None:
            return None
        every = tuple(WeightedTerms((*reduced.variables, *t.variables), (*reduced.conditions, *t.conditions), t.monomial) for t in made)
        if rule.rescaled is None:
            return (*every, *self._constant(rule.init.value))
        end = next((e for k, e in rule.ends if k == rule.rescaled), None)
        extent = d.space[rule.rescaled]
        last = extent if end is None else minimum(extent, substitute(end, reduced.point))
        return self._rescaled(at, rule.operands[-1], reduced.point, rule.rescaled, last, every, facts)

    def _of_updates(self, at: At, rule: Whole, updates: Sequence[SentPart], facts: Facts) -> Iterator[WeightedTerms]:
        """A sum of what an element is stored as, and of all that is sent to it."""
        assert isinstance(at.operand, Access)
        yield from self.terms(at.side.at(Access(rule.parts[0], rule.places[0]), points(at.operand.index)), facts)
        for s in sent_terms(at.side, updates, at.operand.index, self.elements.symbol, facts):
            for t in self.terms(s.term, _inside(facts, s.variables, s.conditions)):
                yield WeightedTerms((*s.variables, *t.variables), (*s.conditions, *t.conditions), t.monomial)

    def _of_fold(self, at: At, d: Definition, rule: Iterate, facts: Facts) -> tuple[WeightedTerms, ...] | None:
        """A fold ``s = s*factor + term``: where it begins with a number, this is multiplied by all factors."""
        factor, term = rule.operands
        reduced = reduced_points(at, d, rule, self.elements)
        made = self.terms(at.side.at(term, reduced.point), _inside(facts, reduced.variables, reduced.conditions))
        every = tuple(WeightedTerms((*reduced.variables, *t.variables), (*reduced.conditions, *t.conditions), t.monomial) for t in made)
        extent = d.space[rule.axis]
        if is_same_number(rule.init.value, 0):
            return self._rescaled(at, factor, reduced.point, rule.axis, extent, every, facts)
        (first,) = self._constant(rule.init.value)
        return (
            *self._multiplied(at, factor, reduced.point, rule.axis, extent, every, facts),
            first.times(self._product_of(at, factor, reduced.point, rule.axis, extent, (), facts)),
        )

    def _of_product(self, at: At, d: Definition, rule: Reduce, facts: Facts) -> tuple[WeightedTerms, ...]:
        """A product of elements as a factor; its parts are those that the elements are products of, in turn."""
        parts = tuple(terms_of(at, CombineForm(rule.combine, rule.dtype, d.dtype), self.elements, facts))
        made = WeightedTerms((), (), Monomial(products=parts))
        return tuple(made.times(first) for first in self._constant(rule.init.value))

    def _multiplied(
        self, at: At, factor: Operand, point: Mapping[str, Expr], axis: int, end: Expr, every: Sequence[WeightedTerms], facts: Facts
    ) -> tuple[WeightedTerms, ...]:
        """Terms of steps along an axis, each multiplied by the product of the factors of all later steps."""
        step = point[f"i{axis}"]
        return tuple(term.times(self._product_of(at, factor, point, axis, end, (step,), facts)) for term in every)

    def _product_of(self, at: At, factor: Operand, point: Mapping[str, Expr], axis: int, end: Expr, after: Sequence[Expr], facts: Facts) -> WeightedTerms:
        """The product of the factors of all steps, or of those after one."""
        t = self.elements.symbol()
        element = at.side.at(factor, {**point, f"i{axis}": t})
        dtype = at.side.dtype(element.operand)
        form = CombineForm(COMBINES["mul"], dtype.compute, dtype)
        steps = TermPart(((t, end),), tuple(lt(step, t) for step in after), COPY, (element,))
        return WeightedTerms((), (), Monomial(products=tuple(terms_of(steps, form, self.elements, facts))))

    @staticmethod
    def _constant(value: float) -> Iterator[WeightedTerms]:
        if not isfinite(value):
            raise Different("a sum begins with an infinity")
        if value:
            yield WeightedTerms((), (), Monomial(Fraction(value)))

    def _rescaled(
        self, at: At, factor: Operand, point: Mapping[str, Expr], axis: int, end: Expr, every: Sequence[WeightedTerms], facts: Facts
    ) -> tuple[WeightedTerms, ...]:
        """Terms of steps along an axis, each multiplied by the factors of all later steps."""
        try:
            return self._relative(at, factor, point, axis, end, every, facts)
        except Different:
            return self._multiplied(at, factor, point, axis, end, every, facts)

    def _relative(
        self, at: At, factor: Operand, point: Mapping[str, Expr], axis: int, end: Expr, every: Sequence[WeightedTerms], facts: Facts
    ) -> tuple[WeightedTerms, ...]:
        """The same, where the factors of all later steps are a quotient of two steps'.

        Raises:
            Different: they are not.
        """
        t, step = self.elements.symbol(), point[f"i{axis}"]
        found = self.terms(at.side.at(factor, {**point, f"i{axis}": t}), facts.with_range(t.name, 0, end - 1))
        if len(found) != 1 or found[0].variables or found[0].conditions or not found[0].monomial.is_exponential:
            raise Different("what a sum is rescaled by is no exponential")
        factors = found[0].monomial
        exponents: dict[Elementwise, LinearForm] = {}
        for base, form in factors.exponents.items():
            running = self._running(form, t)
            if running is None:
                raise Different("what a sum is rescaled by is not relative to the step before")
            exponents[base] = running.at({t.name: step}) + running.at({t.name: end - 1}).times(-ONE)
        guards, raw = (frozenset(Guard(g.at, ((t, end), *g.variables), (lt(step, t), *g.conditions)) for g in of) for of in (factors.guards, factors.raw))
        by = WeightedTerms((), (), Monomial(exponents=exponents, narrowed=factors.narrowed, guards=guards, raw=raw))
        return tuple(term.times(by) for term in every or (WeightedTerms((), (), Monomial(Fraction(0))),))

    @staticmethod
    def _running(form: LinearForm, t: Sym) -> LinearForm | None:
        """The multiples of running references of which a form is the sum before step t, less that after it; ``None`` if it is none."""
        left = dict(form.terms)
        running: list[tuple[At, Fraction]] = []
        for at, q in form.terms:
            d = at.side.defined(at.operand)
            if not isinstance(d, Definition) or not isinstance(d.rule, Accumulate) or not d.rule.is_exclusive or not isinstance(at.operand, Access):
                continue
            index = at.operand.index
            if index[d.rule.axis] is not t or any(t.name in e.free for k, e in enumerate(index) if k != d.rule.axis):
                continue
            inclusive = replace(d.rule, is_exclusive=False)
            for other, p in list(left.items()):
                there = other.side.defined(other.operand)
                is_after = isinstance(there, Definition) and there.rule == inclusive and there.dtype is d.dtype
                if p == -q and is_after and isinstance(other.operand, Access) and other.operand.index == index:
                    del left[at], left[other]
                    running.append((other, q))
                    break
        return None if left or form.constant else LinearForm(tuple(running))

    # -- references -----------------------------------------------------------------------------------------------------------------

    def check_guards(self, found: WeightedTerms, finite: Sequence[At], facts: Facts) -> None:
        """Return if terms equal their monomial also where guarded references have no terms: both are 0 there.

        Args:
            finite: references that are finite.

        Raises:
            Different: no proof was found, or a reference without a guard may have no terms.
        """
        inside = _inside(facts, found.variables, found.conditions)
        raw, guards = ([g for g in of if self._is_open(g, finite, inside)] for of in (found.monomial.raw, found.monomial.guards))
        if raw:
            raise Different(f"{min(shown(g.at) for g in raw)} may be of nothing")
        if not guards or not found.monomial.coefficient:
            return
        if not any(not g.variables and self._is_least(g, guards, inside) and self._vanishes(found.monomial, g, inside) for g in guards):
            raise Different(f"nothing shows that its terms are 0 where {min(shown(g.at) for g in guards)} is of nothing")

    @staticmethod
    def _is_open(guard: Guard, finite: Sequence[At], inside: Facts) -> bool:
        """True unless a reference is among those that are finite, or there is none where its conditions hold."""
        ranges = _inside(inside, guard.variables, ())
        if any(prove(not_(c), ranges) for c in guard.conditions):
            return False
        here = assuming(ranges, guard.conditions)
        return not any(is_one(guard.at, other, here) for other in finite)

    def _is_least(self, guard: Guard, guards: Sequence[Guard], inside: Facts) -> bool:
        """True if all references are finite where one is."""
        form = LinearForm(((guard.at, ONE),))
        return all(g is guard or self.forms.is_bounded(form, g.at, _inside(inside, g.variables, g.conditions)) for g in guards)

    def _vanishes(self, monomial: Monomial, guard: Guard, inside: Facts) -> bool:
        """True if an exponential is 0 where a reference is of nothing: what it is of is among that."""
        for form in monomial.exponents.values():
            references = [(at, q) for at, q in form.terms if reference(at) is not None]
            if len(references) != 1:
                continue
            ((at, q),) = references
            others = tuple(pair for pair in form.terms if pair[0] != at)
            if (q < 0) != (reference(guard.at) is COMBINES["maximum"]):
                continue
            constants = dict.fromkeys((form.constant, Fraction(0)))  # whatever is added to an infinity
            if any(self.forms.is_bounded(LinearForm(others, c).times(-1 / q), guard.at, inside) for c in constants):
                return True
        return False

    def relative_to(self, found: WeightedTerms, references: Sequence[At], facts: Facts) -> WeightedTerms:
        """The terms without references that cancel, and with equal references unified."""
        inside = _inside(facts, found.variables, found.conditions)
        exponents: dict[Elementwise, LinearForm] = {}
        for base, form in found.monomial.exponents.items():
            known: list[At] = [*references]
            terms: list[tuple[At, Fraction]] = []
            for at, q in form.terms:
                if reference(at) is not None:
                    same = next((r for r in known if self.forms.is_same(at, r, inside)), at)
                    known.append(same)
                    terms.append((same, q))
                else:
                    terms.append((at, q))
            made = LinearForm((), form.constant)
            for term in terms:
                made += LinearForm((term,))
            exponents[base] = made
        return found._replace(monomial=replace(found.monomial, exponents=exponents))


def weighted_parts(elements: ElementPairs, a: At, b: At, facts: Facts) -> tuple[list[TermPart], list[TermPart]]:
    """The terms of two elements, an original and a rewritten one, as sums of products.

    Raises:
        Different: they are not such sums, or their terms differ from their monomials where references have no terms.
    """
    d = a.side.defined(a.operand)
    if d is None or not d.dtype.is_float:
        raise Different("it is no reduction whose terms have no order, and no sum of floats")
    known = {name for name in elements.same if not all(_is_pointwise(side.definitions.get(name)) for side in (a.side, b.side))}
    sums = WeightedSums(elements, frozenset(known), d.dtype)
    written, now = sums.terms(a, facts), sums.terms(b, facts)
    finite = [g.at for t in written for g in t.monomial.raw]
    references = [At(b.side, at.operand) for t in written for form in t.monomial.exponents.values() for at, _ in form.terms if _is_shared(at, known)]
    now = tuple(sums.relative_to(t, references, facts) if t.monomial.coefficient else t for t in now)
    for t in written:
        sums.check_guards(t, finite, facts)
    for t in now:  # also those that are 0
        sums.check_guards(t, [At(b.side, at.operand) for at in finite if _is_shared(at, known)], facts)
    elements.finite |= {at.operand.buffer for at in finite if isinstance(at.operand, Access)}
    return [t.part() for t in written if not t.monomial.is_left_out], [t.part() for t in now if not t.monomial.is_left_out]


def _is_pointwise(d: Definition | None) -> bool:
    return d is not None and isinstance(d.rule, Apply | Pick)


def _is_shared(at: At, known: set[str]) -> bool:
    """True for a reference that is the same on both sides."""
    return reference(at) is not None and isinstance(at.operand, Access) and at.operand.buffer in known


def _is_multiple(form: LinearForm, of: LinearForm) -> bool:
    """True if a form is another one times a number."""
    q = next((p / r for at, p in form.terms for other, r in of.terms if at == other), None)
    if q is None:
        return False
    rest = form + of.times(-q)
    return not rest.terms and rest.constant == 0


def _inside(facts: Facts, variables: Sequence[tuple[Sym, Expr]], conditions: Sequence[Expr]) -> Facts:
    for v, n in variables:
        facts = facts.with_range(v.name, 0, n - 1)
    return assuming(facts, conditions)
