"""Constant bounds of index expressions, from the conditions that hold at a place.

A deliberately small interval arithmetic: constants decide most races, and the prover of ``taskfuse.ir.scalar`` runs only where these bounds do not
suffice. It shares nothing with the intervals of :mod:`taskfuse.ir.scalar.intervals`, by which lowering and the CUDA backend choose indices and their
widths, so that a mistake there is not repeated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskfuse.ir.scalar import (
    And,
    Compare,
    CompareOp,
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
    Sum,
    Sym,
    Table,
    UpperBound,
    Xor,
    compare,
    maximum,
    remembered,
)

Span = tuple[int | None, int | None]
"""Inclusive bounds; ``None``: no known bound."""

OPEN: Span = (None, None)
NO_NAMES: frozenset[str] = frozenset()
Terms = tuple[tuple[Expr, int], ...]
NO_SUMS: Mapping[Terms, Span] = {}
LT, LE, EQ, NE = CompareOp  # looked up once: Python 3.11 takes long to find a member in its class
MEMORY = 1 << 14
"""The most conditions in the cache of their bounds, which many places and kernels share."""


def terms_of(e: Expr) -> tuple[tuple[tuple[Expr, int], ...], int]:
    """``e`` as (terms with coefficients, constant)."""
    if isinstance(e, Sum):
        return e.terms, e.const
    return ((), e.value) if isinstance(e, Const) else (((e, 1),), 0)


def without_floor(extent: Expr) -> Expr:
    """An extent with a nonnegative value below it, which is therefore positive: ``k*n`` of ``k*max(n, 0)``."""
    match terms_of(extent):
        case ((Max(args), k),), 0 if k > 0:
            above = [e for e in args if not (isinstance(e, Const) and e.value <= 0)]
            return maximum(*above) * k if above else extent
        case _:
            return extent


def meet(a: Span, b: Span) -> Span:
    """The intersection."""
    lo = a[0] if b[0] is None else b[0] if a[0] is None else max(a[0], b[0])
    hi = a[1] if b[1] is None else b[1] if a[1] is None else min(a[1], b[1])
    return lo, hi


def join(a: Span, b: Span) -> Span:
    """The smallest span around both."""
    return None if a[0] is None or b[0] is None else min(a[0], b[0]), None if a[1] is None or b[1] is None else max(a[1], b[1])


class Ranges:
    """Spans of atoms (symbols, quotients, ...) under a list of conditions. Immutable; ``under`` returns stronger ones.

    Attributes:
        empty: the conditions hold nowhere; False: they may.
    """

    __slots__ = ("_changed", "_memo", "_next", "_sums", "_under", "empty", "known")

    def __init__(self, learned: dict[Expr, Span], *, empty: bool = False, under: Ranges | None = None) -> None:
        self.known: dict[Expr, Span] = learned if under is None else {**under.known, **learned}
        self.empty = empty
        self._under = under  # what says the same of all but the symbols that have changed
        changed, sums = NO_NAMES, NO_SUMS if under is None else under._sums
        for atom, span in learned.items():
            changed = changed | atom.free if changed else atom.free
            if isinstance(atom, Sum) and not atom.const:
                sums = {**sums, atom.terms: span}
        self._changed = NO_NAMES if under is None else changed
        self._sums = sums  # what conditions say of sums, none of which has a constant, by their terms
        self._memo: dict[Expr, Span] = {}
        self._next: dict[Expr, Ranges | None] = {}  # None: these, which would refer to themselves

    def with_span(self, atom: Expr, span: Span) -> Ranges:
        """Ranges in which ``atom`` also lies in ``span``."""
        return Ranges({atom: meet(self.known.get(atom, OPEN), span)}, under=self)

    def with_spans(self, spans: Mapping[Expr, Span]) -> Ranges:
        """Ranges in which several atoms also lie in some spans."""
        return Ranges({atom: meet(self.known.get(atom, OPEN), span) for atom, span in spans.items()}, under=self)

    def under(self, condition: Expr) -> Ranges:
        """Ranges in which ``condition`` also holds."""
        if condition not in self._next:
            self._next[condition] = self.stronger(condition)
        found = self._next[condition]
        return self if found is None else found

    def stronger(self, condition: Expr) -> Ranges | None:
        """Ranges in which ``condition`` also holds, if it says more. Unlike :meth:`under`, these do not refer to them, so nothing needs to be released."""
        learned: dict[Expr, Span] = {}
        empty = self.empty or self.refutes(condition)
        says = _spans(condition)
        if isinstance(condition, Compare) and condition.op is NE:
            says = (*says, *self._without_an_end(condition))
        for atom, span in says:
            known = learned.get(atom) or self.known.get(atom)
            before = known or self.of(atom)
            lo, hi = after = meet(before, span)
            empty = empty or (lo is not None and hi is not None and lo > hi)
            if after != before or (known is None and lo is not None and lo == hi):  # a value is said, even where it follows
                learned[atom] = after
        return Ranges(learned, empty=empty, under=self) if learned or empty is not self.empty else None

    def release(self) -> None:
        """Drop the stronger ranges derived from these, and from those that these derive from: they refer back, and reference counts then free both."""
        left: list[Ranges] = [self] if self._next else []
        above = self._under
        while above is not None and above._next:
            left.append(above)
            above = above._under
        while left:
            here = left.pop()
            if here._next:
                left += [r for r in here._next.values() if r is not None]
                here._next.clear()

    def with_share(self, condition: Expr) -> Ranges:
        """Ranges under a further condition whose sum bounds each of its terms: ``a + 5*i < n`` bounds ``a`` if ``i >= 0``."""
        found = self.stronger(condition) or self
        for form, _ in _spans(condition):
            terms, _ = terms_of(form)
            lo, hi = found.of(form)
            for term, k in terms if len(terms) > 1 else ():
                low, high = found.of(form - term * k)
                rest = (None if lo is None or high is None else lo - high, None if hi is None or low is None else hi - low)
                if k in (1, -1):
                    low, high = rest if k == 1 else (None if rest[1] is None else -rest[1], None if rest[0] is None else -rest[0])
                    found = found.with_span(term, (low, high))
        return found

    def _without_an_end(self, condition: Expr) -> Iterable[tuple[Expr, Span]]:
        """The spans that follow from ``a != b`` for an atom that ``a == b`` would put at one end of its span."""
        match condition:
            case Compare(op, a, b) if op is NE:
                for atom, (value, _) in _spans(compare(EQ, a, b)):
                    lo, hi = self.of(atom)
                    if value is not None and value in (lo, hi):
                        yield atom, (value + 1 if value == lo else None, value - 1 if value == hi else None)
            case _:
                pass

    def changed_since(self, before: Ranges) -> frozenset[str]:
        """The symbols for which these are stronger than the weaker ones they derive from; for all other expressions both are equal."""
        found, here = NO_NAMES, self
        while here is not before:
            assert here._under is not None
            found, here = found | here._changed, here._under
        return found

    def under_all(self, conditions: Iterable[Expr]) -> Ranges:
        """Ranges in which all of some conditions hold."""
        found = self
        for c in conditions:
            found = found.under(c)
        return found

    def of(self, e: Expr) -> Span:
        """Bounds of ``e``: always valid, not always the tightest."""
        if isinstance(e, Sym):
            return self.known.get(e, OPEN)
        if isinstance(e, Const):
            return e.value, e.value
        found = self._memo.get(e)
        if found is None:
            here, free = self, e.free
            while here._under is not None and free.isdisjoint(here._changed):
                here = here._under
            found = None if here is self else here._memo.get(e)
            if found is None:
                found = here._of_sum(e) if isinstance(e, Sum) else here._compute(e)
                known = here.known.get(e)
                if known is not None:
                    found = meet(found, known)
                here._memo[e] = found
            self._memo[e] = found
        return found

    def refutes(self, condition: Expr) -> bool:
        """True only if ``condition`` holds nowhere."""
        if isinstance(condition, Compare):
            lo, hi = self.of(_difference(condition))
            op = condition.op
            if op is LT:
                return hi is not None and hi <= 0
            if op is LE:
                return hi is not None and hi < 0
            return (lo is not None and lo > 0) or (hi is not None and hi < 0) if op is EQ else lo == hi == 0
        match condition:
            case Const(value):
                return value == 0
            case And(args):
                return any(map(self.refutes, args))
            case Or(args):
                return all(map(self.refutes, args))
            case Not(a):
                return self.implies(a)
            case _:
                return False

    def implies(self, condition: Expr) -> bool:
        """True only if ``condition`` holds everywhere."""
        if isinstance(condition, Compare):
            lo, hi = self.of(_difference(condition))
            op = condition.op
            if op is LT:
                return lo is not None and lo > 0
            if op is LE:
                return lo is not None and lo >= 0
            return lo == hi == 0 if op is EQ else (lo is not None and lo > 0) or (hi is not None and hi < 0)
        match condition:
            case Const(value):
                return value != 0
            case And(args):
                return all(map(self.implies, args))
            case Or(args):
                return any(map(self.implies, args))
            case Not(a):
                return self.refutes(a)
            case _:
                return False

    def _said(self, terms: Terms) -> Span:
        """What conditions say of a sum of terms, by itself or negated."""
        said = self._sums.get(terms, OPEN)
        if terms[0][1] < 0:
            lo, hi = self._sums.get(tuple([(term, -k) for term, k in terms]), OPEN)
            said = meet(said, (None if hi is None else -hi, None if lo is None else -lo))
        return said

    def _of_sum(self, e: Sum) -> Span:
        terms, constant, known = e.terms, e.const, self.known
        lo: int | None = 0
        hi: int | None = 0
        for term, k in terms:
            low, high = known.get(term, OPEN) if isinstance(term, Sym) else self.of(term)
            if k < 0:
                low, high = high, low
            lo = None if lo is None or low is None else lo + k * low
            hi = None if hi is None or high is None else hi + k * high
        if self._sums:
            lo, hi = meet((lo, hi), self._said(terms))
        return None if lo is None else lo + constant, None if hi is None else hi + constant

    def _compute(self, e: Expr) -> Span:
        match e:
            case Product(factors):
                span = self.of(factors[0])
                for f in factors[1:]:
                    span = _times(span, self.of(f))
                return span
            case FloorDiv(a, Const(d)) if d > 0:
                lo, hi = self.of(a)
                return None if lo is None else lo // d, None if hi is None else hi // d
            case FloorDiv(a, b):
                (lo, hi), (small, _) = self.of(a), self.of(b)
                return (0, hi) if lo is not None and lo >= 0 and small is not None and small >= 0 else OPEN
            case Mod(a, Const(d)) if d > 0:
                lo, hi = self.of(a)
                return (lo, hi) if lo is not None and hi is not None and lo >= 0 and hi < d else (0, d - 1)
            case Mod(_, b):
                small, large = self.of(b)
                return (0, None if large is None else max(large - 1, 0)) if small is not None and small >= 0 else OPEN
            case Min(args):
                spans = [self.of(a) for a in args]
                lows, highs = [s[0] for s in spans], [s[1] for s in spans if s[1] is not None]
                return None if None in lows else min(x for x in lows if x is not None), min(highs, default=None)
            case Max(args):
                spans = [self.of(a) for a in args]
                lows, highs = [s[0] for s in spans if s[0] is not None], [s[1] for s in spans]
                return max(lows, default=None), None if None in highs else max(x for x in highs if x is not None)
            case Xor(a, b):
                (lo, hi), (lo2, hi2) = self.of(a), self.of(b)
                if lo is None or lo2 is None or lo < 0 or lo2 < 0:
                    return OPEN
                return 0, None if hi is None or hi2 is None else (1 << max(hi.bit_length(), hi2.bit_length())) - 1
            case Select(_, a, b):
                return join(self.of(a), self.of(b))
            case Table(values, _):
                return min(values), max(values)
            case Element(low=low, high=high):
                return self.of(low)[0], self.of(high)[1]
            case UpperBound():
                most = self.of(e.most)[1]
                return 0, None if most is None else max(0, most)
            case Compare() | And() | Or() | Not():
                return 0, 1
            case _:
                return OPEN


def _times(a: Span, b: Span) -> Span:
    if a[0] is None or b[0] is None or a[0] < 0 or b[0] < 0:
        if None in a or None in b:
            return OPEN
        corners = [x * y for x in a for y in b if x is not None and y is not None]
        return min(corners), max(corners)
    return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]


@remembered(MEMORY)
def nonnegative_form(condition: Expr) -> Expr | None:
    """A form that is nonnegative exactly where a comparison of two numbers holds; ``None`` for other conditions."""
    match condition:
        case Compare(op, a, b) if op is LT:
            return b - a - 1
        case Compare(op, a, b) if op is LE:
            return b - a
        case _:
            return None


@remembered(MEMORY)
def _difference(condition: Compare) -> Expr:
    """The right side of a comparison less the left one, which :func:`compare` has made."""
    return condition.b - condition.a


@remembered(MEMORY)
def _spans(condition: Expr) -> tuple[tuple[Expr, Span], ...]:
    """The spans of single atoms that follow from a condition."""
    match condition:
        case And(args):
            return tuple(pair for a in args for pair in _spans(a))
        case Compare(op, a, b) if op is not NE:
            terms, constant = terms_of(b - a)  # >= 0, or > 0, or == 0
            if len(terms) > 1:  # the form without its constant, by itself or negated
                form = (b - a) - constant
                if terms[0][1] < 0:
                    atom, k = -form, -1
                else:
                    atom, k = form, 1
            elif terms:
                ((atom, k),) = terms
            else:
                return ()
            if op is LT:
                constant -= 1
            if op is EQ:
                return ((atom, (-constant // k, -constant // k)),) if constant % k == 0 else ()
            return ((atom, (-(constant // k), None) if k > 0 else (None, constant // -k)),)
        case _:
            return ()
