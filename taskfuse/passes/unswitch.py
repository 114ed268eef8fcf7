"""Loop unswitching: choices in registers whose conditions hold for all elements of a tile are made once for the tile.

Masks and padding are conditions on elements, but only the few tiles on the diagonal or at a ragged end are partly masked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from taskfuse.ir.scalar import (
    TRUE,
    And,
    Compare,
    CompareOp,
    Const,
    Expr,
    Facts,
    FloorDiv,
    Max,
    Min,
    Or,
    Sum,
    and_,
    bounds,
    children,
    conjuncts,
    const,
    integers_of,
    is_multiple,
    le,
    lt,
    maximum,
    minimum,
    not_,
    or_,
    prove,
    simplify,
)
from taskfuse.ir.types import MemoryType, ParallelType
from taskfuse.kir import Kernel, accesses, bodies, map_stmts, with_bodies
from taskfuse.kir.nodes import Bind, Branch, Choose, Compute, For, If, Stmt
from taskfuse.kir.scope import kernel_facts
from taskfuse.target import WARP

LEAST = 16
"""The least number of choices of a thread in a nest for which a second copy pays."""

Body = tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Unswitch:
    """Make choices in registers once for a tile if they hold for all its elements.

    Requires: a verified kernel. Ensures: the same behavior: a nest of parallel and unrolled loops inside a loop, whose choices all hold under a condition that
    is uniform over the warp, has two versions: one without choices under that condition, and the original otherwise. Nests that reduce stay as they are.
    """

    name: ClassVar[str] = "unswitch"

    def run(self, kernel: Kernel) -> Kernel:
        """The kernel with nests for whole tiles."""
        return replace(kernel, body=_Unswitching(kernel).body(kernel.body, kernel_facts(kernel), None))


class _Unswitching:
    """One run."""

    def __init__(self, kernel: Kernel) -> None:
        self.local = {b.name for b in kernel.buffers if b.memory is MemoryType.Local}
        x, *_ = kernel.block
        self.lanes = {ParallelType.TIDx.index_name}
        if not is_multiple(x, WARP, kernel_facts(kernel)):  # then the others differ in a warp, too
            self.lanes |= {ParallelType.TIDy.index_name, ParallelType.TIDz.index_name}

    def body(self, body: Body, facts: Facts, var: str | None) -> Body:
        """Statements, with neighboring nests in one branch. ``var``: the variable of the enclosing loop."""
        found: list[Stmt] = []
        run: list[Stmt] = []
        held: list[Expr] = []

        def close() -> None:
            found.extend(_branches(tuple(run), held, facts, var))
            run.clear()
            held.clear()

        for stmt in body:
            conditions = None if var is None else self._of_tile(stmt, facts)
            if conditions is None:
                close()
                found.append(self._inside(stmt, facts, var))
            else:
                run.append(stmt)
                held.extend(conditions)
        close()
        return tuple(found)

    def _inside(self, stmt: Stmt, facts: Facts, var: str | None) -> Stmt:
        match stmt:
            case For(unroll=False):
                inner = facts.with_range(stmt.var, stmt.start, stmt.stop - 1)
                return with_bodies(stmt, (self.body(stmt.body, inner, stmt.var),))
            case If():
                arms: list[Body] = []
                for b in stmt.branches:
                    arms.append(self.body(b.body, facts.with_assumption(b.cond), var))
                    facts = facts.with_assumption(not_(b.cond))
                return with_bodies(stmt, tuple(arms))
            case Bind():
                return with_bodies(stmt, (self.body(stmt.body, facts, var),))
            case _:
                return stmt

    def _of_tile(self, nest: Stmt, facts: Facts) -> tuple[Expr, ...] | None:
        """Conditions, the same for a warp, under which all choices of a nest take their first operands; ``None``: none are known, or it does not pay."""
        if not isinstance(nest, Bind | For):
            return None
        places = list(_leaves(nest, 1, facts, frozenset(self.lanes)))
        if not all(p is not None and self._is_in_registers(p.stmt) and not _accumulates(p.stmt) for p in places):
            return None
        found: list[Expr] = []
        times = 0
        for p in places:
            if p is None or not isinstance(p.stmt, Choose) or p.stmt.cases[0].cond is TRUE:
                continue
            times += p.times
            for c in conjuncts(p.stmt.cases[0].cond):
                everywhere = _everywhere(c, p.inner, p.facts)
                if everywhere is None:
                    return None
                found.append(everywhere)
        return tuple(found) if times >= LEAST else None

    def _is_in_registers(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Choose | Compute) and all(a.buffer in self.local for side in accesses(stmt) for a in side)


def _accumulates(stmt: Stmt) -> bool:
    """Whether a statement adds to what it writes: the terms of a reduction are those of one loop, whichever choices they have."""
    writes, reads = accesses(stmt)
    return not {a.buffer for a in writes}.isdisjoint(a.buffer for a in reads)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A statement of a nest: how often a thread runs it, what is known there, and the symbols whose values differ inside."""

    stmt: Stmt
    times: int
    facts: Facts
    inner: frozenset[str]


def _leaves(stmt: Stmt, times: int, facts: Facts, inner: frozenset[str]) -> Iterator[_Leaf | None]:
    """The statements of a nest of parallel and unrolled loops; ``None`` for any other statement."""
    match stmt:
        case Bind(index=index, extent=extent):
            within = facts.with_assumption(le(0, index)).with_assumption(lt(index, extent))
            for s in stmt.body:
                yield from _leaves(s, times, within, inner)
        case For(var=var, start=Const(value=start), stop=Const(value=stop), step=Const(value=step), unroll=True):
            within = facts.with_range(var, start, stop - 1)
            for s in stmt.body:
                yield from _leaves(s, times * len(range(start, stop, step)), within, inner | {var})
        case _ if bodies(stmt):
            yield None
        case _:
            yield _Leaf(stmt, times, facts, inner)


def _everywhere(condition: Expr, inner: frozenset[str], facts: Facts) -> Expr | None:
    """A condition without the symbols ``inner`` that implies another one for all of their values; ``None``: none is known."""
    if integers_of(condition).isdisjoint(inner):
        return condition
    if isinstance(condition, And | Or):
        parts = [_everywhere(c, inner, facts) for c in condition.args]
        known = [c for c in parts if c is not None]
        is_known = len(known) == len(parts) if isinstance(condition, And) else known
        return (and_ if isinstance(condition, And) else or_)(*known) if is_known else None
    if not isinstance(condition, Compare) or condition.op not in (CompareOp.LT, CompareOp.LE):
        return None
    low, high = _bound(condition.a, 1, inner, facts), _bound(condition.b, -1, inner, facts)
    if low is None or high is None:
        return None
    made = lt(low, high) if condition.op is CompareOp.LT else le(low, high)
    return simplify(made, facts)


def _bound(e: Expr, sign: int, inner: frozenset[str], facts: Facts) -> Expr | None:
    """The most (sign 1) or the least (-1) that an expression is for all values of the symbols ``inner``; ``None``: not known."""
    if integers_of(e).isdisjoint(inner):
        return e
    if integers_of(e) <= inner:
        low, high = bounds(e, facts)
        value = high if sign > 0 else low
        return None if value is None else const(value)
    match e:
        case Sum(terms, constant):
            made: Expr = const(constant)
            for term, k in terms:
                part = _bound(term, sign if k > 0 else -sign, inner, facts)
                if part is None:
                    return None
                made = made + part * k
            return made
        case Min(args) | Max(args):
            parts = [p for a in args if (p := _bound(a, sign, inner, facts)) is not None]
            join = minimum if isinstance(e, Min) else maximum
            return join(*parts) if len(parts) == len(args) else None
        case FloorDiv(a, Const(value=b)) if b > 0:
            part = _bound(a, sign, inner, facts)
            return None if part is None else part // b
        case _:
            return None


def _branches(nests: Body, held: Sequence[Expr], facts: Facts, var: str | None) -> Body:
    """Nests under the condition that all their choices take the first operands, and else."""
    kept: dict[Expr, None] = {}
    around = facts
    for c in sorted(held, key=lambda c: _is_clamped(c, var)):  # what others say of the end of an axis decides where an index is clamped
        found = simplify(c, facts)
        if _is_clamped(found, var):  # one of two conditions: that says little of elements
            return nests
        kept |= dict.fromkeys(conjuncts(found))
        facts = facts.with_assumption(found)
    condition = and_(*kept)
    if condition is TRUE or not nests or prove(not_(condition), around):
        return nests
    return (If((Branch(condition, map_stmts(nests, _chosen)), Branch(TRUE, nests)), location=nests[0].location),)


def _is_clamped(e: Expr, var: str | None) -> bool:
    """True if a part is clamped that the loop's variable decides: not where a table is read, nor a bound that all of the loop has."""
    return var in integers_of(e) and (isinstance(e, Min | Max) or any(_is_clamped(part, var) for part in children(e)))


def _chosen(stmt: Stmt) -> Stmt:
    return replace(stmt, cases=(replace(stmt.cases[0], cond=TRUE),)) if isinstance(stmt, Choose) else stmt
