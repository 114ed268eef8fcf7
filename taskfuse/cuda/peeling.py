"""Loops with products under conditions that hold in all iterations but the first and the last: these two are printed by themselves.

ptxas serializes ``wgmma`` that are in flight where control flow joins ("wgmma.mma_async instructions are serialized"). The loop of a software pipeline
has no other conditions around its products: without the first and the last iteration it has none. In those, a batch that has no products is not committed:
ptxas would have products begin with that commit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from taskfuse.ir.scalar import Expr, Facts, conjuncts, const, ge, lt, prove, substitute, sym
from taskfuse.kir import Kernel, bodies, map_expressions, map_stmts, walk, with_bodies
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.scope import kernel_facts
from taskfuse.kir.synchronization import Commit, WaitGroup
from taskfuse.passes.guards import SimplifyGuards

Body = tuple[Stmt, ...]


def peeled(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning whose loops have products under no condition on their variables, where that takes their first and last iteration alone."""
    facts = kernel_facts(kernel)
    body = map_stmts(kernel.body, lambda s: _ends(s) if isinstance(s, For) and _is_peeled(s, facts) else s)
    if body is kernel.body:
        return kernel
    found = SimplifyGuards().run(replace(kernel, body=body))
    return replace(found, body=_without_empty_batches(found.body, False)[0])


def _is_peeled(loop: For, facts: Facts) -> bool:
    """True if a loop has products under conditions that hold in all iterations but the first and the last."""
    if loop.unroll or loop.queue is not None or loop.step is not const(1):
        return False
    conditions = [c for c in _around_products(loop.body) if loop.var in c.free]
    if not conditions:
        return False
    inner = facts.with_range(loop.var, loop.start + 1, loop.stop - 2).with_assumption(ge(loop.stop - loop.start, 3))
    return all(prove(c, inner) for c in conditions)


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


def _without_empty_batches(body: Body, issued: bool) -> tuple[Body, bool]:
    """Statements without commits of nothing, if the waits that count these batches follow them in straight-line code.

    Args:
        issued: products may have been issued since the last commit.

    Returns:
        The statements, and whether products may have been issued since the last commit behind them.
    """
    found: list[Stmt] = []
    dropped: list[int] = []  # of each batch that is not committed, how many younger ones are
    for k, stmt in enumerate(body):
        match stmt:
            case Commit(queue=Queue.WGMMA) if not issued and _is_drained(body[k + 1 :]):
                dropped.append(0)
                continue
            case Commit(queue=Queue.WGMMA):
                issued, dropped = False, [young + 1 for young in dropped]
            case Wgmma():
                issued = True
            case WaitGroup(queue=Queue.WGMMA, pending=0):
                dropped = []  # no batch is in flight
            case _ if bodies(stmt):
                before, made = issued, list[Body]()
                if isinstance(stmt, For):
                    before = before or any(isinstance(s, Wgmma) for s in walk(stmt.body))
                for inner in bodies(stmt):
                    inside, after = _without_empty_batches(inner, before)
                    made.append(inside)
                    issued = issued or after
                stmt = with_bodies(stmt, tuple(made))
            case _:
                pass
        found.append(_left_in_flight(stmt, dropped) if dropped else stmt)
    return tuple(found), issued


def _is_drained(behind: Body) -> bool:
    """True if straight-line code waits for all products."""
    for stmt in behind:
        if isinstance(stmt, WaitGroup) and stmt.queue is Queue.WGMMA and stmt.pending == 0:
            return True
        if bodies(stmt) and any(isinstance(s, Commit) and s.queue is Queue.WGMMA for s in walk(stmt)):
            return False
    return False


def _left_in_flight(stmt: Stmt, dropped: list[int]) -> Stmt:
    """A statement whose waits for products count only batches that are committed."""

    def one(s: Stmt) -> Stmt:
        if isinstance(s, WaitGroup) and s.queue is Queue.WGMMA:
            return replace(s, pending=s.pending - sum(young < s.pending for young in dropped))
        return s

    return map_stmts((stmt,), one)[0]
