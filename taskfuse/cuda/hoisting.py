"""Loop-invariant divisions and table searches, computed once at the start of a body.

A quotient by a divisor that differs between threads or iterations costs dozens of instructions, a search several dependent reads, and the compiler
leaves both in the branch of a guard. So a body starts with variables for those that its loops repeat, or that it uses more than once. They are integer
functions of indices and extents, computed where no guard may hold: a search reads inside its table whatever its key and size, an element is one that
is always there, and where divisors may be less than 1, or a table may have no places, the printed ones are clamped
(:attr:`~taskfuse.cuda.expressions.Indices.speculated`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from taskfuse.cuda.expressions import once
from taskfuse.ir.scalar import ZERO, Const, Element, Expr, FloorDiv, Max, Min, Mod, UpperBound, and_, children, elements_of, ge, le, lt, prove
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import Branch, For, If, Stmt
from taskfuse.kir.scope import loop_facts
from taskfuse.kir.synchronization import Advance, Cursor, CursorInit
from taskfuse.kir.walk import bodies, expressions, own_symbols, walk

_MANY = 2
"""Uses that make a name worth it; one in a loop counts as that many."""


class Divisions:
    """The divisions of one kernel that bodies may hoist.

    Args:
        uniform: symbols with launch-uniform values: dividing by them is cheap.
    """

    def __init__(self, kernel: Kernel, uniform: frozenset[str]) -> None:
        self._uniform = uniform
        self._facts = once(lambda: loop_facts(kernel))
        self._there: dict[Element, bool] = {}
        statements = list(walk(kernel))
        self._moving = {symbol for s in statements if isinstance(s, CursorInit) for symbol in Cursor(s.name).symbols}
        self._any = any(self._is_costly(e) for s in statements for whole in expressions(s) for e in _inside(whole))

    def _is_costly(self, e: Expr) -> bool:
        is_costly = isinstance(e, Element | UpperBound) or (isinstance(e, FloorDiv | Mod) and not e.b.free <= self._uniform)
        return is_costly and all(map(self._exists, elements_of(e)))

    def _exists(self, e: Element) -> bool:
        """True only for an element that there is under any condition: at a place that was looked up in a table of as many, or the next one, if there are
        places; or at a number that is always one of theirs."""
        if e not in self._there:
            in_table = (_is_place(e.index, e) or _is_place(e.index - 1, e)) and prove(ge(e.size, 1), self._facts())
            self._there[e] = in_table or prove(and_(le(ZERO, e.index), lt(e.index, e.size)), self._facts())
        return self._there[e]

    def of(self, body: tuple[Stmt, ...], known: Mapping[Expr, object]) -> list[Expr]:
        """The expressions to hoist to the start of ``body``, each after those that it uses.

        Args:
            known: expressions that have a variable already.
        """
        if not self._any:
            return []
        unset = self._moving | {s.var for s in walk(body) if isinstance(s, For)} | {name for s in walk(body) for name in own_symbols(s)}
        uses: Counter[Expr] = Counter()
        for stmt in body:
            self._count(stmt, unset, known, 1, uses)
        found = {e for e, n in uses.items() if n >= _MANY}
        inner = Counter(e for whole in found for e in set(_inside(whole)) if e is not whole and self._is_costly(e) and e not in known)
        found |= {e for e, n in inner.items() if n >= _MANY or uses[e]}
        return sorted(found, key=lambda e: (sum(1 for _ in _inside(e)), str(e)))

    def _count(self, stmt: Stmt, unset: Container[str], known: Mapping[Expr, object], weight: int, uses: Counter[Expr]) -> None:
        for e in expressions(stmt):
            for part in self._largest(e, unset, known):
                uses[part] += weight
        inside = _MANY if isinstance(stmt, For) else weight
        for body in bodies(stmt):
            for inner in body:
                self._count(inner, unset, known, inside, uses)

    def _largest(self, e: Expr, unset: Container[str], known: Mapping[Expr, object]) -> Iterator[Expr]:
        """The costly parts of an expression whose symbols all have values, and that stand in no other such part."""
        if e in known:
            return
        if self._is_costly(e) and not any(name in unset for name in e.free):
            yield e
            return
        for part in children(e):
            yield from self._largest(part, unset, known)


def _is_place(place: Expr, e: Element) -> bool:
    match place:
        case UpperBound(size=size):
            return size is e.size
        case Element(low=Const(value=least), high=greatest):  # of a table of places: as a search
            return least >= 0 and greatest is e.size - 2
        case Min(args):
            return any(_is_place(a, e) for a in args) and all(_is_nonnegative(a) or _is_place(a, e) for a in args)
        case _:
            return False


def _is_nonnegative(e: Expr) -> bool:
    return isinstance(e, Max) and any(isinstance(a, Const) and a.value >= 0 for a in e.args)


def _inside(e: Expr) -> Iterator[Expr]:
    yield e
    for part in children(e):
        yield from _inside(part)


def guard_around(loop: For) -> If | None:
    """The guard around an unrolled loop of which all iterations have it; ``None``: they have none, or it may differ between them.

    A compiler takes such a guard out of the loop by itself, but may then not unroll it: arrays that the loop indexes are no registers then.
    """
    match loop:
        case For(unroll=True, start=Const(start), stop=Const(stop), body=(If(branches=(Branch() as branch,)) as guard,)) if start < stop:
            moving = {
                symbol
                for s in branch.body
                for t in walk(s)
                if isinstance(t, CursorInit | Advance)
                for symbol in Cursor(t.name if isinstance(t, CursorInit) else t.cursor).symbols
            }
            if branch.cond.free.isdisjoint(moving | {loop.var}):
                return replace(guard, branches=(replace(branch, body=(replace(loop, body=branch.body),)),))
            return None
        case _:
            return None
