"""The relation of two accesses to one element: equal indices and expressions.

Two accesses ``a`` and ``b`` are made by any threads in any iterations. If they touch one element, their indices are equal axis by axis; from
such an equation follow equalities of *digits*: ``32*i + x`` with ``0 <= x < 32`` is equal on both sides only if ``i`` and ``x`` are. The closure
below collects everything that must be equal: thread and block indices, loop variables, and expressions of them. If there is no solution, the
accesses never touch one element.
"""

from __future__ import annotations

from functools import partial
from math import gcd

from taskfuse.check.accesses import Use
from taskfuse.check.enumeration import tell_apart
from taskfuse.check.equal_digits import composed, constant_of, degree_of, joined_rows, most_of, quotients_in, span_of_difference, terms_up_to
from taskfuse.check.index_bounds import bounds_of
from taskfuse.check.linear import Linear
from taskfuse.check.ranges import OPEN, Span, join, meet, terms_of
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, SAME_CLUSTER, SAME_WARP, THREAD_NAMES, THREADS, Conditions, Context
from taskfuse.check.threads import Threads
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import (
    Compare,
    Const,
    Expr,
    FloorDiv,
    Max,
    Min,
    Mod,
    Product,
    Select,
    Sum,
    Sym,
    Xor,
    const,
    ge,
    lt,
    not_,
    private,
    prove,
    simplify,
    substitute,
    sym,
)
from taskfuse.kir.nodes import For

ROUNDS = 16


class Relation:
    """The closure for one pair of accesses.

    Args:
        same: names of loop variables that have one value in both, for questions about one iteration.
        enough: once these have one value in both, nothing more is asked: what else has, and whether they ever access a common element.

    Attributes:
        never: they access no common element.
        equal: names of symbols that have one value in both, ``SAME_CLUSTER`` among them if the threads are of one cluster, and
            ``SAME_WARP`` if their warps have the same number.
    """

    def __init__(self, a: Use, b: Use, threads: Threads, same: frozenset[str] = frozenset(), enough: frozenset[str] | None = None) -> None:
        self.threads = threads
        self.a, self.b = a.context, b.context
        self.never = False
        self.equal: set[str] = set(same | threads.single)
        self._facts: dict[Expr, None] = {}  # in the order of their discovery: what is asked next must not depend on chance
        self._quotients: set[Expr] = set()
        self._has_told = False
        self._clash: tuple[Conditions, Conditions] = (), ()
        if MEDIA[a.memory].reach is Reach.BLOCK:
            self.equal |= BLOCKS
        self._alike = set(threads.launch | self.equal)  # whatever is not among these may differ
        extents = zip(BLOCK_NAMES, a.context.kernel.cluster, strict=True)
        clusters = [sym(name) if extent is const(1) else simplify(sym(name) // extent, threads.context.facts) for name, extent in extents]
        if MEDIA[a.memory].reach is Reach.CLUSTER:  # what blocks of different clusters access is not one element
            for cluster in clusters:
                self._learn(cluster)
        self._fix()
        if enough is not None and self.equal >= enough:
            return
        unsolved = [n for n in (*THREAD_NAMES, *BLOCK_NAMES) if n not in self.equal]
        equations: list[tuple[Expr, Expr]] = []
        if a.buffer == b.buffer:  # a tile of a group of at least one is that of a group of one, for instance, where loops say that there is one
            left, right = (partial(simplify, facts=context.facts) for context in (self.a, self.b))
            given = [(x, y) for x, y in zip(a.index, b.index, strict=True) if x is not None and y is not None]
            equations = composed(list(dict.fromkeys([*given, *((left(x), right(y)) for x, y in given)])), left, right)
        if enough is not None:  # what may tell it soonest first
            missing = enough - self.equal
            equations.sort(key=lambda equation: equation[0].free.isdisjoint(missing))
        self._loops = {n.stmt.var: n for n in a.node.loops if isinstance(n.stmt, For) and n in b.node.loops}
        used: dict[int, tuple[int, ...]] = {}  # how much was known when an equation was used: it says no more until more is
        derived: dict[Expr, tuple[int, ...]] = {}  # likewise of a fact
        for _ in range(ROUNDS):
            before = len(self.equal), len(self._facts), len(equations)
            for k, (x, y) in enumerate(equations):
                known = len(self.equal), len(self._alike), len(self._facts), len(self._loops)
                if used.get(k) == known:
                    continue
                used[k] = known
                self._solve(x, y)
                if self.never or (enough is not None and self.equal >= enough):
                    return
            for n in unsolved:
                if n not in self.equal and self._has_one_value(n):
                    self._learn(sym(n))
            for e in list(self._facts):
                known = len(self.equal), len(self._alike), len(self._facts), len(self._loops)
                if derived.get(e) != known:
                    derived[e] = known
                    self._derive(e, equations)
            for name, loop in list(self._loops.items()):
                if name in self.equal:
                    del self._loops[name]
                    assert isinstance(loop.stmt, For)
                    if not isinstance(loop.stmt.start, Const):
                        trip = loop.stmt.start + loop.stmt.step * private(f"{name}.trip")
                        equations.append((trip, trip))
            if before == (len(self.equal), len(self._facts), len(equations)) and not self._tell_apart(a, b):
                break
        if all(map(self._reduced, clusters)):
            self.equal.add(SAME_CLUSTER)
        if self.known(threads.warp):
            self.equal.add(SAME_WARP)
        self._exclude(a, b)

    # -- what is known to be equal ------------------------------------------------------------------------------------------------

    def _fix(self) -> None:
        """Indices, and what conditions speak of, that have one constant value on both sides."""
        mine, theirs = self.a.ranges, self.b.ranges
        for n in (*THREAD_NAMES, *BLOCK_NAMES):
            if n not in self.equal:
                one = mine.of(sym(n))
                if one[0] is not None and one[0] == one[1] and one == theirs.of(sym(n)):
                    self._learn(sym(n))
        for atom, span in mine.known.items():
            if span[0] is not None and span[0] == span[1] and theirs.known.get(atom) == span and not atom.free <= self.threads.launch:
                self._learn(atom)

    def _has_one_value(self, name: str) -> bool:
        """True only if conditions say that an index is equal to an expression that has one value in both accesses."""
        others = self.threads.equations(name, self.b)
        return any(e in others and self.known(e) for e in self.threads.equations(name, self.a))

    def known(self, e: Expr) -> bool:
        """True only if an expression has one value in both accesses."""
        if e.free <= self._alike:
            return True
        if e in self._facts:
            return True
        if isinstance(e, Sym):
            return False
        match e:
            case Mod(a, Const(d)):
                if any(isinstance(f, Mod) and f.a is a and isinstance(f.b, Const) and f.b.value % d == 0 for f in self._facts):
                    return True
                return self.known(a)
            case Sum(terms):
                return all(self.known(t) for t, _ in terms)
            case FloorDiv(FloorDiv(a, b), c) if self._quotient_known(a, b, c):
                return True
            case FloorDiv(Sum() as a, Const(value=d)) if d > 0 and any(self.known(whole // (d * k)) for _, k, whole in quotients_in(a)):
                return True  # (a//k + r)//d is (a + k*r)//(k*d)
            case FloorDiv(a, b) | Mod(a, b) | Xor(a, b):
                return self.known(a) and self.known(b)
            case Product(factors) | Min(factors) | Max(factors):
                return all(map(self.known, factors))
            case _:
                return False

    def _quotient_known(self, a: Expr, b: Expr, c: Expr) -> bool:
        """True only if ``a//b//c`` is ``a//(b*c)``, as of positive divisors, and that is known."""
        divisor = b * c
        if not any(isinstance(f, FloorDiv) and f.a is a and f.b is divisor for f in self._facts):
            return False
        return self.known(divisor) and all(self.a.constraints.proves(ge(d, 1)) for d in (b, c))

    def _reduced(self, e: Expr) -> bool:
        """True only if an expression, or what it is in both contexts, has one value in both accesses."""
        if self.known(e):
            return True
        simple = simplify(e, self.a.facts)
        return simple is not e and self.known(simple) and simplify(e, self.b.facts) is simple

    def _learn(self, e: Expr) -> None:
        if isinstance(e, Sym):
            self.equal.add(e.name)
            self._alike.add(e.name)
        else:
            self._facts[e] = None

    def _tell_apart(self, a: Use, b: Use) -> bool:
        """Learn the symbols that differ, if what is equal has different values for different values of them, as row and column of tiles have in any order
        of them. True if there are some."""
        if self._has_told or a.buffer != b.buffer or MEDIA[a.memory].reach is Reach.BLOCK:
            return False
        self._has_told = True
        facts = [f for f in self._facts if not f.free <= self._alike]
        moving = frozenset[str]().union(*(f.free for f in facts)) - self._alike
        if moving and tell_apart(facts, moving, self.a, self.b):
            for name in sorted(moving):
                self._learn(sym(name))
            return True
        return False

    def _derive(self, e: Expr, equations: list[tuple[Expr, Expr]]) -> None:
        """Equalities that follow from one of a compound expression."""
        self._derive_order(e)
        match e:
            case Sum():
                if e not in self._quotients:
                    self._quotients.add(e)
                    equations.append((e, e))
                for a, k, whole in quotients_in(e):
                    if self.known(a % k):  # what is missing to k*e
                        self._learn(whole)
            case Xor(a, b):
                if self.known(a):
                    self._learn(b)
                elif self.known(b):
                    self._learn(a)
            case FloorDiv(a, b) if self.known(b) and e not in self._quotients and self._reduced(a % b):
                self._quotients.add(e)
                self._learn(a)
                equations.append((a, a))
            case Mod(a, b) if self.known(b) and e not in self._quotients and self._reduced(a // b):
                self._quotients.add(e)
                self._learn(a)
                equations.append((a, a))
            case Mod(a, Const(value=m)) if m > 0:
                for dividend, k, whole in quotients_in(a):
                    if self.known(dividend % k):  # what is missing to k*a, of which the remainder by k*m is known then
                        self._learn(whole % (k * m))
                moving = [(t, k) for t, k in terms_of(a)[0] if not self.known(t)]
                if len(moving) == 1:  # k*d is a multiple of m
                    ((term, k),) = moving
                    lo, hi = self._difference(term)
                    if lo is not None and hi is not None and max(-lo, hi) < m // gcd(k, m):
                        self._learn(term)
            case _:
                pass

    def _derive_order(self, e: Expr) -> None:
        """Equalities that follow from one of a digit that others shift around or mirror: ``(a + r) % b``, ``select(c, r, a - r)``, of what is known but r."""
        match e:
            case Mod(a, b) if self.known(b):
                terms, constant = terms_of(a)
                moving = [(t, k) for t, k in terms if not self.known(t)]
                if moving and (len(moving) < len(terms) or constant):
                    sign = -1 if all(k < 0 for _, k in moving) else 1
                    rest = sum((t * (sign * k) for t, k in moving), const(0)) % b
                    if not isinstance(rest, Const) and not self.known(rest):
                        self._learn(rest)
            case Select(cond, a, b) if self._decided(cond):
                one, two = ([t for t, _ in terms_of(x)[0] if not self.known(t)] for x in (a, b))
                if len(one) == 1 and one == two:
                    self._learn(one[0])
            case _:
                pass

    def _decided(self, cond: Expr) -> bool:
        """True only if a condition has one value in both accesses."""
        return self.known(cond) or (isinstance(cond, Compare) and self.known(cond.a) and self.known(cond.b))

    # -- one equation ---------------------------------------------------------------------------------------------------------------

    def _solve(self, x: Expr, y: Expr) -> None:
        """Use ``x`` (in ``a``) ``== y`` (in ``b``)."""
        (lo, hi), (low, high) = self.a.ranges.of(x), self.b.ranges.of(y)
        if (hi is not None and low is not None and hi < low) or (lo is not None and high is not None and high < lo):
            self.never = True
            return
        terms_x, const_x = terms_of(x)
        terms_y, const_y = terms_of(y)
        mine, theirs = dict(terms_x), dict(terms_y)
        rows: list[tuple[int, Expr | None, Span]] = []  # coefficient, atom if both sides have it, span
        for atom, k in mine.items():
            other = theirs.pop(atom, 0)
            if other == k:
                if not self.known(atom):
                    rows.append((k, atom, self._difference(atom)))
                continue
            rows.append((k, None, self._span(atom, self.a)))
            if other:
                rows.append((-other, None, self._span(atom, self.b)))
        rows += [(-k, None, self._span(atom, self.b)) for atom, k in theirs.items()]
        constant = const_x - const_y
        if not rows:
            self.never = self.never or constant != 0
            return
        if any(isinstance(atom, Product) for _, atom, _ in rows) and all(atom is not None for _, atom, _ in rows) and constant == 0:
            self._solve_symbolic([(atom, k) for k, atom, _ in rows if atom is not None])
            return
        rows = joined_rows(rows)
        rests = self._rests(rows, x, y)
        for (k, atom, span), (lo, hi) in zip(rows, rests, strict=True):
            # k*d = -(constant + rest), with k > 0
            least = None if hi is None else -((constant + hi) // k)
            most = None if lo is None else -(constant + lo) // k
            least, most = meet((least, most), span)
            if least is None or most is None or least < most:
                return
            if least > most:
                self.never = True
                return
            if atom is not None and least == 0:
                self._learn(atom)
            constant += k * least
        self.never = self.never or constant != 0

    def _rests(self, rows: list[tuple[int, Expr | None, Span]], x: Expr, y: Expr) -> list[Span]:
        """For each row, bounds of the sum of those after it, also by what conditions say of sums of them."""
        found: list[Span] = [(0, 0)]
        for k, _, span in reversed(rows[1:]):
            low, high = (None if s is None or r is None else k * s + r for s, r in zip(span, found[-1], strict=True))
            found.append(meet((low, high), span_of_difference(self.a.ranges.of(terms_up_to(k, x)), self.b.ranges.of(terms_up_to(k, y)))))
        return found[::-1]

    def _difference(self, atom: Expr) -> Span:
        """The span of the difference between an atom's values in the two accesses."""
        span = span_of_difference(self._span(atom, self.a), self._span(atom, self.b))
        if None in span and isinstance(atom, Sym):
            for reach in self._reaches(atom):
                if isinstance(reach, Const):
                    span = meet(span, (-reach.value, reach.value))
        return span

    @staticmethod
    def _span(atom: Expr, context: Context) -> Span:
        span = context.ranges.of(atom)
        if isinstance(atom, FloorDiv) and atom.b.free:
            constraints, quotient = context.constraints.about(atom)
            linear = Linear.of(constraints)
            assert isinstance(quotient, FloorDiv)
            most = linear.most(quotient)
            if most is not None:
                span = meet(span, (0 if linear.nonnegative(quotient.a) else None, most))
        if span == OPEN and isinstance(atom, Mod) and context.constraints.proves(ge(atom.b, 1)):
            hi = context.ranges.of(atom.b)[1]
            return 0, None if hi is None else hi - 1
        return span

    def _solve_symbolic(self, rows: list[tuple[Expr, int]]) -> None:
        """Digits with symbolic weights: the first is equal if its weight is more than all the others together can make up for.

        No weight may be negative: the variable of a loop that has one value in both accesses is a weight, too.
        """
        digits: list[tuple[Expr, Expr, list[Expr]]] = []  # weight, atom, bounds of its differences
        for term, k in rows:
            parts = term.factors if isinstance(term, Product) else (term,)
            moving = [p for p in parts if not self.known(p)]
            if len(moving) != 1 or k < 0:
                return
            weight = const(k)
            for p in parts:
                if p is not moving[0]:
                    weight = weight * p
            digits.append((weight, moving[0], self._reaches(moving[0])))
        facts = self.a.facts
        digits.sort(key=lambda d: (-degree_of(d[0]), -max((abs(c) for _, c in terms_of(d[0])[0]), default=constant_of(d[0]))))
        while digits:
            weight, atom, _ = digits[0]
            rest = digits[1:]
            if not all(r and prove(ge(w, 0), facts) for w, _, r in rest) or not any(prove(ge(weight - most_of(rest, k), 1), facts) for k in (0, 1)):
                return
            self._learn(atom)
            digits = rest

    def _reaches(self, atom: Expr) -> list[Expr]:
        """Bounds of the difference between two values of an atom, one in each access; uniform in both. Symbolic ones first."""
        found: list[Expr] = []
        match atom:
            case Sym(name):
                one, two = bounds_of(name, self.a, self.known), bounds_of(name, self.b, self.known)
                if one is not None and one == two:
                    found.append(one[1] - one[0])
            case Mod(_, b) if self.known(b) and self.a.constraints.proves(ge(b, 1)):
                found.append(b - 1)
            case _:
                pass
        span = join(self.a.ranges.of(atom), self.b.ranges.of(atom))
        if span[0] is not None and span[1] is not None:
            found.append(const(span[1] - span[0]))
        return found

    # -- contradictions -------------------------------------------------------------------------------------------------------------

    def _exclude(self, a: Use, b: Use) -> None:
        """No common element if the conditions on what is equal contradict each other."""
        mine = tuple(c for c in a.context.conditions if c.free <= self._alike)
        theirs = tuple(c for c in b.context.conditions if c.free <= self._alike)
        if not mine or not theirs or set(mine) == set(theirs):
            return
        if self.threads.disjoint(tuple(c for c in mine if c.free <= THREADS), tuple(c for c in theirs if c.free <= THREADS)):
            self.never = True
            return
        self._clash = mine, theirs
        ranges = self.threads.context.ranges.under_all(mine)
        self.never = any(ranges.refutes(c) for c in theirs)

    def excluded(self) -> bool:
        """True only if the prover finds a contradiction in the conditions on equal symbols. Slow: the last resort."""
        mine, theirs = self._clash
        facts = self.threads.context.facts
        for c in mine:
            facts = facts.with_assumption(c)
        return any(c not in mine and prove(not_(c), facts) for c in theirs)

    def apart(self, a: Use, b: Use) -> bool:
        """True only if the prover finds an axis on which the indices always differ. Slow: the last resort."""
        if a.buffer != b.buffer:
            return False
        moving = sorted(_symbols(b) - self._alike)
        names: dict[str, Expr] = {n: private(f"{n}.other") for n in moving}
        facts = self.a.facts
        for n in moving:
            lo, hi = self.b.facts.ranges.get(n, (None, None))
            if lo is not None or hi is not None:
                facts = facts.with_range(str(names[n]), *(None if e is None else substitute(e, names) for e in (lo, hi)))
        for use, own in ((a, {}), (b, names)):
            for n in use.span:
                facts = facts.with_range(str(own.get(n, n)), *use.context.ranges.of(sym(n)))
        for c in b.context.conditions:
            facts = facts.with_assumption(substitute(c, names))
        for x, y in zip(a.index, b.index, strict=True):
            if x is not None and y is not None:
                other = substitute(y, names)
                if x is not other and (prove(lt(x, other), facts) or prove(lt(other, x), facts)):
                    return True
        return False


def pinned(a: Use, b: Use) -> frozenset[str]:
    """Thread indices that stand alone on one axis of two accesses of an element, and so are equal."""
    if a.buffer != b.buffer:
        return frozenset()
    terms = [terms_of(x)[0] for x, y in zip(a.index, b.index, strict=True) if x is not None and x is y]
    return frozenset(t.name for t, _ in (ts[0] for ts in terms if len(ts) == 1) if isinstance(t, Sym) and t.name in THREADS)


def _symbols(use: Use) -> set[str]:
    """The symbols of what is known of an access."""
    names = set(THREADS | BLOCKS).union(use.span, *(e.free for e in use.index if e is not None), *(c.free for c in use.context.conditions))
    for loop in use.node.loops:
        assert isinstance(loop.stmt, For)
        names |= {loop.stmt.var} | loop.stmt.start.free | loop.stmt.stop.free
    return names
