"""Loops with products under conditions that hold in all iterations but the first and the last: these are printed by themselves.

ptxas serializes ``wgmma`` that are in flight where control flow joins ("wgmma.mma_async instructions are serialized"). The loop of a software pipeline
has no other conditions around its products: without the first and the last iteration it has none.

Each iteration that is printed by itself has its own addresses in registers, and few are left besides accumulators. So the first one stays in the loop where
the sums of its conditional products begin anew: there the products are made without their condition, of whatever Shared memory holds, and nothing reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from taskfuse.ir.scalar import FALSE, ZERO, Expr, Facts, conjuncts, const, ge, lt, prove, substitute, sym
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.kir import Kernel, bodies, map_expressions, map_stmts, walk
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import kernel_facts
from taskfuse.kir.synchronization import WgmmaFence
from taskfuse.kir.walk import all_accesses
from taskfuse.passes.guards import SimplifyGuards

Body = tuple[Stmt, ...]
THREADS = frozenset(p.index_name for p in THREAD_TYPES)


def peeled(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning whose loops have products under no condition on their variables, where that takes their first and last iteration alone."""
    facts = kernel_facts(kernel)

    def changed(s: Stmt) -> Stmt | Body:
        if not isinstance(s, For) or not _counts(s):
            return s
        loop = _ahead(s, kernel, facts)
        if _is_peeled(loop, facts):
            return _ends(loop, facts)
        return s if _conditions(loop) else loop

    body = map_stmts(kernel.body, changed)
    return kernel if body is kernel.body else SimplifyGuards().run(replace(kernel, body=body))


def _counts(loop: For) -> bool:
    """True for a loop of code that runs over consecutive numbers."""
    return not loop.unroll and loop.queue is None and loop.step is const(1)


def _is_peeled(loop: For, facts: Facts) -> bool:
    """True if a loop has products under conditions that hold in all iterations but the first and the last, and on which all threads agree."""
    conditions = _conditions(loop)
    return bool(conditions) and all(c.free.isdisjoint(THREADS) for c in conditions) and _hold(conditions, _inside(loop, facts, 1, 1))


def _conditions(loop: For) -> list[Expr]:
    """The conditions on its variable around its products."""
    return [c for c in _around_products(loop.body) if loop.var in c.free]


def _inside(loop: For, facts: Facts, first: int, last: int) -> Facts:
    """Facts in all iterations but ``first`` ones and ``last`` ones, where there are others."""
    return facts.with_range(loop.var, loop.start + first, loop.stop - 1 - last).with_assumption(ge(loop.stop - loop.start, 3))


def _hold(conditions: Collection[Expr], facts: Facts) -> bool:
    return all(prove(c, facts) for c in conditions)


def _ahead(loop: For, kernel: Kernel, facts: Facts) -> For:
    """A loop whose conditions on products hold in the first iteration, too, where what these make then is not read."""
    inside = _inside(loop, facts, 1, 0)

    def freed(s: Stmt) -> Stmt | Body:
        match s:
            case If(branches=(Branch(cond=cond, body=body),)) if loop.var in cond.free and _multiplies(body) and prove(cond, inside):
                sums = {x.acc.buffer for t in body for x in walk(t) if isinstance(x, Wgmma)}
                return body if all(_begins(x) for t in body for x in walk(t) if isinstance(x, Wgmma)) and _are_read_under(cond, sums, kernel, loop) else s
            case _:
                return s

    body = map_stmts(loop.body, freed)
    return loop if body is loop.body else replace(loop, body=body)


def _multiplies(body: Body) -> bool:
    """True for products and their fences alone."""
    return all(isinstance(s, Wgmma | WgmmaFence) or (isinstance(s, Bind | For) and _multiplies(s.body)) for s in body)


def _begins(product: Wgmma) -> bool:
    """True for a product of a sum that the products around it begin: the first does not add, in whatever trip."""
    zeros: dict[str, Expr] = dict.fromkeys(product.accumulate.free, ZERO)
    return len(zeros) == 1 and substitute(product.accumulate, zeros) is FALSE


def _are_read_under(condition: Expr, sums: Collection[str], kernel: Kernel, loop: For) -> bool:
    """True if nothing but a loop accesses some accumulators, and there all is under a condition, except waits."""

    def outside(body: Body) -> Iterator[Stmt]:
        for s in body:
            if isinstance(s, If) and len(s.branches) == 1 and s.branches[0].cond == condition:
                continue
            yield s
            for inner in bodies(s):
                yield from outside(inner)

    inside = {id(s) for t in loop.body for s in walk(t)} - {id(s) for s in outside(loop.body)}
    return not any(a.buffer in sums for s in walk(kernel) if id(s) not in inside for a in all_accesses(s))


def _around_products(body: Body) -> Iterator[Expr]:
    """The conditions around products, except those in loops of their own."""
    for s in body:
        match s:
            case If(branches=(Branch(cond=cond, body=inside),)) if any(isinstance(x, Wgmma) for t in inside for x in walk(t)):
                yield from conjuncts(cond)
                yield from _around_products(inside)
            case Bind():
                yield from _around_products(s.body)
            case For(unroll=True):
                yield from _around_products(s.body)
            case _:
                pass


def _ends(loop: For, facts: Facts) -> Body:
    """The first iteration, those between, and the last one, of which the loop keeps those that need not be apart; other code for fewer than two."""
    var, last, conditions = sym(loop.var), loop.stop - 1, _conditions(loop)
    is_first = not _hold(conditions, _inside(loop, facts, 0, 1))
    is_last = not _hold(conditions, _inside(loop, facts, 1, 0))

    def at(value: Expr) -> Body:
        return map_stmts(loop.body, lambda s: map_expressions(replace(s), lambda e: substitute(e, {str(var): value})))

    several = ge(loop.stop - loop.start, 2)
    between = replace(loop, start=loop.start + is_first, stop=loop.stop - is_last, body=at(var))
    whole = (*(at(loop.start) if is_first else ()), between, *(at(last) if is_last else ()))
    return (If((Branch(several, whole), Branch(lt(loop.stop - loop.start, 2), (replace(loop, body=at(var)),)))),)
