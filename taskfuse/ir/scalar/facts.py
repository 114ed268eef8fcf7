"""Facts about symbols: ranges, divisors and assumed conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import lcm
from weakref import ref

from taskfuse.ir.scalar.arithmetic import linear_parts, sub
from taskfuse.ir.scalar.evaluation import Samples
from taskfuse.ir.scalar.expr import EQ, LE, LT, TRUE, And, Compare, Const, Expr, IntLike, Mod, Not, Or, sym, wrap
from taskfuse.ir.scalar.logic import as_boolean, not_
from taskfuse.ir.scalar.lookups import integers_of
from taskfuse.ir.scalar.transform import substitute

Interval = tuple[int | None, int | None]
UNBOUNDED: Interval = (None, None)
Bounds = tuple[Expr | None, Expr | None]


class FactFamily:
    """State shared by all facts derived from the same initial ones.

    Attributes:
        size: number of derived facts.
        is_circular: two rules undid each other in an expression under one of them, so that its cached result depends on earlier questions.
    """

    __slots__ = ("is_circular", "size")

    def __init__(self) -> None:
        self.size = 0
        self.is_circular = False


class Facts:
    """An immutable set of facts, with a cache of derived results.

    Each ``with_...`` returns another ``Facts``; the same call on the same object returns the same object, so that caches stay warm.
    A symbol without facts may be any integer. Facts hold where the code that they describe runs: if a loop's range is empty, anything holds in it.

    Attributes:
        ranges: inclusive bounds per symbol; a bound may be symbolic in other symbols.
        multiples: a known positive divisor per expression.
        intervals: constant bounds of atoms and monomials that follow from one assumption.
        excluded: values that an assumption rules out, per atom or monomial.
        forms: expressions that are assumed to be >= 0.
        known: conditions assumed as a whole.
        family: state shared with facts derived from the same ones.
        samples: values of symbols at which they hold, for :mod:`~taskfuse.ir.scalar.samples`.
    """

    __slots__ = (
        "__weakref__",
        "_about",
        "_derived",
        "_renamed",
        "_symbols",
        "_weaker",
        "bounds_memo",
        "depth_memo",
        "divisor_memo",
        "excluded",
        "family",
        "forms",
        "intervals",
        "known",
        "light_memo",
        "multiples",
        "ranges",
        "samples",
        "sign_memo",
        "strong_memo",
    )

    def __init__(self) -> None:
        self.ranges: dict[str, tuple[Expr | None, Expr | None]] = {}
        self.multiples: dict[Expr, int] = {}
        self.intervals: dict[Expr, Interval] = {}
        self.excluded: dict[Expr, frozenset[int]] = {}
        self.forms: tuple[Expr, ...] = ()
        self.known: frozenset[Expr] = frozenset()
        self.family = FactFamily()
        self.forget()

    def forget(self) -> None:
        """Drop all derived results, and facts."""
        self.bounds_memo: dict[Expr, Interval] = {}
        self.depth_memo: dict[Expr, int] = {}
        self.divisor_memo: dict[Expr, int] = {}
        self.sign_memo: dict[Expr, bool] = {}
        self.light_memo: dict[Expr, Expr] = {}
        self.strong_memo: dict[Expr, Expr] = {}
        self._derived: dict[tuple[object, ...], Facts] = {}
        self._about: dict[frozenset[str], ref[Facts]] = {}
        self._renamed: dict[frozenset[str], Facts | None] = {}
        self._symbols: frozenset[str] | None = None
        self._weaker: tuple[ref[Facts], Expr | Mapping[str, Bounds]] | None = None
        self.samples: Samples | None = None

    def _copy(self) -> Facts:
        copy = Facts.__new__(Facts)
        copy.ranges, copy.multiples, copy.intervals, copy.excluded = dict(self.ranges), dict(self.multiples), dict(self.intervals), dict(self.excluded)
        copy.forms, copy.known, copy.family = self.forms, self.known, self.family
        copy.forget()
        self.family.size += 1
        return copy

    def _with(self, more: Expr | Mapping[str, Bounds]) -> Facts:
        """A copy for facts that say more."""
        copy = self._copy()
        if isinstance(more, Expr) or self.ranges.keys().isdisjoint(more):
            copy._weaker = ref(self), more
        return copy

    @property
    def weaker(self) -> tuple[Facts, Expr | Mapping[str, Bounds]] | None:
        """Facts, and what these say besides: a condition, or ranges of symbols of which those say none. ``None``: no such facts are known."""
        weaker = None if self._weaker is None else self._weaker[0]()
        return None if self._weaker is None or weaker is None else (weaker, self._weaker[1])

    def about(self, names: frozenset[str]) -> Facts:
        """Those of these facts that bear on some symbols: what is said of them, and of all symbols that bounds or conditions connect with them.

        They say as much of an expression of these symbols, and many stronger facts have them in common, so what is derived of them is derived once.
        """
        known = self._about.get(names)
        found = None if known is None else known()
        if found is None:
            found = self._connected(names)
            self._about[names] = ref(found)
        return found

    def _connected(self, names: frozenset[str]) -> Facts:
        base, added = self._additions()
        near = self._near(names) if added else names
        kept = [more for more in added if not (more.free if isinstance(more, Expr) else more.keys()).isdisjoint(near)]
        if len(kept) == len(added):
            return self
        for more in reversed(kept):
            base = base.with_assumption(more) if isinstance(more, Expr) else base.with_ranges({n: bounds for n, bounds in more.items() if n in near})
        return base

    def _near(self, names: frozenset[str]) -> AbstractSet[str]:
        """Some symbols, and all those that bounds or conditions connect with them."""
        near, waiting = set[str](), set(names)
        conditions = [c.free for c in self.known]
        while waiting:
            name = waiting.pop()
            near.add(name)
            for bound in self.ranges.get(name, ()):
                if bound is not None and bound.free:
                    waiting |= bound.free - near
            for free in conditions:
                if name in free:
                    waiting |= free - near
        return near

    def closely(self, names: frozenset[str]) -> Facts:
        """As :meth:`about`, with fewer facts: what is said of some symbols, of those in their bounds, and of tables, alone."""
        base, added = self._additions()
        near, waiting = set[str](), set(names)
        while waiting:
            name = waiting.pop()
            near.add(name)
            waiting |= {n for bound in self.ranges.get(name, ()) if bound is not None for n in integers_of(bound)} - near
        for more in reversed(added):
            if isinstance(more, Expr):
                base = base.with_assumption(more) if integers_of(more) <= near else base
            elif not near.isdisjoint(more):
                base = base.with_ranges({n: bounds for n, bounds in more.items() if n in near})
        return base

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that the facts mention."""
        if self._symbols is None:
            bounds = (bound.free for some in self.ranges.values() for bound in some if bound is not None)
            self._symbols = frozenset(self.ranges).union(*bounds, *(c.free for c in self.known), *(e.free for e in self.multiples))
        return self._symbols

    def renamed(self, symbols: Mapping[str, Expr]) -> Facts | None:
        """The same facts about symbols of other names; ``None`` if they derive from facts about some of them that are not known by what they add to others."""
        names = frozenset(symbols)
        if names not in self._renamed:
            base, added = self._additions()
            self._renamed[names] = base._with_others(added, symbols) if base.symbols.isdisjoint(names) else None
        return self._renamed[names]

    def _with_others(self, added: Sequence[Expr | Mapping[str, Bounds]], symbols: Mapping[str, Expr]) -> Facts:
        """Facts with what was added to them, the last first, said of symbols of other names."""
        found = self
        for more in reversed(added):
            if isinstance(more, Expr):
                found = found.with_assumption(substitute(more, symbols))
            else:
                found = found.with_ranges({str(symbols.get(n, n)): (_renamed(lo, symbols), _renamed(hi, symbols)) for n, (lo, hi) in more.items()})
        return found

    def _additions(self) -> tuple[Facts, list[Expr | Mapping[str, Bounds]]]:
        """The first facts that these derive from, as far as is known, and what was added to them, the last first."""
        base, added = self, list[Expr | Mapping[str, Bounds]]()
        while (weaker := base.weaker) is not None:
            base, more = weaker
            added.append(more)
        return base, added

    def with_range(self, name: str, lo: IntLike | None, hi: IntLike | None) -> Facts:
        """Facts in which ``lo <= name <= hi`` replaces the range of ``name``; ``None``: unbounded.

        Raises:
            ValueError: the bounds of ``name`` would depend on ``name``.
        """
        bounds = (None if lo is None else wrap(lo), None if hi is None else wrap(hi))
        found = self._derived.get(((name, bounds),))
        if found is not None:
            return found
        if self.ranges.get(name) == bounds:
            return self
        if self._depends(bounds, name):
            raise ValueError(f"the range of '{name}' depends on '{name}'")
        result = self._with({name: bounds})
        result.ranges[name] = bounds
        self._derived[((name, bounds),)] = result
        return result

    def with_ranges(self, ranges: Mapping[str, tuple[IntLike | None, IntLike | None]]) -> Facts:
        """As :meth:`with_range`, of several symbols.

        Raises:
            ValueError: the bounds of one would depend on it.
        """
        wrapped = {name: (None if lo is None else wrap(lo), None if hi is None else wrap(hi)) for name, (lo, hi) in ranges.items()}
        key = tuple(wrapped.items())
        found = self._derived.get(key)
        if found is not None:
            return found
        result = self._with(wrapped)
        for name, bounds in wrapped.items():
            if result._depends(bounds, name):
                raise ValueError(f"the range of '{name}' depends on '{name}'")
            result.ranges[name] = bounds
        self._derived[key] = result
        return result

    def _depends(self, bounds: tuple[Expr | None, Expr | None], name: str) -> bool:
        """True if the bounds mention a symbol, directly or through ranges."""
        seen: set[str] = set()
        new = {other for bound in bounds if bound is not None for other in bound.free}
        while new and name not in new:
            seen |= new
            new = {other for n in new for bound in self.ranges.get(n, ()) if bound is not None for other in bound.free} - seen
        return name in new

    def with_multiple(self, name: str, k: int) -> Facts:
        """Facts in which the symbol ``name`` is also a multiple of ``k > 0``."""
        key = (name, k)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = self._copy()
            found.multiples[sym(name)] = lcm(self.multiples.get(sym(name), 1), k)
        return found

    def with_assumption(self, cond: IntLike) -> Facts:
        """Facts in which ``cond`` also holds."""
        condition = as_boolean(cond)
        if condition is TRUE or condition in self.known:
            return self
        found = self._derived.get((condition,))
        if found is None:
            found = self._derived[(condition,)] = self._with(condition)
            found._assume(condition)
        return found

    def _assume(self, condition: Expr) -> None:
        self.known |= {condition}
        match condition:
            case And(args):
                for arg in args:
                    self._assume(arg)
            case Not(Or(args)):
                for arg in args:
                    self._assume(not_(arg))
            case Compare(op, a, b) if op is LT:
                self._assume_nonnegative(b - a - 1)
            case Compare(op, a, b) if op is LE:
                self._assume_nonnegative(b - a)
            case Compare(op, a, b) if op is EQ:
                self._assume_nonnegative(a - b)
                self._assume_nonnegative(b - a)
                match a, b:
                    case Mod(x, Const(m)), Const(0) if m > 0:
                        self.multiples[x] = lcm(self.multiples.get(x, 1), m)
                    case _:
                        pass
            case Compare(_, a, b):
                match linear_parts(sub(a, b)):
                    case ((term, k),), constant if constant % k == 0:
                        self.excluded[term] = self.excluded.get(term, frozenset()) | {-constant // k}
                    case _:
                        pass
            case _:
                pass

    def _assume_nonnegative(self, form: Expr) -> None:
        match linear_parts(form):
            case (), _:
                pass
            case ((term, k),), constant:
                lo, hi = self.intervals.get(term, UNBOUNDED)
                if k > 0:
                    bound = -(constant // k)
                    lo = bound if lo is None else max(lo, bound)
                else:
                    bound = constant // -k
                    hi = bound if hi is None else min(hi, bound)
                self.intervals[term] = (lo, hi)
            case _:
                self.forms += (form,)


def _renamed(bound: Expr | None, symbols: Mapping[str, Expr]) -> Expr | None:
    return None if bound is None else substitute(bound, symbols)
