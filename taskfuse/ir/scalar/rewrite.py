"""The rewriting rules of ``simplify``.

A ``Rewriter`` has the rules; its ``nonnegative`` decides their side conditions. Here that is interval arithmetic, which the
prover itself uses on its own forms; ``simplify`` uses the same rules with the prover behind them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import Final

from taskfuse.ir.scalar.arithmetic import add, add_all, cancel, divide_exact, factors, floordiv, linear, linear_parts, mod, monomial, mul, scale, sub
from taskfuse.ir.scalar.expr import FALSE, ONE, TRUE, ZERO, And, Compare, CompareOp, Const, Expr, FloorDiv, Max, Min, Mod, Or, Select, Sum, Sym, const
from taskfuse.ir.scalar.facts import Facts
from taskfuse.ir.scalar.intervals import divisor, interval
from taskfuse.ir.scalar.logic import and_, compare, maximum, minimum, not_, or_, select
from taskfuse.ir.scalar.transform import rebuild

PENDING: Final = Expr()
"""Placeholder in the cache for a result that is being computed."""


class Rewriter:
    """Rewrites expressions to simpler ones that are equal wherever ``facts`` hold.

    Args:
        facts: the facts that may be used.
        memo: results so far, kept with the facts.
    """

    def __init__(self, facts: Facts, memo: dict[Expr, Expr]) -> None:
        self.facts = facts
        self.memo = memo

    @classmethod
    def of(cls, facts: Facts) -> Rewriter:
        """The rewriter for ``facts``."""
        return cls(facts, facts.light_memo)

    def nonnegative(self, form: Expr) -> bool:
        """Whether ``form >= 0`` certainly holds."""
        lo, _ = interval(form, self.facts)
        return lo is not None and lo >= 0

    def __call__(self, e: Expr) -> Expr:
        """The simplified expression."""
        if isinstance(e, Const):
            return e
        if isinstance(e, Sym):
            lo, hi = interval(e, self.facts)
            return const(lo) if lo is not None and lo == hi else e
        found = self.memo.get(e)
        if found is PENDING:  # two rules undo each other
            self.facts.family.is_circular = True
            return e
        if found is None:
            self.memo[e] = PENDING
            found = self._step(e)
            if found is not e:
                found = self(found)
            self.memo[e] = found
        return found

    def under(self, condition: Expr) -> Rewriter:
        """The rewriter for code that runs only where ``condition`` holds."""
        return self if isinstance(condition, Const) else self.of(self.facts.with_assumption(condition))

    def _step(self, e: Expr) -> Expr:
        match e:
            case And(args):
                return and_(*self._junction(args, negate=False))
            case Or(args):
                return or_(*self._junction(args, negate=True))
            case Select(cond, a, b):
                condition = self(cond)
                if isinstance(condition, Const):
                    return self(a if condition is TRUE else b)
                return select(condition, self.under(condition)(a), self.under(not_(condition))(b))
            case _:
                result = rebuild(e, self)
        lo, hi = interval(result, self.facts)
        if lo is not None and lo == hi:
            return const(lo)
        match result:
            case Sum(terms, constant):
                return self._sum(result, terms, constant)
            case FloorDiv(a, b) if b is not ZERO:
                return self._floordiv(result, a, b)
            case Mod(a, b) if b is not ZERO:
                return self._mod(result, a, b)
            case Min(args):
                return minimum(*self._extremes(args, 1))
            case Max(args):
                return maximum(*self._extremes(args, -1))
            case Compare(op, a, b):
                return self._compare(result, op, a, b)
            case _:
                return result

    # Sums

    def _sum(self, e: Expr, terms: tuple[tuple[Expr, int], ...], constant: int) -> Expr:
        """``b*(a//b) + a % b`` is ``a``; ``(x//b % a)*b + x % b`` is ``x % (a*b)``; ``c*(x//c)`` is ``x`` for a multiple ``x`` of ``c``."""
        has_quotient = False
        for i, (term, k) in enumerate(terms):
            for atom in factors(term):
                match atom:
                    case FloorDiv(x, Const(c)) if c > 0:
                        has_quotient = True
                        if k % c == 0 and divisor(x, self.facts) % c == 0:
                            exact = mul(scale(x, k // c), cancel(term, atom))
                            return add_all([*terms[:i], *terms[i + 1 :], (exact, 1)], constant)
                    case FloorDiv():
                        has_quotient = True
                    case _:
                        pass
        mods = [(term, k) for term, k in terms for atom in factors(term) if isinstance(atom, Mod)]
        if has_quotient:
            for term, k in mods:
                for rule in (self._without_mod, self._without_reduced_mod):
                    joined = rule(e, term, k)
                    if joined is not None:
                        return joined
        if len(mods) > 1:
            for low, k in mods:
                for high, k_high in mods:
                    joined = self._join_mods(e, (low, k), (high, k_high))
                    if joined is not None:
                        return joined
        return e

    def _without_mod(self, e: Expr, term: Expr, k: int) -> Expr | None:
        """Replaces a remainder by what defines it, if the quotient then cancels."""
        for atom in factors(term):
            if isinstance(atom, Mod):
                rest = cancel(term, atom)
                defined = floordiv(atom.a, atom.b)
                for quotient in dict.fromkeys((defined, self(defined))):
                    joined = add(e, scale(mul(rest, sub(sub(atom.a, mul(atom.b, quotient)), atom)), k))
                    left = _divisions(joined) - _divisions(atom.a) * (not _has_factor(joined, quotient))
                    if left <= _divisions(e) - 2:  # the remainder and the quotient are gone
                        return joined
        return None

    def _without_reduced_mod(self, e: Expr, term: Expr, k: int) -> Expr | None:
        """``c*(x//(c*d)) + y % c`` is ``x//d`` if ``y`` and ``x//d`` differ by a multiple of ``c``, as where multiples of ``c`` were dropped from ``y``."""
        for atom in factors(term):
            match atom:
                case Mod(y, Const(c)) if c > 0:
                    rest = cancel(term, atom)
                    for other, m in linear_parts(e)[0]:
                        for part in factors(other) if m == k * c else ():
                            match part:
                                case FloorDiv(x, Const(n)) if n > 0 and n % c == 0 and cancel(other, part) is rest:
                                    number = self(floordiv(x, const(n // c)))
                                    if self(mod(sub(y, number), const(c))) is ZERO:
                                        return add_all([(e, 1), (term, -k), (other, -m), (mul(rest, number), k)], 0)
                                case _:
                                    pass
                case _:
                    pass
        return None

    def _join_mods(self, e: Expr, low: tuple[Expr, int], high: tuple[Expr, int]) -> Expr | None:
        match low[0], divide_exact(scale(*high), low[0].b) if isinstance(low[0], Mod) else None:
            case Mod(x, b), (Mod(y, a) | Sum(((Mod(y, a), _),), 0)) as inner if floordiv(x, b) is y and self._positive_divisor(a) and self._positive_divisor(b):
                if linear_parts(inner)[0][0][1] == low[1]:
                    parts = [(low[0], -low[1]), (high[0], -high[1]), (mod(x, mul(a, b)), low[1])]
                    return add(e, add_all(parts, 0))
            case _:
                pass
        return None

    # Quotients and remainders

    def _positive_divisor(self, e: Expr) -> bool:
        """Whether a divisor that occurs in the expression is positive: 0 would leave the expression without a value."""
        return self.nonnegative(e)

    def _within(self, e: Expr, size: Expr) -> bool:
        """Whether ``0 <= e < size``."""
        return self.nonnegative(e) and self.nonnegative(add_all([(size, 1), (e, -1)], -1))

    def _floordiv(self, e: Expr, a: Expr, b: Expr) -> Expr:
        quotient = self._quotient(a, b)
        if quotient is not None:
            return quotient
        exact, rest = self._split_exact(a, b)
        if exact:
            return add_all([*((floordiv(scale(t, k), b), 1) for t, k in exact), (floordiv(rest, b), 1)], 0)
        if isinstance(a, FloorDiv) and self._positive_divisor(b):  # (x//d)//b = x//(d*b) for b > 0
            return floordiv(a.a, mul(a.b, b))
        for g, high, low in self._splits(a, b):
            if self._within(low, g):  # (g*high + low)//(g*d) = high//d for 0 <= low < g
                return floordiv(high, cancel(b, g))
        divided = self._long_division(a, b)
        if divided is not None:
            return divided[0]
        return e

    def _mod(self, e: Expr, a: Expr, b: Expr) -> Expr:
        quotient = self._quotient(a, b)
        if quotient is not None:
            return sub(a, mul(quotient, b))
        if isinstance(b, Const) and divisor(a, self.facts) % b.value == 0:
            return ZERO
        exact, rest = self._split_exact(a, b)
        if exact:
            return mod(rest, b)
        for g, high, low in self._splits(a, b):
            if self._within(low, g):  # (g*high + low) % (g*d) = g*(high % d) + low for 0 <= low < g
                return add(mul(g, mod(high, cancel(b, g))), low)
        divided = self._long_division(a, b)
        if divided is not None:
            return divided[1]
        return e

    def _quotient(self, a: Expr, b: Expr) -> Const | None:
        """The value of ``a//b`` if it is one of a few constants."""
        lo, hi = interval(a, self.facts)
        if isinstance(b, Const):
            if b.value > 0 and lo is not None and hi is not None and lo // b.value == hi // b.value:
                return const(lo // b.value)
            if not a.free or b.value <= 0:
                return None
        possible = self._possible_quotients(a, b)
        for q in (0, 1, -1):
            if (possible is not None and q not in possible) or (q >= 0 and hi is not None and hi < 0) or (q < 0 and lo is not None and lo >= 0):
                continue
            if self._within(sub(a, scale(b, q)), b):
                return const(q)
        return None

    def _possible_quotients(self, a: Expr, b: Expr) -> tuple[int, ...] | None:
        """The only values that ``a//b`` may have everywhere; ``None``: any."""
        del a, b
        return None

    def _split_exact(self, a: Expr, b: Expr) -> tuple[list[tuple[Expr, int]], Expr]:
        """The terms of ``a`` that the facts make multiples of the constant ``b``, and the rest; nothing if there is no rest."""
        if not isinstance(b, Const) or b.value <= 0:
            return [], a
        terms, constant = linear_parts(a)
        exact = [(t, k) for t, k in terms if k * divisor(t, self.facts) % b.value == 0]
        if len(exact) == len(terms) and constant == 0 and len(terms) == 1:
            return [], a
        return exact, linear([item for item in terms if item not in exact], constant)

    def _splits(self, a: Expr, b: Expr) -> Iterable[tuple[Expr, Expr, Expr]]:
        """Ways to write ``a = g*high + low`` where the single term ``b`` is a multiple of ``g``."""
        terms_b, constant_b = linear_parts(b)
        if len(terms_b) > 1 or (terms_b and constant_b):
            return
        terms, constant = linear_parts(a)
        base, k_b = terms_b[0] if terms_b else (ONE, constant_b)
        seen: set[Expr] = {ONE, b}
        for term, k in terms:
            number = gcd(k, k_b)
            g = const(number)
            if base is not ONE:
                left = list(factors(term))
                shared: list[Expr] = []
                for factor in factors(base):
                    if factor in left:
                        left.remove(factor)
                        shared.append(factor)
                if shared:
                    g = scale(monomial(shared), number)
            if g in seen:
                continue
            seen.add(g)
            high, low = list[tuple[Expr, int]](), list[tuple[Expr, int]]()
            for t, m in terms:
                quotient = divide_exact(scale(t, m), g)
                if quotient is None:
                    low.append((t, m))
                else:
                    high.append((quotient, 1))
            if isinstance(g, Const):
                yield g, add_all(high, constant // g.value), linear(low, constant % g.value)
            else:
                yield g, add_all(high, 0), linear(low, constant)

    def _long_division(self, a: Expr, b: Expr) -> tuple[Expr, Expr] | None:
        """Quotient and remainder of polynomials for a divisor of several terms, if the remainder is in its range."""
        terms_b, constant_b = linear_parts(b)
        if len(terms_b) + (constant_b != 0) < 2:
            return None
        lead, k_lead = max(terms_b, key=lambda item: (len(factors(item[0])), item[0].key))
        quotient, rest = ZERO, a
        for _ in range(8):
            step = next((q for t, k in linear_parts(rest)[0] if k % k_lead == 0 and (q := divide_exact(scale(t, k // k_lead), lead)) is not None), None)
            if step is None:
                break
            quotient, rest = add(quotient, step), sub(rest, mul(step, b))
            if self._within(rest, b):
                return quotient, rest
        return None

    # Comparisons, extremes, booleans

    def _extremes(self, args: tuple[Expr, ...], sign: int) -> list[Expr]:
        """Drops arguments of a minimum (sign 1) or maximum (sign -1) that another argument always beats."""
        kept = list(args)
        for arg in args:
            if len(kept) > 1 and any(other is not arg and self.nonnegative(scale(sub(arg, other), sign)) for other in kept):
                kept.remove(arg)
        return kept

    def decide(self, e: Expr) -> bool | None:
        """The truth of a comparison, if the facts decide it."""
        if e in self.facts.known:
            return True
        if not_(e) in self.facts.known:
            return False
        match e:
            case Compare(CompareOp.LT, a, b):
                return self._decide_nonnegative(add_all([(b, 1), (a, -1)], -1))
            case Compare(CompareOp.LE, a, b):
                return self._decide_nonnegative(sub(b, a))
            case Compare(op, a, b):
                equal = self._decide_zero(sub(a, b))
                return equal if equal is None or op is CompareOp.EQ else not equal
            case _:
                return None

    def _decide_nonnegative(self, form: Expr) -> bool | None:
        if self.nonnegative(form):
            return True
        return False if self.nonnegative(add_all([(form, -1)], -1)) else None

    def _decide_zero(self, form: Expr) -> bool | None:
        form = self(form)
        terms, constant = linear_parts(form)
        if not terms:
            return constant == 0
        step = gcd(*(k * divisor(t, self.facts) for t, k in terms))
        if step and constant % step:
            return False
        below, above = self.nonnegative(scale(form, -1)), self.nonnegative(form)
        if below and above:
            return True
        if (above and self.nonnegative(form - 1)) or (below and self.nonnegative(-form - 1)):
            return False
        return None

    def _compare(self, e: Expr, op: CompareOp, a: Expr, b: Expr) -> Expr:
        verdict = self.decide(e)
        if verdict is not None:
            return TRUE if verdict else FALSE
        terms_a, const_a = linear_parts(a)
        terms_b, const_b = linear_parts(b)
        shared = set(terms_a) & set(terms_b)
        if shared:
            a = linear((item for item in terms_a if item not in shared), const_a)
            b = linear((item for item in terms_b if item not in shared), const_b)
            return compare(op, a, b)
        return e

    def _junction(self, args: tuple[Expr, ...], *, negate: bool) -> list[Expr]:
        """Simplifies each operand where the ones before it hold (a conjunction) or fail (a disjunction), then drops those that later ones imply."""
        here: Rewriter = self
        done: list[Expr] = []
        for arg in args:
            e = here(arg)
            done.append(e)
            here = here.under(not_(e) if negate else e)
        kept = list(done)
        for i, e in enumerate(done[:-1]):
            later = self
            for other in done[i + 1 :]:
                later = later.under(not_(other) if negate else other)
            if later(e) is (FALSE if negate else TRUE):
                kept.remove(e)
        return kept


def _has_factor(e: Expr, atom: Expr) -> bool:
    """Whether a term of a sum has a factor."""
    return any(other is atom for term, _ in linear_parts(e)[0] for other in factors(term))


def _divisions(e: Expr) -> int:
    """The number of terms with a quotient or a remainder."""
    return sum(any(isinstance(atom, (FloorDiv, Mod)) for atom in factors(term)) for term, _ in linear_parts(e)[0])
