"""Rings in registers: the loop around one is unrolled, so that each copy of its body uses a slot that is a constant.

A register has no address (CUDA puts an array with other indices into memory). A loop that is unrolled anyway, or has no more trips than the ring
slots, keeps its form: trip ``i`` uses slot ``i % stages``. Any other is cut into rounds of ``stages`` trips, and the trips that are left
behind them::

    for q in 0..T // S:
        for r in 0..S unrolled:  trip S*q + r, slot r
    for r in 0..S - 1 unrolled:
        if r < T % S:            trip S*(T // S) + r, slot r

The ring begins at slot 0 whenever the loop is entered; no cursor has to be kept.
"""

from __future__ import annotations

from taskfuse.ir.scalar import Const, Expr, Facts, const, lt, simplify, sym
from taskfuse.kir.synchronization import Advance
from taskfuse.lowering.domains import refused
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PSync, moved, selected, statements
from taskfuse.lowering.prefetch import Prefetch, blocks, rename


def unroll_rings(plan: list[PNode], rings: list[Prefetch], facts: Facts) -> None:
    """Unroll every loop with a ring in registers by the number of its slots. ``facts``: what is known of arguments.

    Raises:
        LoweringError: the loop would have to be cut, and it moves a cursor of another ring.
    """
    inner_first = [(block, n) for block in reversed(list(blocks(plan))) for n in block if isinstance(n, PLoop)]
    for block, loop in inner_first:
        ring = next((ring for ring in rings if ring.loop is loop and ring.in_registers), None)
        if ring is None:
            continue
        trips = simplify(loop.extent, facts)
        if loop.unroll or (isinstance(trips, Const) and trips.value <= ring.stages):
            loop.unroll, loop.extent = True, trips
            for s in statements(loop.body):
                rename(s, {ring.slot: sym(loop.var) % ring.stages})
            continue
        if selected(loop.body, lambda n: isinstance(n, PSync) and any(isinstance(s, Advance) for s in n.stmts)):
            reason = f"its ring of {ring.stages} slots in registers cuts a loop of {trips} trips into rounds, and another ring takes a slot in each trip"
            raise refused(ring.tensors[0], reason, "unroll the loop, if it has a constant number of trips; or set_memory_type(Shared)")
        at = block.index(loop)
        block[at : at + 1] = _cut(ring, trips, facts)


def _cut(ring: Prefetch, trips: Expr, known: Facts) -> list[PNode]:
    """Rounds of as many trips as there are slots, and the trips that are left."""
    loop, stages = ring.loop, ring.stages
    rounds, left = simplify(trips // stages, known), simplify(trips % stages, known)
    q, r, e = (f"{loop.var}.{mark}" for mark in "qre")

    def within(facts: Facts) -> Facts:
        return facts.with_range(q, 0, rounds - 1).with_range(r, 0, stages - 1)

    def behind(facts: Facts) -> Facts:
        return facts.with_range(e, 0, stages - 2).with_assumption(lt(sym(e), left))

    body = moved(loop.body, {loop.var: sym(q) * stages + sym(r), ring.slot: sym(r)}, within)
    found: list[PNode] = [PLoop(q, rounds, False, [PLoop(r, const(stages), True, body)])]
    if left is not const(0):
        rest = moved(loop.body, {loop.var: rounds * stages + sym(e), ring.slot: sym(e)}, behind)
        found.append(PLoop(e, const(stages - 1), True, [PGuard(lt(sym(e), left), rest)]))
    return found
