"""Loops with products under conditions that hold in all iterations but the first and the last: these two are printed by themselves.

ptxas serializes ``wgmma`` that are in flight where control flow joins ("wgmma.mma_async instructions are serialized"). The loop of a software pipeline
has no other conditions around its products: without the first and the last iteration it has none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taskfuse.ir.scalar import Expr, Facts, conjuncts, const, ge, lt, prove, substitute, sym
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.kir import Kernel, map_expressions, map_stmts, walk
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import kernel_facts
from taskfuse.passes.guards import SimplifyGuards

Body = tuple[Stmt, ...]
THREADS = frozenset(p.index_name for p in THREAD_TYPES)


def peeled(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning whose loops have products under no condition on their variables, where that takes their first and last iteration alone."""
    facts = kernel_facts(kernel)
    body = map_stmts(kernel.body, lambda s: _ends(s) if isinstance(s, For) and _is_peeled(s, facts) else s)
    return kernel if body is kernel.body else SimplifyGuards().run(replace(kernel, body=body))


def _is_peeled(loop: For, facts: Facts) -> bool:
    """True if a loop has products under conditions that hold in all iterations but the first and the last, and on which all threads agree."""
    if loop.unroll or loop.queue is not None or loop.step is not const(1):
        return False
    conditions = [c for c in _around_products(loop.body) if loop.var in c.free]
    if not conditions:
        return False
    inner = facts.with_range(loop.var, loop.start + 1, loop.stop - 2).with_assumption(ge(loop.stop - loop.start, 3))
    return all(c.free.isdisjoint(THREADS) and prove(c, inner) for c in conditions)


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


def _ends(loop: For) -> Body:
    """The first iteration, those between, and the last one; other code for fewer than two."""
    var, last = sym(loop.var), loop.stop - 1

    def at(value: Expr) -> Body:
        return map_stmts(loop.body, lambda s: map_expressions(replace(s), lambda e: substitute(e, {str(var): value})))

    several = ge(loop.stop - loop.start, 2)
    whole = (*at(loop.start), replace(loop, start=loop.start + 1, stop=last, body=at(var)), *at(last))
    return (If((Branch(several, whole), Branch(lt(loop.stop - loop.start, 2), (replace(loop, body=at(var)),)))),)
