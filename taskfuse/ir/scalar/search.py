"""Search for a proof that a form is not negative.

``form >= 0`` is reduced to simpler forms that imply it, until interval arithmetic decides one. A step replaces the occurrence ``c*t`` of one atom ``t`` by
``c*bound``, where the bound comes from the facts or the definition of ``t``, below or above by the sign of ``c``; or it subtracts a multiple of an
assumed form. The atom that depends on most others goes first: a loop index before the symbols in its bounds. Every step is an implication, so a
found proof is valid; a proof not found within the step limit means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from taskfuse.ir.scalar.arithmetic import add, add_all, divide_exact, divide_monomial, linear, linear_parts, mul, scale, sub
from taskfuse.ir.scalar.expr import (
    MEMORY,
    ONE,
    ZERO,
    And,
    Compare,
    Const,
    Element,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Not,
    Or,
    Product,
    Select,
    Sym,
    UpperBound,
    Xor,
    children,
    const,
    private,
)
from taskfuse.ir.scalar.facts import Facts
from taskfuse.ir.scalar.intervals import divisor, interval
from taskfuse.ir.scalar.logic import not_
from taskfuse.ir.scalar.lookups import lookups_of
from taskfuse.ir.scalar.memory import remembered
from taskfuse.ir.scalar.rewrite import Rewriter
from taskfuse.ir.scalar.samples import is_negative_somewhere
from taskfuse.ir.scalar.transform import rebuild

STEP_LIMIT = 32
PATIENCE = 4  # steps until samples are made and tried; before cases, for forms with tables, which are long, and where samples are known, they are tried at once
TERM_LIMIT = 24  # longer forms come from multiplying unrelated polynomials: no proof is near
ASSUMPTION_LIMIT = 3  # assumed forms that one proof may combine


def nonnegative(form: Expr, facts: Facts) -> bool:
    """Whether a proof of ``form >= 0`` was found."""
    lo, hi = interval(form, facts)
    if lo is not None and lo >= 0:
        return True
    if hi is not None and hi < 0:
        return False
    found = facts.sign_memo.get(form)
    if found is None and is_attained(form, facts):
        found = facts.sign_memo[form] = False
    if found is None and lookups_of(form) and (near := facts.about(form.free)) is not facts:
        found = facts.sign_memo[form] = nonnegative(form, near)
    if found is None:
        steps = _Steps(form, facts)
        found = not (steps.begin_sampled and steps.is_refuted()) and _Search(facts, steps).prove(form, ASSUMPTION_LIMIT)
        if not (found or steps.refuted) and (simpler := _without_remainders(form, facts)) is not None:
            found = nonnegative(*simpler)
        facts.sign_memo[form] = found
    return found


def is_attained(form: Expr, facts: Facts) -> bool:
    """True only if no step of a search tells more of a form, or of its sum with a constant, than its constant bounds: it is a sum of symbols that have such
    bounds, or none, and no assumed form has a symbol of it."""
    terms, _ = linear_parts(form)
    ranges, forms = facts.ranges, facts.forms
    for term, _ in terms:
        if not isinstance(term, Sym) or any([bound is not None and bound.free for bound in ranges.get(term.name, ())]):
            return False
    return not forms or all([form.free.isdisjoint(assumed.free) for assumed in forms])


_REMAINDER = private("remainder.").name
"""What the names of symbols for remainders begin with: no text has such names."""


def _without_remainders(form: Expr, facts: Facts) -> tuple[Expr, Facts] | None:
    """The form with a symbol of its range for each innermost remainder by a symbol that is divided again, or ``None``.

    A tile of one matrix in a batch is such a remainder: of the index of work, which the search would put in its place.
    """
    if not _has_remainder(form, False):
        return None
    found: dict[Expr, Expr] = {}
    taken = sum(name.startswith(_REMAINDER) for name in facts.ranges)

    def written(e: Expr, divided: bool) -> Expr:
        match e:
            case Mod(a, b) if divided and not isinstance(b, Const) and not _divides(a) and nonnegative(sub(b, ONE), facts):
                return found.setdefault(e, private(f"remainder.{taken + len(found)}"))
            case FloorDiv() | Mod():
                return rebuild(e, lambda x: written(x, True))
            case _:
                return rebuild(e, lambda x: written(x, divided))

    form = written(form, False)
    for e, symbol in found.items():
        assert isinstance(e, Mod)
        facts = facts.with_range(str(symbol), 0, sub(e.b, ONE))
    return (form, facts) if found else None


@remembered(MEMORY)
def _has_remainder(e: Expr, divided: bool) -> bool:
    """True if ``e`` has an innermost remainder by a symbol that is divided again, or is one that is ``divided``."""
    if divided and isinstance(e, Mod) and not isinstance(e.b, Const) and not _divides(e.a):
        return True
    divided = divided or isinstance(e, (FloorDiv, Mod))
    return any(_has_remainder(part, divided) for part in children(e))


def _divides(e: Expr) -> bool:
    """True if ``e`` has a quotient or remainder by a symbol."""
    return (isinstance(e, (FloorDiv, Mod)) and not isinstance(e.b, Const)) or any(map(_divides, children(e)))


@dataclass(frozen=True, slots=True)
class _Bound:
    """``t >= numerator/denominator`` (or ``<=``), with a positive denominator."""

    numerator: Expr
    denominator: int = 1


class _Steps:
    """The steps that a search has left, in all its cases. One that has not come to an end early, or comes to cases, looks for values at which the form is
    negative; one about tables begins with that, and so do all where samples are known.

    Attributes:
        begin_sampled: values are looked for before the first step.
        refuted: there are such values, so there are no more steps.
    """

    def __init__(self, form: Expr, facts: Facts) -> None:
        self.left = STEP_LIMIT
        self.begin_sampled = facts.samples is not None or bool(lookups_of(form))
        self._sampled_at = STEP_LIMIT - (0 if self.begin_sampled else PATIENCE)
        self.refuted = False
        self._is_sampled = False
        self._form = form
        self._facts = facts

    def take(self) -> bool:
        """Take a step. False: no step is left."""
        if self.left <= self._sampled_at and self.is_refuted():
            return False
        if self.left <= 0:
            return False
        self.left -= 1
        return True

    def is_refuted(self) -> bool:
        """Whether values are known at which the form is negative: they are looked for once."""
        if not self._is_sampled:
            self._is_sampled = True
            if is_negative_somewhere(self._form, self._facts):
                self.refuted = True
                self.left = 0
        return self.refuted


class _Search:
    """One search, with the steps that are left and the forms already tried."""

    def __init__(self, facts: Facts, steps: _Steps) -> None:
        self.facts = facts
        self.steps = steps
        self.tried: set[tuple[Expr, int]] = set()
        self.light = Rewriter.of(facts)

    def prove(self, form: Expr, assumptions: int) -> bool:
        if len(linear_parts(form)[0]) > TERM_LIMIT:
            return False
        form = self._tighten(self.light(form))
        lo, hi = interval(form, self.facts)
        if lo is not None and lo >= 0:
            return True
        if (hi is not None and hi < 0) or (form, assumptions) in self.tried or not self.steps.take():
            return False
        self.tried.add((form, assumptions))
        return self._eliminate(form, assumptions) or (assumptions > 0 and self._assume(form, assumptions))

    def _tighten(self, form: Expr) -> Expr:
        """The largest form that is not negative for the same integers."""
        terms, constant = linear_parts(form := self._without_rest(form))
        step = gcd(*(k * divisor(t, self.facts) for t, k in terms)) if terms else 0
        if step <= 1:
            return form
        form = add(form, const(step - 1 - constant % step))
        common = gcd(*(k for _, k in terms))
        return form if common == 1 else linear(((t, k // common) for t, k in terms), linear_parts(form)[1] // common)

    def _without_rest(self, form: Expr) -> Expr:
        """The form without terms that decide nothing: beside multiples of a number they never reach the next one, as ``y % 16`` in ``63 - 16*x - y % 16``."""
        terms, constant = linear_parts(form)
        for step in sorted({abs(k) for _, k in terms if abs(k) > 1}, reverse=True):
            rest = [(t, k) for t, k in terms if k % step]
            lo, hi = interval(linear(rest, constant), self.facts) if rest else (None, None)
            if lo is not None and hi is not None and lo // step == hi // step:
                return linear([(t, k) for t, k in terms if not k % step], lo // step * step)
        return form

    def _assume(self, form: Expr, assumptions: int) -> bool:
        """Adds the multiple of an assumed form that cancels one of the terms."""
        terms = dict(linear_parts(form)[0])
        for assumed in [form for known in self.facts.forms for form in dict.fromkeys((known, self._without_rest(known)))]:
            for term, k in linear_parts(assumed)[0]:
                mine = terms.get(term)
                if mine is not None and mine * k > 0:
                    common = gcd(mine, k)
                    rest = add_all([(form, abs(k) // common), (assumed, -abs(mine) // common)], 0)
                    if self.prove(rest, assumptions - 1):
                        return True
        return False

    def _eliminate(self, form: Expr, assumptions: int) -> bool:
        for atom in self._atoms(form):
            cofactor, rest = _collect(form, atom)
            match atom:
                case Min(args) if self._sign(cofactor) > 0:
                    return all(self.prove(add(rest, mul(cofactor, arg)), assumptions) for arg in args)
                case Max(args) if self._sign(cofactor) < 0:
                    return all(self.prove(add(rest, mul(cofactor, arg)), assumptions) for arg in args)
                case Select(cond, a, b):
                    return self._cases(cond, add(rest, mul(cofactor, a)), add(rest, mul(cofactor, b)), assumptions)
                case Compare() | And() | Or() | Not():
                    return self._cases(atom, add(rest, cofactor), rest, assumptions)
                case _:
                    pass
            candidates = list(self._replacements(atom, cofactor, rest))
            if any(self.prove(candidate, assumptions) for candidate in candidates):
                return True
            if candidates:
                return False
        return False

    def _cases(self, cond: Expr, yes: Expr, no: Expr, assumptions: int) -> bool:
        if self.steps.is_refuted():  # cases share nothing of what is known so far
            return False
        return all(_Search(self.facts.with_assumption(case), self.steps).prove(form, assumptions) for case, form in ((cond, yes), (not_(cond), no)))

    def _atoms(self, form: Expr) -> list[Expr]:
        """The atoms of a form that a step may replace, those that depend on most others first."""
        atoms: dict[Expr, None] = {}
        for term, _ in linear_parts(form)[0]:
            if isinstance(term, Product):
                atoms.update(dict.fromkeys(term.factors))
            elif not isinstance(term, Sym) or self._depth(term) > 0:  # else interval arithmetic has used all that bounds it
                atoms[term] = None
        return sorted(atoms, key=lambda atom: (-self._depth(atom), atom.key))

    def _depth(self, e: Expr) -> int:
        found = self.facts.depth_memo.get(e)
        if found is None:
            operands = children(e)
            if isinstance(e, Sym):
                operands = tuple(bound for bound in self.facts.ranges.get(e.name, ()) if bound is not None and bound.free)
            found = 1 + max(map(self._depth, operands)) if operands else 0
            self.facts.depth_memo[e] = found
        return found

    def _sign(self, e: Expr) -> int:
        """1 if ``e >= 0``, -1 if ``e <= 0``, else 0 for unknown."""
        if isinstance(e, Const):
            return 1 if e.value >= 0 else -1
        lo, hi = interval(e, self.facts)
        if lo is not None and lo >= 0:
            return 1
        if hi is not None and hi <= 0:
            return -1
        if self.prove(e, 0):
            return 1
        return -1 if self.prove(scale(e, -1), 0) else 0

    def _replacements(self, atom: Expr, cofactor: Expr, rest: Expr) -> Iterator[Expr]:
        """Forms without ``atom`` (or with one occurrence less) that imply ``rest + cofactor*atom >= 0``."""
        if isinstance(atom, FloorDiv) and not isinstance(atom.b, Const):
            yield from self._quotient_bounds(atom, cofactor, rest)
        sign = self._sign(cofactor)
        if sign:  # a constant times a constant bound is what interval arithmetic has tried already
            for bound in self._bounds(atom, sign, constant=bool(cofactor.free)):
                # d*form >= 1 - d suffices: form is an integer
                yield add_all([(rest, bound.denominator), (mul(cofactor, bound.numerator), 1)], bound.denominator - 1)
            return
        positive, negative = list[tuple[Expr, int]](), list[tuple[Expr, int]]()
        terms, constant = linear_parts(cofactor)
        for term, k in [*terms, (ONE, constant)]:
            term_sign = self._sign(scale(term, k))
            if term_sign == 0:
                return
            (positive if term_sign > 0 else negative).append((term, k))
        for lower in self._bounds(atom, 1, constant=True):
            for upper in self._bounds(atom, -1, constant=True):
                if lower.denominator == upper.denominator == 1:
                    yield add_all([(rest, 1), (mul(add_all(positive, 0), lower.numerator), 1), (mul(add_all(negative, 0), upper.numerator), 1)], 0)

    def _bounds(self, atom: Expr, sign: int, *, constant: bool) -> Iterator[_Bound]:
        """Lower (``sign`` 1) or upper bounds of an atom, with its interval's if ``constant``."""
        yield from self._lower(atom) if sign > 0 else self._upper(atom)
        if constant:
            lo, hi = interval(atom, self.facts)
            end = lo if sign > 0 else hi
            if end is not None:
                yield _Bound(const(end))

    def _quotient_bounds(self, atom: FloorDiv, cofactor: Expr, rest: Expr) -> Iterator[Expr]:
        """Bounds by a symbolic divisor ``b > 0``: ``a - b + 1 <= b*(a//b) <= a``. If ``b`` does not divide the cofactor, the form is multiplied by ``b``."""
        sign = self._sign(cofactor)
        if sign == 0 or self._sign(atom.b) <= 0:
            return
        bound = add_all([(atom.a, 1), (atom.b, -1)], 1) if sign > 0 else atom.a
        times = divide_exact(cofactor, atom.b)
        if times is None:
            yield add_all([(mul(rest, atom.b), 1), (mul(cofactor, bound), 1), (atom.b, 1)], -1)  # b*form >= 1 - b suffices: form is an integer
        else:
            yield add(rest, mul(times, bound))

    def _lower(self, atom: Expr) -> Iterator[_Bound]:
        match atom:
            case Sym(name):
                low = self.facts.ranges.get(name, (None, None))[0]
                if low is not None and low.free:
                    yield _Bound(low)
            case FloorDiv(a, Const(b)) if b > 0:
                yield _Bound(add(a, const(1 - b)), b)
            case FloorDiv(a, b) | Mod(a, b) if self._sign(b) > 0 and (isinstance(atom, Mod) or self._sign(a) > 0):
                yield _Bound(ZERO)
            case Max(args):
                yield from map(_Bound, args)
            case Element(low=low) if low.free:
                yield _Bound(low)
            case UpperBound():
                yield _Bound(ZERO)
            case _:
                pass

    def _upper(self, atom: Expr) -> Iterator[_Bound]:
        match atom:
            case Sym(name):
                high = self.facts.ranges.get(name, (None, None))[1]
                if high is not None and high.free:
                    yield _Bound(high)
            case FloorDiv(a, Const(b)) if b > 0:
                yield _Bound(a, b)
            case FloorDiv(a, b) if self._sign(a) > 0 and self._sign(b) > 0:
                yield _Bound(a)
            case Mod(a, b):
                if b.free and self._sign(b) > 0:
                    yield _Bound(sub(b, ONE))
                if self._sign(a) > 0 and self._sign(b) > 0:
                    yield _Bound(a)
            case Min(args):
                yield from map(_Bound, args)
            case Element(high=high) if high.free:
                yield _Bound(high)
            case UpperBound() if self._sign(atom.most) > 0:
                yield _Bound(atom.most)
            case Xor(a, b) if self._sign(a) > 0 and self._sign(b) > 0:
                yield _Bound(add(a, b))
            case _:
                pass


def _collect(form: Expr, atom: Expr) -> tuple[Expr, Expr]:
    """``(cofactor, rest)`` with ``form = cofactor*atom + rest``."""
    terms, constant = linear_parts(form)
    cofactor: list[tuple[Expr, int]] = []
    rest: list[tuple[Expr, int]] = []
    for term, k in terms:
        quotient = divide_monomial(term, atom) if isinstance(term, Product) or term is atom else None
        if quotient is None:
            rest.append((term, k))
        else:
            cofactor.append((quotient, k))
    return add_all(cofactor, 0), linear(rest, constant)
