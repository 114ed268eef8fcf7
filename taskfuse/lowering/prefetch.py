"""Prefetch inside one role (software pipelining): a loop whose fills run some iterations before their uses (docs/channels.md).

A ring of ``stages`` slots inside one role lets ``d = stages - 1`` trips be filled before the first one is used. The loop is *skewed*::

    for i in 0..T: fill(i); use(i)        for p in 0..d: if p < T: fill(p)
                                          for i in 0..T: if i + d < T: fill(i + d)
                                                         use(i)

Each trip is filled once, in the same order, before its use: the two compute the same if what a fill reads is there before the loop begins and
nothing but the use reads what it makes. A fill moves with all that it alone is made of in the loop. Indices and guards of the fill are those
of the trip that it fills; whether there is such a trip is a condition that all threads agree on, so batches of asynchronous copies are
committed, and barriers stand, outside it: their numbers do not depend on how many trips there are.

One cursor counts the trips. A use is at its slot, a fill ``d`` slots further: no second position has to be kept in step with the first, and the
ring goes on where it was when the loop is entered again. Registers have no such place; the loop is unrolled, and the slot is a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from taskfuse.ir.scalar import Expr, Facts, const, lt, sym
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.operands import BarrierSlot, Queue
from taskfuse.kir.synchronization import Commit, Cursor, Expect, Wait, WaitGroup
from taskfuse.lowering.bulk import fill_bytes
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.clusters import is_multicast
from taskfuse.lowering.completion import has_copies_of_threads, is_transfer, queue_of
from taskfuse.lowering.domains import refused
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync, children, moved, selected, statements
from taskfuse.lowering.statements import Statements
from taskfuse.schedule.shared_loops import Loop
from taskfuse.target import MAX_PENDING


def own_ring(tv: TensorView) -> Cursor:
    """The cursor of the ring of a tensor inside one role."""
    return Cursor(f"{tv.name}.ring")


@dataclass(slots=True, eq=False)
class Prefetch:
    """The rings in Shared memory, or in registers, that one loop fills ahead.

    Attributes:
        tensors: the tensors of the rings; they share one cursor.
        stages: the slots of each: the greatest number among them.
        loop: the loop of the plan.
    """

    tensors: tuple[TensorView, ...]
    stages: int
    loop: PLoop
    in_registers: bool

    @property
    def cursor(self) -> str:
        """The name of the cursor that counts the loop's trips."""
        return own_ring(self.tensors[0]).name

    @property
    def full(self) -> str | None:
        """The mbarriers at which bulk copies complete, if there are any."""
        return f"{self.cursor}.full" if any(is_transfer(tv) for tv in self.tensors) else None

    @property
    def slot(self) -> str:
        """The symbol of its slot; of that in registers until the loop is unrolled (:mod:`taskfuse.lowering.rings`)."""
        return own_ring(self.tensors[0]).slot.name


def prefetch(plan: list[PNode], rings: Mapping[TensorView, Loop], st: Statements, channels: Channels) -> list[Prefetch]:
    """Skew every loop of the plan that can fill rings ahead. ``rings``: the rings inside roles, and the loop that takes the slots of each in turn.

    A ring in Shared memory whose slots are held by asynchronous reads keeps its slots for these, and a ring filled from results of its own loop
    is filled in place. In registers the latter is an error: such a ring would be useless.

    Raises:
        LoweringError: a ring in registers cannot be filled ahead.
    """
    found: list[Prefetch] = []
    groups: dict[tuple[PLoop, bool], list[TensorView]] = {}
    filled: dict[TensorView, set[TensorView]] = {}
    everything = list(statements(plan))
    for tv, nest in rings.items():
        loop = copy_of(plan, nest, tv)
        made, obstacle = _closure(tv, nest, loop, everything, st, channels)
        local = st.indexer.memory[tv] is MemoryType.Local
        if not obstacle:
            groups.setdefault((loop, local), []).append(tv)
            filled[tv] = made
        elif is_transfer(tv) and is_multicast(tv):
            reason = f"one copy brings it to several blocks, and none of them waits until the others have read a slot: {obstacle}"
            raise refused(tv, reason, f"make {tv.name} a boundary of a vertical group")
        elif is_transfer(tv):
            reason = f"a bulk load completes at a barrier, and in one role that takes a ring which is filled ahead: {obstacle}"
            raise refused(tv, reason, f"make {tv.name} a boundary of a vertical group")
        elif local:
            reason = f"its ring of {tv.schedule.stages} slots in registers cannot be filled ahead: {obstacle}"
            raise refused(tv, reason, "set_memory_type(Shared), or circular_buffer(1)")
    for (loop, local), tensors in groups.items():
        block = next(block for block in blocks(plan) if loop in block)
        ahead = Prefetch(tuple(tensors), max(tv.schedule.stages for tv in tensors), loop, local)
        _skew(block, ahead, set[TensorView]().union(*(filled[tv] for tv in tensors)), st)
        found.append(ahead)
    return found


def _closure(tv: TensorView, nest: Loop, loop: PLoop, everything: list[PStmt], st: Statements, channels: Channels) -> tuple[set[TensorView], str]:
    """What moves with the fill of a ring: all that it is made of in the loop. And why it cannot move, if so."""
    if is_multicast(tv):
        return set(), "a ring inside a role belongs to one block"
    uses = [use.output for use in storage_uses(st.fusion, tv)]
    late = next((u for u in uses if queue_of(u) is not None), None)
    if late is not None:
        return set(), f"{late.name} reads it asynchronously"
    inside = list(statements(loop.body))
    makers: dict[str, set[TensorView]] = {}
    for s in inside:
        for a in s.writes:
            makers.setdefault(a.buffer, set()).add(s.tv)
    made, new = {tv}, [tv]
    while new:
        t = new.pop()
        if st.is_reduction(t):
            return made, f"{t.name} is a reduction"
        for buffer in {a.buffer for s in inside if s.tv is t for a in s.reads}:
            source = next((u for u in st.indexer.tree.place if u.name == buffer), None)
            channel = None if source is None else channels.channel(source)
            if channel is not None and channel.loop is not None and channel.loop.depth >= nest.depth:
                return made, f"{t.name} reads {buffer}, whose slots come through a channel in the same loop"
            for u in makers.get(buffer, set[TensorView]()) - made:
                if st.indexer.memory[u] is not MemoryType.Local or u.schedule.stages > 1:
                    return made, f"{t.name} reads {buffer}, which the same loop makes"
                made.add(u)
                new.append(u)
    if st.indexer.index_maps.of(tv).again:
        return made, "its copies write an element more than once"
    written = {a.buffer for s in inside if s.tv in made for a in s.writes}
    for s in everything:
        for a in s.reads:
            if s.tv not in made and a.buffer in written and a.buffer != tv.name:
                return made, f"it is made from {a.buffer}, which {s.tv.name} reads as well"
    return made, ""


def _skew(block: list[PNode], ahead: Prefetch, filled: set[TensorView], st: Statements) -> None:
    """Take the fills out of a loop's iterations: put them some trips earlier, and those of the first trips before the loop."""
    loop, stages, distance = ahead.loop, ahead.stages, ahead.stages - 1
    of = ahead.tensors[0]
    var, first, slot = sym(loop.var), sym(f"{loop.var}.p"), sym(ahead.slot)

    def at(trip: Expr, slot: Expr) -> dict[str, Expr]:
        return {loop.var: trip, **{own_ring(tv).slot.name: slot for tv in ahead.tensors}}

    def later(facts: Facts) -> Facts:
        return facts.with_range(loop.var, 0, loop.extent - 1).with_assumption(lt(var + distance, loop.extent))

    def before(facts: Facts) -> Facts:
        return facts.with_range(f"{loop.var}.p", 0, distance - 1).with_assumption(lt(first, loop.extent))

    fills = selected(loop.body, lambda s: isinstance(s, PStmt) and s.tv in filled)
    _drop(loop.body, filled)
    wait: list[PNode] = []
    if ahead.full is not None:
        loading = _where_loads_begin(fills)
        loading[0].insert(loading[1], _expected(ahead, ahead.full, list(statements(fills)), st))
        wait = [PSync((Wait(BarrierSlot(ahead.full, slot), own_ring(of).parity),), of)]
    for s in statements(loop.body):
        rename(s, {own_ring(tv).slot.name: slot for tv in ahead.tensors})
    fill = PGuard(lt(var + distance, loop.extent), moved(fills, at(var + distance, (slot + distance) % stages), later))
    start = PGuard(lt(first, loop.extent), moved(fills, at(first, first if ahead.in_registers else (slot + first) % stages), before))
    copies = any(has_copies_of_threads(tv) for tv in ahead.tensors)
    commit: tuple[PNode, ...] = (PSync((Commit(Queue.COPY),), of),) if copies else ()
    loop.body[:0] = [*([PSync((WaitGroup(Queue.COPY, min(distance - 1, MAX_PENDING)),), of)] if copies else []), fill, *commit, *wait]
    k = block.index(loop)
    block[k : k + 1] = [PLoop(f"{loop.var}.p", const(distance), True, [start, *commit]), loop, *([PSync((WaitGroup(Queue.COPY, 0),), of)] if copies else [])]


def _where_loads_begin(nodes: list[PNode]) -> tuple[list[PNode], int]:
    """The innermost block of a scope that holds all bulk loads of a fill, and the place of the first: its thread announces the bytes."""
    loads = [k for k, n in enumerate(nodes) if any(isinstance(s.stmt, TmaLoad) for s in statements([n]))]
    only = nodes[loads[0]]
    if len(loads) == 1 and isinstance(only, PScope | PBind):
        return _where_loads_begin(only.body)
    return nodes, loads[0]


def _expected(ahead: Prefetch, full: str, fills: list[PStmt], st: Statements) -> PStmt:
    """What the thread that starts the bulk copies of a fill says before: how many bytes they bring. They are made to complete at the ring's barrier."""
    loads = [s for s in fills if isinstance(s.stmt, TmaLoad)]
    tasks = {s.task.name: s.task for s in loads}
    first = loads[0]
    if len(tasks) > 1:
        raise refused(first.tv, f"the tasks {', '.join(sorted(tasks))} start bulk copies of one fill", "put them into one task")
    for s in loads:
        assert isinstance(s.stmt, TmaLoad)
        s.stmt = replace(s.stmt, barrier=BarrierSlot(full, s.stmt.barrier.slot))
    total = sum(fill_bytes(st, tv, ahead.loop.loop, loads) for tv in ahead.tensors if is_transfer(tv))
    expect = Expect(BarrierSlot(full, own_ring(first.tv).slot), const(total))
    return PStmt(first.tv, first.task, expect, first.guards, first.facts, (), ())


def _drop(nodes: list[PNode], tensors: set[TensorView]) -> None:
    """Take the statements of some tensors out of a block, and what holds nothing then. All else stays the object that it is."""
    for n in list(nodes):
        for block in children(n):
            _drop(block, tensors)
        if isinstance(n, PDispatch):
            n.members[:] = [m for m in n.members if m.body]
        if (n.tv in tensors) if isinstance(n, PStmt) else not isinstance(n, PSync) and not any(children(n)):
            nodes.remove(n)


def rename(s: PStmt, index_map: Mapping[str, Expr]) -> None:
    """Replace the slots in a statement that stays in place."""
    renamed = moved([s], index_map, lambda facts: facts)[0]
    assert isinstance(renamed, PStmt)
    s.stmt, s.reads, s.writes = renamed.stmt, renamed.reads, renamed.writes


def copy_of(plan: list[PNode], nest: Loop, tv: TensorView) -> PLoop:
    """The copy of a loop of the nest that holds the code of a tensor."""
    for block in blocks(plan):
        for n in block:
            if isinstance(n, PLoop) and n.loop is nest and any(s.tv is tv for s in statements(n.body)):
                return n
    raise AssertionError("a tensor's code stands outside its loops")


def blocks(nodes: list[PNode]) -> Iterator[list[PNode]]:
    """All blocks of a plan, outermost first."""
    yield nodes
    for n in nodes:
        for block in children(n):
            yield from blocks(block)
