"""Linear arithmetic over the integers: whether a form is never negative.

``form <= -1`` is added to inequalities that hold, and atoms are eliminated one by one (Fourier-Motzkin, with constants rounded to what integers
allow) until a contradiction is left. The inequalities are the bounds and conditions that are known and the definitions of quotients, remainders,
minima and maxima. Products of atoms are atoms of their own; what is known of them are products of an inequality with factors that are not negative.

Some of these have conditions, which are questions of their own, down to a *depth*; at a depth of 1, intervals alone answer them. A question is asked in
rising order of what it costs: of one inequality, at a depth of 1, in full. Each way uses only valid inequalities, so a yes of any of them suffices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from taskfuse.check.constraints import Constraints
from taskfuse.check.ranges import terms_of
from taskfuse.ir.scalar import Const, Element, Expr, FloorDiv, Max, Min, Mod, Product, Sum, Sym, UpperBound, Xor, const

ROWS = 160
ATOMS = 40
DEPTH = 3
QUOTIENTS = 6

Row = tuple[dict[Expr, int], int]
"""``sum of k*atom + constant >= 0``."""

_Key = frozenset[tuple[Expr, int]]


class Linear:
    """Questions under some constraints, with cached answers."""

    def __init__(self, constraints: Constraints) -> None:
        self.ranges = constraints.ranges
        self.facts = constraints.facts
        ends = ((e, *span) for e, span in self.facts.intervals.items() if not isinstance(e, Sym))  # conditions on one term
        self._assumed = (*self.facts.forms, *(form for e, low, high in ends for form in _between(e, low, high)))
        self._known: dict[Expr, tuple[bool, int]] = {}
        self._greatest: dict[FloorDiv, int | None] = {}

    @staticmethod
    def of(constraints: Constraints) -> Linear:
        """The instance for some constraints."""
        found = constraints.linear
        if not isinstance(found, Linear):
            constraints.linear = found = Linear(constraints)
        return found

    def nonnegative(self, form: Expr, depth: int = DEPTH) -> bool:
        """True only if ``form >= 0`` wherever the constraints hold."""
        lo, hi = self.ranges.of(form)
        if lo is not None and lo >= 0:
            return True
        if (hi is not None and hi < 0) or depth == 0:
            return False
        found, tried = self._known.get(form, (False, 0))
        if not found and tried < depth:
            self._known[form] = False, depth  # while it is being asked
            found = self._by_parts(form, depth) or self._decide(form, depth)
            self._known[form] = found, depth
        return found

    def _by_parts(self, form: Expr, depth: int) -> bool:
        """True for a sum, product or quotient of parts that are not negative."""
        match form:
            case Sum(terms, constant):
                return constant >= 0 and all(k > 0 for _, k in terms) and all(self.nonnegative(t, depth) for t, _ in terms)
            case Product(factors):
                return all(self.nonnegative(f, depth) for f in factors)
            case FloorDiv(a, b):
                return self.nonnegative(a, depth) and self.nonnegative(b - 1, depth - 1)
            case Mod(_, b):
                return self.nonnegative(b - 1, depth - 1)
            case _:
                return False

    def _decide(self, form: Expr, depth: int) -> bool:
        terms, _ = terms_of(form)
        for atom, k in terms:
            if (isinstance(atom, Min) and k > 0) or (isinstance(atom, Max) and k < 0):
                if any(self._at_least(form, e) for e in self._assumed if any(t is atom for t, _ in terms_of(e)[0])):
                    return True
                return all(self.nonnegative(form + (arg - atom) * k, depth) for arg in atom.args)
            if isinstance(atom, Product) and k > 0:
                for i, least in enumerate(atom.factors):
                    if isinstance(least, Min):
                        rest = _times((*atom.factors[:i], *atom.factors[i + 1 :]))
                        if self._is_positive(rest, depth):
                            return all(self.nonnegative(form + (rest * arg - atom) * k, depth) for arg in least.args)
        taken = next((atom for atom, k in terms if k < 0), None)  # what bounds the form has a bound of this one
        if taken is not None and any(self._at_least(form, e) for e in self._of(taken, 1)):
            return True
        tried: list[Expr] | None = None
        for level in (1, depth) if depth == DEPTH else (depth,):
            known = self._inequalities(form, level)
            if known != tried and _contradict((-form - 1, *known)):
                return True
            tried = known
        return False

    def _at_least(self, form: Expr, e: Expr) -> bool:
        """True only if constant bounds show that ``form >= e``."""
        low, _ = self.ranges.of(form - e)
        return low is not None and low >= 0

    def _inequalities(self, form: Expr, depth: int) -> list[Expr]:
        """The known inequalities about the atoms of a form, and about theirs."""
        found: dict[Expr, None] = {}
        atoms: dict[Expr, None] = {}
        waiting = [form]
        while waiting and len(atoms) < ATOMS and len(found) < ROWS:
            for atom in _atoms(waiting.pop(0)):
                if atom in atoms:
                    continue
                atoms[atom] = None
                for e in self._of(atom, depth):
                    if e not in found:
                        found[e] = None
                        waiting.append(e)
        products = {t for e in (form, *found) for t, _ in terms_of(e)[0] if isinstance(t, Product)}
        for e in self._lemmas(form, depth):
            found[e] = None
        simple = [e for e in (-form - 1, *found) if not any(isinstance(t, Product) for t, _ in terms_of(e)[0])]
        for product in sorted(products, key=lambda p: p.key):
            for k, atom in enumerate(product.factors):
                rest = _times((*product.factors[:k], *product.factors[k + 1 :]))
                if (self.ranges.of(rest)[0] or -1) >= 0 or self._is_positive(rest, depth):
                    for e in simple:
                        if len(found) < ROWS and any(t is atom for t, _ in terms_of(e)[0]):
                            found[e * rest] = None
        return list(found)

    def _is_positive(self, e: Expr, depth: int) -> bool:
        factors = e.factors if isinstance(e, Product) else (e,)
        return all(self.nonnegative(f, depth - 1) for f in factors)

    def _lemmas(self, form: Expr, depth: int) -> Iterator[Expr]:
        """``r*(y - x - 1)`` of terms ``r*y`` and ``-r*x`` of a form where ``x < y``: rounding that products would lose."""
        parts: list[tuple[Expr, Expr, int]] = []  # factor, cofactor, coefficient
        for term, k in terms_of(form)[0]:
            if isinstance(term, Product):
                for i, x in enumerate(term.factors):
                    parts.append((x, _times((*term.factors[:i], *term.factors[i + 1 :])), k))
        for cofactor in dict.fromkeys(r for _, r, _ in parts):
            inner: Expr = const(0)
            for x, r, k in parts:
                if r is cofactor:
                    inner = inner + x * k
            if len(terms_of(inner)[0]) > 1 and self._is_positive(cofactor, depth):
                for least in (1, 0):
                    if self.nonnegative(inner - least, depth - 1):
                        yield (inner - least) * cofactor
                        break

    def _of(self, atom: Expr, depth: int) -> Iterator[Expr]:
        """Forms with an atom that are not negative."""
        yield from _between(atom, *self.ranges.of(atom))
        match atom:
            case Sym(name):
                low, high = self.facts.ranges.get(name, (None, None))
                if low is not None and low.free:
                    yield atom - low
                if high is not None and high.free:
                    yield high - atom
                times = self.facts.multiples.get(atom, 1)
                if times > 1:
                    rest = atom - (atom // times) * times
                    yield from (rest, -rest)
            case FloorDiv(a, b) if self.nonnegative(b - 1, depth - 1):
                yield a - b * atom
                yield b * atom + b - 1 - a
                if b.free and self.nonnegative(a - b, depth - 1):
                    yield atom - 1
                elif self.nonnegative(a, depth - 1):
                    yield atom
                if b.free:
                    yield from (most - atom for most in self._most(a, b, depth))
            case Mod(a, b) if self.nonnegative(b - 1, depth - 1):
                rest = a - b * (a // b) - atom
                yield from (atom, b - 1 - atom, rest, -rest)
            case Min(args):
                yield from (arg - atom for arg in args)
            case Max(args):
                yield from (atom - arg for arg in args)
            case Element(low=low, high=high):
                yield from (atom - low, high - atom)
            case UpperBound():
                yield from (atom, atom.most - atom)
            case Xor(a, b) if all((self.ranges.of(e)[0] or 0) >= 0 and self.ranges.of(e)[0] is not None for e in (a, b)):
                yield a + b - atom
            case _:
                pass
        if atom.free:
            yield from (assumed for assumed in self._assumed if not assumed.free.isdisjoint(atom.free))

    def most(self, quotient: FloorDiv) -> int | None:
        """The greatest value of a quotient by a symbol, if it is proved to be a constant."""
        if quotient not in self._greatest:
            tried = sorted(x.value for x in self._beside(quotient.a, quotient.b) if isinstance(x, Const)) if self.nonnegative(quotient.b - 1) else []
            self._greatest[quotient] = next((x - 1 for x in tried if self.nonnegative(quotient.b * x - 1 - quotient.a, DEPTH - 1)), None)
        return self._greatest[quotient]

    def _most(self, a: Expr, b: Expr, depth: int) -> Iterator[Expr]:
        """Bounds ``x - 1`` of ``a//b``: where ``a < b*x``."""
        for x in self._beside(a, b):
            if self.nonnegative(b * x - 1 - a, depth - 1):
                yield x - 1

    def _beside(self, a: Expr, b: Expr) -> list[Expr]:
        """Candidates for ``x`` in ``a < b*x``: the cofactors of ``b`` in bounds of the symbols of ``a``, and terms of the divisors of its remainders."""
        beside: dict[Expr, None] = {const(1): None}
        for term, times in terms_of(a)[0]:
            if isinstance(term, Mod):
                beside |= {t: None for t, _ in terms_of(term.b)[0]}
            names = term.free
            highs = [h for n in sorted(names) if (h := self.facts.ranges.get(n, (None, None))[1]) is not None]
            for bound in (*highs, *(f for f in self.facts.forms if not f.free.isdisjoint(names))):
                for t, k in terms_of(bound)[0]:
                    for scale in {k, k * times}:
                        if t is b:
                            beside[const(scale)] = None
                        elif isinstance(t, Product) and b in t.factors:
                            rest = list(t.factors)
                            rest.remove(b)
                            x: Expr = const(scale)
                            for f in rest:
                                x = x * f
                            beside[x] = None
        return list(beside)[:QUOTIENTS]


def _atoms(form: Expr) -> Iterator[Expr]:
    """The atoms of a form: its terms, and the factors of products among them."""
    for term, _ in terms_of(form)[0]:
        yield from term.factors if isinstance(term, Product) else (term,)


def _between(e: Expr, low: int | None, high: int | None) -> Iterator[Expr]:
    """The bounds of an expression as forms that are not negative."""
    if low is not None:
        yield e - low
    if high is not None:
        yield const(high) - e


def _times(factors: Iterable[Expr]) -> Expr:
    found: Expr = const(1)
    for f in factors:
        found = found * f
    return found


def _contradict(forms: Iterable[Expr]) -> bool:
    """True only if some forms are not all ``>= 0``, for any integers."""
    system = _System()
    return any(system.add(dict(terms), constant) for terms, constant in map(terms_of, forms)) or system.solve() or system.eliminate()


class _System:
    """Inequalities, the strongest of those with equal terms, and where each atom occurs in them."""

    def __init__(self) -> None:
        self._rows: dict[_Key, Row] = {}
        self._signs: dict[Expr, tuple[dict[_Key, None], dict[_Key, None]]] = {}

    def add(self, terms: dict[Expr, int], constant: int) -> bool:
        """Add a row, tightened for integers; True if it is a contradiction."""
        if not terms:
            return constant < 0
        step = gcd(*terms.values())
        if step > 1:
            terms, constant = {t: k // step for t, k in terms.items()}, constant // step
        key = frozenset(terms.items())
        known = self._rows.get(key)
        if known is None:
            for t, k in terms.items():
                self._signs.setdefault(t, ({}, {}))[k > 0][key] = None
        if known is None or constant < known[1]:
            self._rows[key] = terms, constant
        return False

    def solve(self) -> bool:
        """Substitute atoms that equations determine: rounding then sees the divisors. True if that is a contradiction."""
        for key in list(self._rows):
            atom = self._defined(key)
            if atom is None:
                continue
            equation = self._rows[key]
            rows = [self._remove(k) for side in self._signs[atom] for k in list(side)]
            if any(self.add(*_sum(row, 1, equation, -row[0][atom] * equation[0][atom])) for row in rows):
                return True
        return False

    def _defined(self, key: _Key) -> Expr | None:
        """An atom with coefficient 1 or -1 in an inequality, if that and the opposite one leave one value."""
        one = self._rows.get(key)
        other = None if one is None else self._rows.get(frozenset((t, -k) for t, k in key))
        if one is None or other is None or one[1] + other[1] != 0:
            return None
        return min((t for t, k in key if abs(k) == 1), key=lambda t: t.key, default=None)

    def eliminate(self) -> bool:
        """True only if no integers satisfy all rows.

        Atoms whose elimination is exact for integers, such as 64*q, come first; among those, the one that adds the fewest inequalities.
        """
        places = {t: i for i, t in enumerate(sorted(self._signs, key=lambda t: t.key))}
        costs = {t: (self._loses(t), self._added(t), i) for t, i in places.items()}
        while costs:
            atom = min(costs, key=costs.__getitem__)
            del costs[atom]
            upper, lower = ([self._remove(key) for key in list(keys)] for keys in self._signs[atom])
            if len(self._rows) + len(upper) * len(lower) > ROWS * 2:
                return False
            if any(self.add(*_sum(a, -b[0][atom], b, a[0][atom])) for a in lower for b in upper):
                return True
            for t in costs.keys() & {t for terms, _ in (*upper, *lower) for t in terms}:  # no other rows have changed
                costs[t] = self._loses(t), self._added(t), places[t]
        return False

    def _loses(self, atom: Expr) -> bool:
        """Whether the atom has a coefficient beyond 1 on both sides."""
        return all(any(abs(self._rows[key][0][atom]) > 1 for key in side) for side in self._signs[atom])

    def _added(self, atom: Expr) -> int:
        """Inequalities that its elimination adds, less those that go."""
        upper, lower = map(len, self._signs[atom])
        return upper * lower - upper - lower

    def _remove(self, key: _Key) -> Row:
        row = self._rows.pop(key)
        for t, k in row[0].items():
            del self._signs[t][k > 0][key]
        return row


def _sum(a: Row, i: int, b: Row, j: int) -> Row:
    """``i*a + j*b``, or that by a common divisor of ``i`` and ``j``."""
    common = gcd(i, j)
    i, j = i // common, j // common
    terms = {t: k * i for t, k in a[0].items()}
    for t, k in b[0].items():
        value = terms.get(t, 0) + k * j
        if value:
            terms[t] = value
        else:
            terms.pop(t, None)
    return terms, a[1] * i + b[1] * j
