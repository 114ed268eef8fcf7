"""Rings inside one role: circular buffers that the same threads write and read; rings in registers have no cursor.

Each iteration of the innermost loop around the tensor uses the next of ``stages`` slots. The role fills them ahead where it can
(:mod:`taskfuse.lowering.prefetch`). Where it cannot, a slot is written again only ``stages`` iterations later: the barrier that orders the data orders the
reuse of the slot, too, and the sync pass needs no second one.

A register has no address (CUDA puts an array with other indices into memory). So the loop around a ring in registers is unrolled, so that each copy of
its body uses a slot that is a constant. A loop that is unrolled anyway, or has no more trips than the ring slots, keeps its form: trip ``i`` uses slot
``i % stages``. Any other is split into rounds of ``stages`` trips, and the remaining trips::

    for q in 0..T // S:
        for r in 0..S unrolled:  trip S*q + r, slot r
    for r in 0..S - 1 unrolled:
        if r < T % S:            trip S*(T // S) + r, slot r

The ring begins at slot 0 whenever the loop is entered, so it has no cursor. A ring whose slots asynchronous reads hold has a loop whose trips are a multiple
of its slots (:mod:`taskfuse.lowering.held_rings`), which is unrolled whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from taskfuse.ir.identity import among
from taskfuse.ir.scalar import Const, Expr, Facts, const, lt, simplify, sym
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.synchronization import Advance, CursorInit
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.domains import refused
from taskfuse.lowering.held_rings import HeldRing, held_rings, is_held
from taskfuse.lowering.plan import PGuard, PLoop, PNode, PSync, children, moved, selected, statements
from taskfuse.lowering.prefetch import Prefetch, blocks, copy_of, own_ring, prefetch, rename
from taskfuse.lowering.statements import Statements
from taskfuse.schedule.shared_loops import Loop


class RoleRings:
    """The rings inside roles, and the slots of all rings.

    Attributes:
        loops: buffer -> the loops whose iterations take its slots in turn, and the number of slots.
        shared: tensor -> the tensor whose storage it uses: the first one with the same ring name.
    """

    def __init__(self, ring: dict[TensorView, Loop], channels: Channels) -> None:
        self._channels = channels
        self._ring = ring
        self.shared = {tv.name: first.name for first, tv in _sharers(channels.tree.place)}
        self.prefetches: list[Prefetch] = []
        self.held: list[HeldRing] = []

    @staticmethod
    def of(channels: Channels, paths: Mapping[TensorView, tuple[Loop, ...]]) -> RoleRings:
        """Those of all circular buffers that are not a boundary of a channel. ``paths``: the loops of the nest around each tensor."""
        ring: dict[TensorView, Loop] = {}
        for tv in channels.tree.place:
            if tv.schedule.stages == 1 or channels.channel(tv) is not None:
                continue
            around = zip(paths[tv], tv.loop[: tv.schedule.inline], strict=False)
            loops = [loop for loop, a in around if tv.schedule.ptype(a).is_loop]
            if loops:
                ring[tv] = loops[-1]
        return RoleRings(ring, channels)

    @property
    def rings(self) -> Mapping[TensorView, Loop]:
        """The tensors of the rings, and the loop whose iterations take the slots of each."""
        return self._ring

    @property
    def loops(self) -> dict[str, dict[Loop, int]]:
        """The rings that are filled where they are used: their loops, and their numbers of slots."""
        ahead = {tv for a in self.prefetches for tv in a.tensors}
        found: dict[str, dict[Loop, int]] = {}
        for tv, loop in self._ring.items():
            if tv not in ahead:
                found.setdefault(self.shared.get(tv.name, tv.name), {})[loop] = tv.schedule.stages
        return found

    def prefetch(self, plan: list[PNode], statements: Statements) -> None:
        """Fill all rings ahead that allow it. Raises :class:`LoweringError` (see :func:`prefetch` and :func:`held_rings`)."""
        held = {tv: copy_of(plan, loop, tv) for tv, loop in self._ring.items() if is_held(tv, statements)}
        self.held = held_rings(held, statements, statements.indexer.ranges.facts)
        self.prefetches = prefetch(plan, {tv: loop for tv, loop in self._ring.items() if tv not in held}, statements, self._channels)
        for tv in (tv for a in self.prefetches for tv in a.tensors if tv.schedule.ring):
            reason = f"its role fills the ring '{tv.schedule.ring}' ahead, and another tensor shares that ring"
            raise refused(tv, reason, "circular_buffer without the name of a ring")

    def slots(self, tv: TensorView) -> int:
        """The depth of the ring of ``tv``; 0 without a ring."""
        channel = self._channels.channel(tv)
        if channel is not None:
            return channel.stages
        shared = next((a.stages for a in self.prefetches if among(tv, a.tensors)), tv.schedule.stages)
        return shared if tv in self._ring else 0

    def slot(self, tv: TensorView, task: Task) -> Expr | None:
        """The slot that code of ``task`` uses; ``None`` if ``tv`` has no ring."""
        return own_ring(tv).slot if tv in self._ring else self._channels.slot(tv, task)

    def full(self, tv: TensorView) -> str | None:
        """The mbarriers at which a fill of the ring of ``tv`` is complete, until rings share them."""
        return f"{own_ring(tv).name}.full" if tv in self._ring else self._channels.full(tv)

    def barriers(self) -> list[tuple[str, int, Expr]]:
        """The mbarrier arrays: name, slots, arrivals per phase: one, by the thread that starts the copies."""
        return [(a.full, a.stages, const(1)) for a in self.prefetches if a.full is not None]

    def insert(self, plan: list[PNode]) -> None:
        """Insert the cursors into the plan: they start with the kernel and advance at the end of each iteration."""
        for ahead in self.prefetches:
            if not ahead.in_registers:
                ahead.loop.body.append(PSync((Advance(ahead.cursor, const(1)),), ahead.tensors[0]))
                plan.insert(0, PSync((CursorInit(ahead.cursor, ahead.stages, 0, 0),), ahead.tensors[0]))
        placed = {*(tv for a in self.prefetches for tv in a.tensors), *(ring.tensor for ring in self.held)}
        for tv, loop in self._ring.items():
            if tv not in placed:
                cursor = own_ring(tv).name
                _advance(plan, loop, tv, PSync((Advance(cursor, const(1)),), tv))
                plan.insert(0, PSync((CursorInit(cursor, tv.schedule.stages, 0, 0),), tv))


def _sharers(tensors: Iterable[TensorView]) -> Iterator[tuple[TensorView, TensorView]]:
    """The tensors of a named ring after the first one."""
    first: dict[str, TensorView] = {}
    for tv in tensors:
        if tv.schedule.ring and first.setdefault(tv.schedule.ring, tv) is not tv:
            yield first[tv.schedule.ring], tv


def _advance(nodes: list[PNode], loop: Loop, tv: TensorView, step: PSync) -> None:
    for n in nodes:
        if isinstance(n, PLoop) and n.loop is loop:
            if any(s.tv is tv for s in statements(n.body)):
                n.body.append(step)
        else:
            for block in children(n):
                _advance(block, loop, tv, step)


def unroll_rings(plan: list[PNode], rings: list[Prefetch], facts: Facts) -> None:
    """Unroll every loop with a ring in registers by the number of its slots. ``facts``: facts about arguments.

    Raises:
        LoweringError: the loop would have to be split, and it advances a cursor of another ring.
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
        block[at : at + 1] = _split(ring, trips, facts)


def _split(ring: Prefetch, trips: Expr, known: Facts) -> list[PNode]:
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
