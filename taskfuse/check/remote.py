"""Accesses to other blocks of a cluster: rings across blocks, the destinations of their copies, and that no block exits too early.

A ring *across* some cluster types has a ``full`` and an ``empty`` in each of the blocks that these types join; docs/proof.md extends the argument
for rings to it. Besides what every ring requires:

1. all endpoints make the same visits in all of these blocks: loops and conditions around them do not depend on the types;
2. every position brings a copy from each of the blocks to all of them, and each release arrives in all of them, so that no block is a phase ahead;
3. copies of one position into one buffer have disjoint destinations;
4. a barrier of the cluster stands between the mbarriers' initialization and their use, and one after the last copy or arrival.

Threads access Shared memory of other blocks between two barriers of the cluster: after the first all its blocks have begun, before the last none has exited.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from math import prod

from taskfuse.check.accesses import Use, Uses
from taskfuse.check.barriers import Barriers
from taskfuse.check.clusters import Clusters, Types, place
from taskfuse.check.paths import Paths, PathStep
from taskfuse.check.statement_tree import BLOCK_NAMES, Node, StatementTree
from taskfuse.check.traversals import NotRing, Visit
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, const, evaluate
from taskfuse.ir.types import CLUSTER_TYPES
from taskfuse.kir.declarations import TensorMapParam
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.synchronization import Arrive, BarrierScope
from taskfuse.reports.certificate import Layer, Obligation, Verdict


def joined(clusters: Clusters, full: str, producer: Sequence[Visit], releases: Sequence[Visit], waits: Sequence[Visit]) -> Types:
    """The types across which a ring's blocks are joined; empty for a ring of one block. Raises :class:`NotRing`.

    Args:
        producer: places where the producer waits and issues copies; releases: where consumers arrive; waits: where they wait.
    """
    loads = [n for v in producer for n in v.arrivals if isinstance(n.stmt, TmaLoad) and n.stmt.across]
    gives = [n for v in releases for n in v.arrivals if isinstance(n.stmt, Arrive)]
    for v in producer:
        for n in v.arrivals:
            if isinstance(n.stmt, Arrive) and n.stmt.across:
                raise NotRing(f"threads of other blocks arrive at {full}", n)
    found = {n.stmt.across for n in (*loads, *gives) if isinstance(n.stmt, (Arrive, TmaLoad))}
    if found <= {()}:
        return ()
    if len(found) > 1:
        raise NotRing("copies and releases do not reach the same blocks of the cluster", *loads[:1], *gives[:1])
    (across,) = found
    for v in producer:
        if not any(n in loads for n in v.arrivals):
            raise NotRing("a position brings no copy to the other blocks of the cluster: they could run ahead", *v.arrivals[:1])
    for v in (*producer, *releases, *waits):
        for n in (v.wait, *v.arrivals, v.advance):
            if n is not None and (reason := clusters.uneven(n, across)):
                raise NotRing(reason, n)
    return across


def apart(clusters: Clusters, a: Use, b: Use, shape: Sequence[Expr]) -> bool:
    """True only if copies of one position, from any blocks, have disjoint destinations in a buffer: all pairs are compared.

    A copy accesses as many elements from its first one on as its box has (a swizzle moves them inside whole rows).

    Args:
        shape: of the buffer, the ring's slots first.
    """
    one, two = (_landings(clusters, u, shape) for u in (a, b))
    if one is None or two is None:
        return False
    if a is b:
        first, size = sorted(one[0]), one[1]
        return all(y - x >= size for x, y in pairwise(first))
    return all(x + one[1] <= y or y + two[1] <= x for x in one[0] for y in two[0])


def _landings(clusters: Clusters, u: Use, shape: Sequence[Expr]) -> tuple[list[int], int] | None:
    """First elements of the copies that a statement issues at one position in all blocks, without the slot, and the elements of each."""
    stmt = u.node.stmt
    assert isinstance(stmt, TmaLoad)
    if clusters.shape is None:
        return None
    at: Expr = const(0)
    for e, extent in list(zip(stmt.out.index, shape, strict=True))[1:]:
        at = at * extent + e
    across = stmt.across or CLUSTER_TYPES
    at = clusters.placed(at, across)
    ranges = {place(b).name: range(n) for b, n, p in zip(BLOCK_NAMES, clusters.shape, CLUSTER_TYPES, strict=True) if p in across}
    if not at.free <= ranges.keys():
        return None
    boxes = {p.name: p.box for p in u.context.kernel.params if isinstance(p, TensorMapParam)}
    points = [dict(zip(ranges, values, strict=True)) for values in product(*ranges.values())]
    return [int(evaluate(at, point)) for point in points], prod(boxes[stmt.map])


def while_they_run(tree: StatementTree, paths: Paths, barriers: Barriers, uses: Uses) -> list[Obligation]:
    """Accesses to Shared memory of other blocks happen while these run: a cluster barrier precedes the access, and one follows it."""
    clusters = Clusters(tree)

    def meets(steps: Iterable[PathStep]) -> bool:
        return any((m := barriers.at.get(s.node)) is not None and m.scope is BarrierScope.CLUSTER for s in steps)

    found: dict[Node, str] = {}
    remote = [u for u in uses.all if MEDIA[u.memory].is_by_rank and not (u.index[0] is not None and clusters.is_own(u.index[0], u.context.facts))]
    for u in remote:
        if not meets(paths.from_start(u.node)):
            found[u.node] = "no barrier of the cluster stands before it: a block that it accesses may not have begun"
        elif not meets(paths.to_end(u.node)):
            found[u.node] = "no barrier of the cluster follows it: a block that it accesses may have exited"
    if remote and not found:
        return [Obligation(Layer.ORDER, "cluster memory", Verdict.PROVED, f"{len(remote)} accesses of other blocks happen while these run")]
    return [Obligation(Layer.ORDER, n.text, Verdict.OUTSIDE, reason) for n, reason in found.items()]


def before_exit(tree: StatementTree, paths: Paths, barriers: Barriers, rings: Iterable[str]) -> list[Obligation]:
    """Every arrival and copy at another block is part of a ring, and a cluster barrier follows it, so that no block exits before.

    Args:
        rings: the mbarriers of rings across blocks. At others all blocks arrive and wait.
    """
    held = {*rings, *barriers.mbarriers}
    found: list[Obligation] = []
    count = 0
    for n in tree.leaves():
        stmt = n.stmt
        if not isinstance(stmt, (Arrive, TmaLoad)) or not stmt.across:
            continue
        count += 1
        reason = ""
        if stmt.barrier.name not in held:
            reason = "it accesses other blocks of the cluster outside a ring, and they do not all wait for it"
        elif not any((m := barriers.at.get(s.node)) is not None and m.scope is BarrierScope.CLUSTER for s in paths.to_end(n)):
            reason = "no barrier of the cluster follows it: a block that it accesses may have exited"
        if reason:
            found.append(Obligation(Layer.ORDER, n.text, Verdict.OUTSIDE, reason))
    if count and not found:
        found.append(Obligation(Layer.ORDER, "cluster", Verdict.PROVED, f"{count} statements access other blocks before those exit"))
    return found
