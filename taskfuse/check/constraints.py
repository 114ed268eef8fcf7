"""The knowledge about symbols at a point of the code: constant bounds and facts, built by adding assumptions one by one.

Many places share this knowledge: roles repeat loops, and copies of an unrolled loop repeat guards. A question depends only on assumptions that
mention its symbols, directly or through others. Asked under these alone, with loop variables and elements numbered, it is one question at all these places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from taskfuse.check.bounded_variables import Assumption, BoundedElement, Trip
from taskfuse.check.ranges import LT, Ranges, without_floor
from taskfuse.check.samples import fails
from taskfuse.check.tables import Tables
from taskfuse.ir.scalar import Compare, Expr, Facts, Samples, lt, prove, sample_count, substitute


class Constraints:
    """The consequences of a list of assumptions. Immutable; adding the same assumption to the same constraints returns the same object, which keeps its caches.

    A condition that constant bounds imply adds nothing: the constraints stay the same object.

    Attributes:
        ranges: constant bounds.
        assumptions: the added assumptions, in order, without those implied before or those of the whole kernel.
        linear: results of linear arithmetic, for :class:`~taskfuse.check.linear.Linear`.
        samples: values of its symbols, for :mod:`~taskfuse.check.samples`.
        tables: tables made for questions, shared with stronger constraints.
        under: the constraints to which the last assumption was added.
    """

    __slots__ = ("_close", "_empty", "_facts", "_near", "_next", "_questions", "_root", "assumptions", "linear", "ranges", "samples", "tables", "under")

    def __init__(self, ranges: Ranges, facts: Facts | None, assumptions: tuple[Assumption, ...] = (), under: Constraints | None = None) -> None:
        self.ranges = ranges
        self.assumptions = assumptions
        self.linear: object = None
        self.samples: Samples | None = None
        self._facts = facts
        self._empty: bool | None = None
        self.under = under
        self._root: Constraints | None = under if under is None or under._root is None else under._root
        self.tables: Tables = Tables() if under is None else under.tables
        self._next: dict[Assumption, Constraints] = {}
        self._questions: dict[Expr, tuple[Constraints, Expr]] = {}
        self._close: dict[Expr, tuple[Constraints, Expr]] = {}
        self._near: dict[frozenset[str], tuple[Constraints, Mapping[str, Expr]]] = {}

    @property
    def facts(self) -> Facts:
        """All facts, for the prover."""
        if self._facts is None:
            assert self.under is not None
            facts = self.under.facts
            match self.assumptions[-1]:
                case Trip(symbol=symbol, start=start, stop=stop, implied=implied):
                    facts = facts.with_range(str(symbol), start, stop - 1).with_assumption(lt(start, stop))
                    for c in implied:
                        facts = facts.with_assumption(c)
                case BoundedElement():  # of constant span
                    pass
                case condition:
                    facts = facts.with_assumption(condition)
            self._facts = facts
        return self._facts

    @property
    def empty(self) -> bool:
        """True only if what is known holds nowhere, by constant bounds: those that come of all assumptions, asked of each of them."""
        if self._empty is None:
            self._empty = self.ranges.empty or (self.under is not None and (self.under.empty or self._contradicts(self.under)))
        return self._empty

    def _contradicts(self, before: Constraints) -> bool:
        """True only if the last assumption, or another one for what the last one says, holds nowhere."""
        changed = self.ranges.changed_since(before.ranges)
        near = [a for a in before.assumptions if isinstance(a, Expr) and not a.free.isdisjoint(changed)] if changed else []
        near += [a for a in self.assumptions[-1:] if isinstance(a, Expr)]
        return any(map(self.ranges.refutes, near))

    def given(self, *assumptions: Assumption) -> Constraints:
        """Constraints with assumptions added, one after another."""
        found = self
        for assumption in assumptions:
            found = found._given(assumption)
        return found

    def _given(self, assumption: Assumption) -> Constraints:
        found = self._next.get(assumption)
        if found is None:
            match assumption:
                case Expr() if self.ranges.implies(assumption):
                    self._next[assumption] = self
                    return self
                case Expr():
                    ranges = self.ranges.under(assumption)
                case Trip(symbol=symbol, start=start, stop=stop, implied=implied):
                    lo, (_, hi) = self.ranges.of(start)[0], self.ranges.of(stop)
                    ranges = self.ranges.under(lt(start, stop)).with_span(symbol, (lo, None if hi is None else hi - 1))
                    for c in implied:
                        ranges = ranges.with_share(c)
                case BoundedElement(symbol=symbol, span=span):
                    ranges = self.ranges.with_span(symbol, span)
            found = Constraints(ranges, None, (*self.assumptions, assumption), self)
            match assumption:
                case Compare(op, a, b) if op is LT and without_floor(b) is not b and _is_above(ranges.of(a)[0]):
                    found = self._given(lt(a, without_floor(b)))  # which says all that the other does
                case _:
                    pass
            self._next[assumption] = found
        return found

    def about(self, question: Expr) -> tuple[Constraints, Expr]:
        """The constraints that a question depends on, with iterations and elements numbered, and the question in these terms."""
        found = self._questions.get(question)
        if found is None:
            names = question.free
            near = self._near.get(names)
            if near is None:
                near = self._near[names] = self._narrowed(self._bearing(names))
            found = self._questions[question] = near[0], substitute(question, near[1])
        return found

    def closely(self, question: Expr) -> tuple[Constraints, Expr]:
        """As :meth:`about`, with fewer assumptions: the iterations in the question, and assumptions without other symbols.

        Copies of a statement differ in assumptions about other symbols: this is one question for all of them.
        """
        found = self._close.get(question)
        if found is None:
            names = question.free
            trips = [assumption.free for assumption in self.assumptions if not isinstance(assumption, Expr)]
            while near := [free for free in trips if not free.isdisjoint(names)]:
                names = names.union(*near)
                trips = [free for free in trips if free.isdisjoint(names)]
            assumptions = [assumption for assumption in self.assumptions if assumption.free and assumption.free <= names]
            narrow, symbols = self._narrowed(assumptions)
            found = self._close[question] = narrow, substitute(question, symbols)
        return found

    def release(self) -> None:
        """Drop the constraints derived from these, which refer back to them, so that reference counts free both."""
        left = [self]
        while left:
            here = left.pop()
            here.ranges.release()
            if here._next:
                left += [c for c in here._next.values() if c is not here]
                here._next = {}
            here._questions.clear()
            here._close.clear()
            here._near.clear()

    def _narrowed(self, assumptions: Iterable[Assumption]) -> tuple[Constraints, Mapping[str, Expr]]:
        """The constraints of some assumptions, and the symbols that number their iterations and elements."""
        names: dict[str, Expr] = {}
        narrow = self if self._root is None else self._root
        for assumption in assumptions:
            if isinstance(assumption, Expr):
                assumption = substitute(assumption, names)
            else:
                assumption, name = assumption.renamed(names, len(names)), str(assumption.symbol)
                names[name] = assumption.symbol
            narrow = narrow._given(assumption)
        return narrow, names

    def proves(self, condition: Expr) -> bool:
        """True only if the prover finds that a condition holds."""
        narrow, question = self.about(condition)
        if any([a is question for a in narrow.assumptions]):
            return True
        if fails(narrow, question):
            return False
        facts = narrow.facts
        if facts.samples is None and narrow.samples and sample_count(narrow.samples):  # at these the facts hold, too
            facts.samples = narrow.samples
        return prove(question, facts)

    def _bearing(self, names: frozenset[str]) -> list[Assumption]:
        """The assumptions that are connected to some symbols."""
        left = [(assumption, assumption.free) for assumption in self.assumptions]
        while True:
            near = [free for _, free in left if not free.isdisjoint(names)]
            if not near:
                break
            names = names.union(*near)
            left = [(assumption, free) for assumption, free in left if free.isdisjoint(names)]
        rest = {id(assumption) for assumption, _ in left}
        return [assumption for assumption in self.assumptions if id(assumption) not in rest]


def _is_above(least: int | None) -> bool:
    return least is not None and least >= 0
