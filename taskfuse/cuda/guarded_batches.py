"""Batches of products that some warpgroups do not issue: one branch around fence, products, commit and wait, and another one without products.

Kernel IR guards each product on its own, where a warpgroup multiplies for no row that is read (:mod:`taskfuse.lowering.read_parts`). ptxas tells batches apart
by their place in the text: products in a branch are a batch that ends with it, and a commit behind the branch closes another one, of a product of nothing. A
wait for all but one batch then waits for the real one in each step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from taskfuse.ir.scalar import TRUE, not_
from taskfuse.ir.types import THREAD_TYPES
from taskfuse.kir import Kernel, bodies, walk, with_bodies
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.operands import Queue
from taskfuse.kir.products import Wgmma
from taskfuse.kir.synchronization import Commit, WaitGroup, WgmmaFence

THREADS = frozenset(p.index_name for p in THREAD_TYPES)


def with_guarded_batches(kernel: Kernel) -> Kernel:
    """A kernel of the same meaning, each thread of which executes the same statements: batches whose products all have one condition stand in a branch."""
    return replace(kernel, body=_body(kernel.body)) if any(isinstance(s, Wgmma) for s in walk(kernel)) else kernel


def guards_of_batches(kernel: Kernel) -> frozenset[int]:
    """The guards of products, by ``id``, that the text asks once for a batch."""
    return frozenset(id(guard) for guard in _guards(kernel.body))


def _guards(body: tuple[Stmt, ...]) -> Iterator[If]:
    for k, stmt in enumerate(body):
        guard = _guard_of_batch(body[k : k + 4])
        if guard is not None:
            yield guard
        for inner in bodies(stmt):
            yield from _guards(inner)


def _body(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    found: list[Stmt] = []
    for stmt in body:
        inner = tuple(map(_body, bodies(stmt)))
        found.append(stmt if inner == bodies(stmt) else with_bodies(stmt, inner))
        guard = _guard_of_batch(found[-4:])
        if guard is not None:
            fence, products, *closing = found[-4:]
            arms = Branch(not_(guard.branches[0].cond), (fence, *closing)), Branch(TRUE, (fence, _bare(products), *closing))
            found[-4:] = [If(arms, location=fence.location)]
    return tuple(found)


def _guard_of_batch(stmts: Sequence[Stmt]) -> If | None:
    """The guard of all products of a batch, if four statements are a batch of products that some threads do not issue."""
    match stmts:
        case [WgmmaFence(), products, Commit(queue=Queue.WGMMA), WaitGroup(queue=Queue.WGMMA)]:
            guard = _guard(products)
            return guard if guard is not None and not guard.branches[0].cond.free.isdisjoint(THREADS) else None
        case _:
            return None


def _guard(stmt: Stmt) -> If | None:
    """The guard of all products of a nest, the same in all of its iterations; ``None`` if there is none, or they are not alone."""
    match stmt:
        case If(branches=(Branch(body=(Wgmma(),), label=None),)):
            return stmt
        case Bind(body=(inner,)):
            return _guard(inner)
        case For(var=var, body=(inner,), unroll=True):
            guard = _guard(inner)
            return guard if guard is not None and var not in guard.branches[0].cond.free else None
        case _:
            return None


def _bare(stmt: Stmt) -> Stmt:
    """Such a nest without the condition."""
    match stmt:
        case If(branches=(branch,)):
            return branch.body[0]
        case _:
            return with_bodies(stmt, tuple((_bare(inner),) for (inner,) in bodies(stmt)))
