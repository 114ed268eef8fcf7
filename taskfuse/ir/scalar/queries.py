"""Questions about expressions under facts: ``simplify``, ``prove``, ``bounds``, ``is_multiple``."""

from __future__ import annotations

from collections.abc import Sequence

from taskfuse.ir.scalar import search
from taskfuse.ir.scalar.alike import counted
from taskfuse.ir.scalar.arithmetic import mod
from taskfuse.ir.scalar.expr import TRUE, ZERO, And, Const, Expr, FloorDiv, IntLike, Mod, Not, Or, children, wrap
from taskfuse.ir.scalar.facts import Facts, Interval
from taskfuse.ir.scalar.intervals import divisor, interval
from taskfuse.ir.scalar.logic import as_boolean, ge, not_
from taskfuse.ir.scalar.lookups import integers_of, lookups_of
from taskfuse.ir.scalar.memory import forgotten_by
from taskfuse.ir.scalar.rewrite import PENDING, Rewriter
from taskfuse.ir.scalar.samples import fails_somewhere, possible_quotients, samples_of
from taskfuse.ir.scalar.transform import substitute

NO_FACTS = Facts()
forgotten_by(NO_FACTS.forget)


class _ProvingRewriter(Rewriter):
    """The rules, with the prover behind their side conditions."""

    @classmethod
    def of(cls, facts: Facts) -> Rewriter:
        return cls(facts, facts.strong_memo)

    def nonnegative(self, form: Expr) -> bool:
        return search.nonnegative(form, self.facts)

    def _possible_quotients(self, a: Expr, b: Expr) -> tuple[int, ...] | None:
        if isinstance(b, Const) and search.is_attained(a, self.facts):  # bounds, which have been tried, tell as much as samples, which take long to make
            return ()
        return possible_quotients(a, b, self.facts)

    def __call__(self, e: Expr) -> Expr:
        if isinstance(e, Const):
            return e
        if e in self.memo or not lookups_of(e) or (near := self.facts.about(e.free)) is self.facts:  # without tables it is a short one
            return super().__call__(e)
        found = self.of(near)(e)
        if near.strong_memo.get(e) is not PENDING:  # else two rules undo each other
            self.memo[e] = found
        return found


def simplify(e: IntLike, facts: Facts = NO_FACTS) -> Expr:
    """An expression equal to ``e`` wherever the facts hold (and ``e`` has a value), as simple as the rules make it."""
    e = wrap(e)
    if isinstance(e, Const):
        return e
    found = facts.strong_memo.get(e)
    if found is not None and found is not PENDING:
        return found
    if found is None and lookups_of(e):  # a long one
        asked, known, back = counted(e, facts.about(e.free))
        found = facts.strong_memo[e] = substitute(_ProvingRewriter.of(known)(asked), back)
        return found
    return _ProvingRewriter.of(facts)(e)


def prove(cond: IntLike, facts: Facts = NO_FACTS) -> bool:
    """True only if ``cond`` holds wherever the facts do. False means "not proved", not "false"."""
    condition = as_boolean(cond)
    return not _fails(condition, facts) and _prove(condition, facts)


def _fails(condition: Expr, facts: Facts) -> bool:
    """True only if a condition about tables, which are long, fails at values at which the facts hold, and no result is known."""
    if not lookups_of(condition) or condition in facts.known or condition in facts.strong_memo:
        return False
    asked, known, _ = counted(condition, facts.about(condition.free))
    try:
        return fails_somewhere(asked, samples_of(known))
    except ZeroDivisionError:  # of constants
        return False


def _prove(condition: Expr, facts: Facts) -> bool:
    match condition:
        case And(args):
            return all(prove(arg, facts) for arg in args)
        case Or() | Not(And()):
            args = _alternatives(condition)
            return _one_holds(args, facts) or any(_one_holds_in_each(args, known, facts) for known in facts.known if isinstance(known, Or | Not))
        case Not(Or(args)):
            return all(prove(not_(arg), facts) for arg in args)
        case _:
            return _follows_closely(condition, facts) or simplify(condition, facts) is TRUE


def _follows_closely(condition: Expr, facts: Facts) -> bool:
    """True only if a condition about tables follows from what is known of its symbols alone, which is asked of it at many places."""
    if not lookups_of(condition) or condition in facts.strong_memo:
        return False
    close = facts.closely(integers_of(condition))
    is_less = len(close.known) < len(facts.about(condition.free).known)
    return is_less and not _fails(condition, close) and simplify(condition, close) is TRUE


def _one_holds(conditions: Sequence[Expr], facts: Facts) -> bool:
    """True only if one of some conditions always holds: one does where those before it do not."""
    for condition in conditions:
        if prove(condition, facts):
            return True
        facts = facts.with_assumption(not_(condition))
    return False


def _one_holds_in_each(conditions: Sequence[Expr], known: Expr, facts: Facts) -> bool:
    """True only if one of some conditions holds whichever of the alternatives of a known one does."""
    cases = _alternatives(known) if not known.free.isdisjoint({name for c in conditions for name in c.free}) else ()
    return bool(cases) and all(_one_holds(conditions, facts.with_assumption(case)) for case in cases)


def _alternatives(condition: Expr) -> tuple[Expr, ...]:
    """The conditions of which one holds where a disjunction does; none for another condition."""
    match condition:
        case Or(args):
            return args
        case Not(And(args)):
            return tuple(map(not_, args))
        case _:
            return ()


def bounds(e: IntLike, facts: Facts = NO_FACTS) -> Interval:
    """Constants ``(lo, hi)`` with ``lo <= e <= hi`` wherever the facts hold; ``None`` where no bound was found."""
    return interval(simplify(e, facts), facts)


def is_multiple(e: IntLike, k: IntLike, facts: Facts = NO_FACTS) -> bool:
    """True only if ``e`` is a multiple of ``k`` wherever the facts hold."""
    number, of = wrap(e), wrap(k)
    if isinstance(of, Const) and of.value and divisor(number, facts) % of.value == 0:
        return True
    return simplify(mod(number, of), facts) is ZERO


def unsafe_divisor(e: Expr, facts: Facts = NO_FACTS) -> Expr | None:
    """A divisor in ``e`` that is not known to be at least 1, so that ``e`` may have no value; ``None``: no such divisor."""
    if isinstance(e, FloorDiv | Mod) and not prove(ge(e.b, 1), facts):
        return e.b
    return next((found for part in children(e) if (found := unsafe_divisor(part, facts)) is not None), None)
