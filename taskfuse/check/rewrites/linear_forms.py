"""Elements as linear forms of others, and maxima of linear forms: the exponents, and the references that bound them.

A **reference** is a maximum, or a minimum, that exponents are relative to, as in ``exp(x - m)``: a reduction or a scan. Data are real numbers or the
neutral element of the maximum, so a reference is finite, unless it has no terms. A choice that tests for this (``where(m == -inf, 0, m)``) is read as its
finite case, and the form is marked *guarded*. A proof that uses a guarded form also shows that the other case adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf, isinf
from typing import NamedTuple

from taskfuse.check.rewrites.elements import ElementPairs, is_equal, learn, shown
from taskfuse.check.rewrites.sides import CONVERSIONS, At, ChoiceOf, Different, assuming, each_value, follows, moved_to, points, symbols_of
from taskfuse.check.rewrites.sums import reduced_points
from taskfuse.dtypes import DType, contains
from taskfuse.ir.combine import COMBINES
from taskfuse.ir.elementwise_function import DTypeRule
from taskfuse.ir.expr import is_same_number
from taskfuse.ir.scalar import Expr, Facts, Sym, ge, le, lt, substitute
from taskfuse.kir.operands import Access, Immediate
from taskfuse.kir.witness import Accumulate, Apply, Definition, Reduce

REFERENCES = (COMBINES["maximum"], COMBINES["minimum"])
"""The combining functions of references."""
MOST = 64
"""The most cases of one element."""


class Guard(NamedTuple):
    """A reference that is assumed finite.

    Attributes:
        at: the reference.
        variables, conditions: the variables over which it ranges besides those of its term, with their conditions.
    """

    at: At
    variables: tuple[tuple[Sym, Expr], ...] = ()
    conditions: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class LinearForm:
    """A constant, which may be infinite, plus multiples of elements.

    Attributes:
        terms: the elements, each with its coefficient, which is not 0.
        guards: references that are finite where the element has this form; if one is infinite, the element is still finite.
        raw: references without a guard.
        narrowed: narrower types to which intermediate values are rounded.
    """

    terms: tuple[tuple[At, Fraction], ...] = ()
    constant: Fraction | float = Fraction(0)
    guards: frozenset[Guard] = frozenset()
    raw: frozenset[Guard] = frozenset()
    narrowed: frozenset[DType] = frozenset()

    def __add__(self, other: LinearForm) -> LinearForm:
        sums = dict(self.terms)
        for at, q in other.terms:
            p = sums.get(at, Fraction(0))
            if p * q < 0 and reference(at) is None:
                raise Different(f"{shown(at)} may be infinite, and an exponent has it twice")
            sums[at] = p + q
        made = tuple((at, q) for at, q in sums.items() if q)
        return LinearForm(made, self.constant + other.constant, self.guards | other.guards, self.raw | other.raw, self.narrowed | other.narrowed)

    def times(self, q: Fraction) -> LinearForm:
        """A multiple by a nonzero number."""
        return replace(self, terms=tuple((at, q * p) for at, p in self.terms), constant=self.constant * q)

    def at(self, values: Mapping[str, Expr]) -> LinearForm:
        """The form with some symbols substituted."""
        moved = LinearForm((), self.constant, moved_guards(self.guards, values), moved_guards(self.raw, values), self.narrowed)
        for at, q in self.terms:
            moved += LinearForm(((moved_to(at, values), q),))
        return moved


def moved_guards(guards: frozenset[Guard], values: Mapping[str, Expr]) -> frozenset[Guard]:
    """References with some symbols substituted."""
    return frozenset(
        Guard(moved_to(g.at, values), tuple((v, substitute(n, values)) for v, n in g.variables), tuple(substitute(c, values) for c in g.conditions))
        for g in guards
    )


class FormCase(NamedTuple):
    """The form of an element under some conditions."""

    conditions: tuple[Expr, ...]
    form: LinearForm


def number(at: At) -> Fraction | float | None:
    """The value of a constant; ``None`` for anything else."""
    match at.operand:
        case Immediate(value=value, dtype=dtype) if dtype.is_float and value == value:
            return float(value) if isinf(value) else Fraction(value)
        case _:
            return None


class LinearForms:
    """The linear forms of elements.

    Args:
        stops: tensors whose elements are atoms.
    """

    def __init__(self, elements: ElementPairs, stops: frozenset[str]) -> None:
        self.elements = elements
        self.stops = stops
        self._known: dict[tuple[At, Facts], tuple[FormCase, ...]] = {}
        self._names: dict[At, set[At]] = {}

    # -- elements -------------------------------------------------------------------------------------------------------------------

    def cases(self, at: At, facts: Facts) -> tuple[FormCase, ...]:
        """An element as linear forms of others, each with its conditions.

        Raises:
            Different: it has too many cases, or it is not proved that one always applies.
        """
        found = self._known.get((at, facts))
        if found is None:
            found = tuple(self._cases(at, facts))
            if len(found) > MOST:
                raise Different("an exponent has too many cases")
            self._known[at, facts] = found
            for case in found:
                if len(case.form.terms) == 1 and case.form.terms[0][1] == 1 and not case.form.constant:
                    self._names.setdefault(case.form.terms[0][0], set()).add(at)
        return found

    def only(self, at: At, facts: Facts) -> LinearForm | None:
        """The linear form of an element with a single case; ``None`` for others."""
        found = self.cases(at, facts)
        return found[0].form if len(found) == 1 and not found[0].conditions else None

    def _cases(self, at: At, facts: Facts) -> Iterator[FormCase]:
        at = at.side.seen(at, facts)
        value = number(at)
        if value is not None:
            yield FormCase((), LinearForm(constant=value))
            return
        d = self.defined(at)
        chosen = list(at.side.open_cases(at.operand, facts)) if d is not None and isinstance(at.operand, Access) else []
        if chosen:
            yield from self._each(chosen, facts)
        elif isinstance(d, Definition) and isinstance(d.rule, Apply):
            yield from self._of_function(at, d, d.rule, facts)
        else:
            yield _leaf(at)

    def defined(self, at: At) -> Definition | None:
        """The definition of an element that is not an atom."""
        d = at.side.defined(at.operand)
        return None if d is None or d.tensor in self.stops else d

    def _each(self, chosen: Sequence[ChoiceOf], facts: Facts) -> Iterator[FormCase]:
        for value, conditions in each_value(chosen, facts):
            for case in self.cases(value, assuming(facts, conditions)):
                yield FormCase((*conditions, *case.conditions), case.form)

    def _of_function(self, at: At, d: Definition, rule: Apply, facts: Facts) -> Iterator[FormCase]:
        assert isinstance(at.operand, Access)
        operands = [at.side.at(o, points(at.operand.index)) for o in rule.operands]
        made: list[FormCase] = []
        if rule.dtype.is_float and d.dtype.is_float:
            if rule.op.rule is DTypeRule.SELECT:
                value = self.decided(operands, facts)
                if value is None:
                    yield _leaf(at)
                    return
                guards, chosen = value
                made = [FormCase(c.conditions, replace(c.form, guards=c.form.guards | guards, raw=c.form.raw - guards)) for c in self.cases(chosen, facts)]
            else:
                made = list(self._sums(rule, operands, facts))
        narrowed = rounds(at, d, rule)
        if not made:
            yield _leaf(at)
        elif not narrowed:
            yield from made
        elif any(c.form.guards or any(reference(a) is not None for a, _ in c.form.terms) for c in made):
            for c in made:
                yield FormCase(c.conditions, replace(c.form, narrowed=c.form.narrowed | narrowed))
        else:
            yield _leaf(at)

    def _sums(self, rule: Apply, operands: Sequence[At], facts: Facts) -> Iterator[FormCase]:
        """The function of linear forms, if that is one; nothing, if not."""
        name = rule.op.name
        if rule.op in CONVERSIONS:
            if operands[0].side.dtype(operands[0].operand).is_float:
                yield from self.cases(operands[0], facts)
        elif name in ("neg", "add", "sub"):
            for first in self.cases(operands[0], facts):
                if name == "neg":
                    yield FormCase(first.conditions, first.form.times(Fraction(-1)))
                    continue
                inside = assuming(facts, first.conditions)
                for second in self.cases(operands[1], inside):
                    other = second.form if name == "add" else second.form.times(Fraction(-1))
                    yield FormCase((*first.conditions, *second.conditions), first.form + other)
        elif name in ("mul", "div"):
            for one, other in ((0, 1), (1, 0)) if name == "mul" else ((0, 1),):
                by = self.only(operands[other], facts)
                if by is not None and not by.terms and by.constant and isinstance(by.constant, Fraction):
                    q = by.constant if name == "mul" else 1 / by.constant
                    yield from (FormCase(c.conditions, c.form.times(q)) for c in self.cases(operands[one], facts))
                    return
        elif name == "fma":
            by = self.only(operands[1], facts)
            if by is not None and not by.terms and by.constant and isinstance(by.constant, Fraction):
                for first in self.cases(operands[0], facts):
                    for second in self.cases(operands[2], assuming(facts, first.conditions)):
                        yield FormCase((*first.conditions, *second.conditions), first.form.times(by.constant) + second.form)

    # -- choices by data ------------------------------------------------------------------------------------------------------------

    def decided(self, operands: Sequence[At], facts: Facts) -> tuple[frozenset[Guard], At] | None:
        """The value of a choice by data where some references are finite, and these; ``None``: it is undecided."""
        condition, value, other = operands
        found = self._of_condition(condition, facts)
        if found is None:
            return None
        guards, holds = found
        rejected, chosen = (other, value) if holds else (value, other)
        return (guards, chosen) if self._is_real(rejected, facts) else None

    def _is_real(self, at: At, facts: Facts) -> bool:
        """True for a number, and for an exponential with a bound, also where a reference that it has is infinite."""
        at = at.side.seen(at, facts)
        if isinstance(number(at), Fraction):
            return True
        for one, other in self.operands(at, "minimum"):
            exponential = one.side.seen(one, facts)
            if isinstance(number(other), Fraction):
                powers = [*self.operands(exponential, "exp"), *self.operands(exponential, "exp2")]
                return any(form is not None and len(form.terms) <= 1 for form in (self.only(p, facts) for (p,) in powers))
        return False

    def operands(self, at: At, name: str, *, is_exact: bool = False) -> Iterator[tuple[At, ...]]:
        """The operands of a function of floats with that name, in both orders if it is commutative; empty for other elements.

        Args:
            is_exact: only if the function computes in a dtype that has all of their values.
        """
        d = self.defined(at)
        match d:
            case Definition(rule=Apply(op=op, operands=given, dtype=dtype)) if op.name == name and dtype.is_float and isinstance(at.operand, Access):
                operands = tuple(at.side.at(o, points(at.operand.index)) for o in given)
                if is_exact and not all(contains(dtype, o.side.dtype(o.operand)) for o in operands):
                    return
                yield operands
                if op.commutative:
                    yield operands[::-1]
            case _:
                return

    def _of_condition(self, at: At, facts: Facts) -> tuple[frozenset[Guard], bool] | None:
        """Whether a condition holds where some references are finite, and these."""
        at = at.side.seen(at, facts)
        d = at.side.defined(at.operand)
        match d:
            case Definition(rule=Apply(op=op, operands=given, dtype=dtype)) if isinstance(at.operand, Access) and dtype.is_float:
                operands = [at.side.at(o, points(at.operand.index)) for o in given]
            case _:
                return None
        name = op.name
        if name == "isfinite":
            guards = self._of_references(operands[0], dtype, facts)
            return None if guards is None else (guards, True)
        if name == "isinf":
            guards = self._of_references(operands[0], dtype, facts, (inf, -inf))
            return None if guards is None else (guards, False)
        if name in ("eq", "ne"):
            for one, other in ((operands[0], operands[1]), (operands[1], operands[0])):
                value = number(other)
                if isinstance(value, float):
                    guards = self._of_references(one, dtype, facts, (value,))
                    return None if guards is None else (guards, name == "ne")
        return None

    def _of_references(self, at: At, computed: DType, facts: Facts, nothing: Sequence[float] = ()) -> frozenset[Guard] | None:
        """The references of which an element is a sum, if it is; they are finite where it is.

        Args:
            computed: the dtype in which the element is asked about: one that is too narrow for it has infinities of its own.
            nothing: infinities, one of which the element must be where one of them is of nothing; without them it may be anything that is not finite.
        """
        form = self.only(at, facts)
        if form is None or not form.terms or any(reference(a) is None for a, _ in form.terms):
            return None
        if form.narrowed or not contains(computed, at.side.dtype(at.operand)):
            return None
        infinities = {nothing_of(a) * (1 if q > 0 else -1) for a, q in form.terms}
        if nothing and (len(infinities) > 1 or not infinities <= {*nothing}):
            return None
        return form.guards | {Guard(a) for a, _ in form.terms}

    # -- bounds ---------------------------------------------------------------------------------------------------------------------

    def is_bounded(self, form: LinearForm, by: At, facts: Facts) -> bool:
        """True only if a form is one of a reference's terms, or a reference to some of them.

        This is first asked under what is known of the symbols of both alone: then it is one question for all terms around, and for all tensors.
        """
        names = frozenset[str]().union(symbols_of(by), *(symbols_of(at) for at, _ in form.terms))
        close = facts.closely(names)
        values = self.elements.numbered(names | close.symbols)
        known = close.renamed(values)
        if known is None:
            known, values = close, {}
        asked = form.at(values), moved_to(by, values), known
        if asked in self.elements.bounded or self._is_bounded(*asked):
            self.elements.bounded.add(asked)
            return True
        more = len(close.known) < len(facts.known) or self._names  # known of the symbols as they are
        return bool(more) and self._is_bounded(form, by, facts)

    def _is_bounded(self, form: LinearForm, by: At, facts: Facts, depth: int = 3) -> bool:
        if len(form.terms) == 1 and not form.constant:
            ((at, q),) = form.terms
            if q == 1 and is_one(at, by, facts):
                return True
        if self._is_term(form, by, facts, depth):
            return True
        if len(form.terms) == 1 and not form.constant and depth:
            ((at, q),) = form.terms
            if q == 1 and reference(at) is reference(by):
                return self._is_part(at, by, facts, depth)
        return False

    def is_same(self, a: At, b: At, facts: Facts) -> bool:
        """True only if two references are equal: each bounds the other."""
        return is_one(a, b, facts) or all(self.is_bounded(LinearForm(((x, Fraction(1)),)), y, facts) for x, y in ((a, b), (b, a)))

    def _is_part(self, at: At, by: At, facts: Facts, depth: int) -> bool:
        """True if a reference bounds all that another one combines."""
        for operand, variables, conditions in self._combined(at):
            inside = facts
            for v, n in variables:
                inside = inside.with_range(v.name, 0, n - 1)
            for case in self.cases(operand, assuming(inside, conditions)):
                here = assuming(inside, (*conditions, *case.conditions))
                if case.form.narrowed or (not case.form.terms and not self._is_nothing(case.form, by)):
                    return False
                if case.form.terms and not self._is_bounded(case.form, by, here, depth - 1):
                    return False
        return True

    def _is_nothing(self, form: LinearForm, by: At) -> bool:
        return reference(by) is not None and not form.terms and form.constant == nothing_of(by)

    def _is_term(self, form: LinearForm, by: At, facts: Facts, depth: int, unknown: tuple[tuple[Sym, Expr], ...] = (), known: tuple[Expr, ...] = ()) -> bool:
        """True if a form is one of what a reference combines, at some values of its variables."""
        for operand, variables, conditions in self._combined(by):
            free, every = (*unknown, *variables), (*known, *conditions)
            inside = facts
            for v, n in free:
                inside = inside.with_range(v.name, 0, n - 1)
            inner = operand.side.seen(operand, inside)
            if len(form.terms) == 1 and self._is_at(form, LinearForm(((inner, Fraction(1)),)), free, every, facts):
                return True
            if reference(inner) is reference(by) and depth and self._is_term(form, inner, facts, depth - 1, free, every):
                return True
            exact = (c for c in self.cases(operand, inside) if c.form.terms and not c.form.narrowed)
            if any(self._is_at(form, c.form, free, (*every, *c.conditions), facts) for c in exact):
                return True
        return False

    def _is_at(self, form: LinearForm, other: LinearForm, unknown: Sequence[tuple[Sym, Expr]], conditions: Sequence[Expr], facts: Facts) -> bool:
        """True if a form is another one at some values of unknown variables, at which conditions hold."""
        if len(form.terms) != len(other.terms) or form.constant != other.constant:
            return False
        found: dict[str, Expr] = {}
        wanted = {v.name for v, _ in unknown}
        for at, q in other.terms:
            mine = next((a for a, p in form.terms if p == q and _name(a) == _name(at)), None)
            if mine is None:
                return False
            for a, b in ((a, b) for a in self._all_names(at) for b in self._all_names(mine) if _name(a) == _name(b)):
                if isinstance(a.operand, Access) and isinstance(b.operand, Access):
                    for e, f in zip(a.operand.index, b.operand.index, strict=True):
                        learn(e, f, wanted, found)
        if len(found) < len(wanted):
            return False
        moved = other.at(found)
        if not all(any(p == q and is_one(a, at, facts) for a, p in form.terms) for at, q in moved.terms):
            return False
        ranges = [c for v, n in unknown for c in (ge(found[v.name], 0), lt(found[v.name], substitute(n, found)))]
        return all(follows(c, facts) for c in (*ranges, *(substitute(c, found) for c in conditions)))

    def _all_names(self, at: At) -> tuple[At, ...]:
        """The elements that are known to be one."""
        return at, *self._names.get(at, ())

    def _combined(self, at: At) -> Iterator[tuple[At, tuple[tuple[Sym, Expr], ...], tuple[Expr, ...]]]:
        """What a reference combines, with its variables and their conditions."""
        d = at.side.defined(at.operand)
        if reference(at) is None or not isinstance(at.operand, Access) or d is None:
            return
        match d.rule:
            case Reduce() as rule:
                points_of = reduced_points(at, d, rule, self.elements)
                yield at.side.at(rule.operands[0], points_of.point), points_of.variables, points_of.conditions
            case Accumulate() as rule:
                own = at.operand.index[rule.axis]
                v = self.elements.symbol()
                here = points(at.operand.index)
                within = (le(substitute(rule.start, here), v), (lt if rule.is_exclusive else le)(v, own))
                yield at.side.at(rule.operand, here | {f"i{rule.axis}": v}), ((v, d.space[rule.axis]),), within
            case _:
                return


def reference(at: At) -> object | None:
    """The combining function of a reference; ``None`` for another element, and for one that is rounded, which bounds nothing."""
    match at.side.defined(at.operand):
        case Definition(rule=Reduce(combine=combine, body=body, operands=(one,), rescaled=None, init=init, dtype=dtype), dtype=result) if body in CONVERSIONS:
            operand, starts = one, is_same_number(init.value, combine.neutral(dtype))
        case Definition(rule=Accumulate(combine=combine, operand=operand, dtype=dtype), dtype=result):
            starts = True
        case _:
            return None
    source = at.side.dtype(operand)
    is_exact = dtype.is_float and result.is_float and contains(dtype, source) and contains(result, source)
    return combine if combine in REFERENCES and starts and is_exact else None


def nothing_of(at: At) -> float:
    """The value of a reference that combines no element."""
    return -inf if reference(at) is COMBINES["maximum"] else inf


def is_one(a: At, b: At, facts: Facts) -> bool:
    """True if two operands of one side are one element, or one constant."""
    if a.side is not b.side:
        return False
    if isinstance(a.operand, Access) and isinstance(b.operand, Access):
        return a.operand.buffer == b.operand.buffer and all(is_equal(e, f, facts) for e, f in zip(a.operand.index, b.operand.index, strict=True))
    return a.operand == b.operand


def rounds(at: At, d: Definition, rule: Apply) -> frozenset[DType]:
    """The narrower types to which a function of floats rounds: those of its operands, or of its result."""
    taken = [at.side.dtype(o) for o in rule.operands if not isinstance(o, Immediate)]
    made = [rule.dtype for t in taken if t.is_float and not contains(rule.dtype, t)]
    computed = taken[0] if rule.op in CONVERSIONS and contains(rule.dtype, taken[0]) else rule.dtype
    return frozenset((*made, d.dtype) if not contains(d.dtype, computed) else made)


def _leaf(at: At) -> FormCase:
    raw = frozenset([Guard(at)]) if reference(at) is not None else frozenset[Guard]()
    return FormCase((), LinearForm(((at, Fraction(1)),), raw=raw))


def _name(at: At) -> object:
    return at.operand.buffer if isinstance(at.operand, Access) else at.operand
