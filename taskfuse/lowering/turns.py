"""Turns: instances of a role issue their products one instance after another (docs/channels.md).

In each trip of a loop, an instance waits for its turn before the first code of the loop's tensors that take turns, and passes the turn on behind the last. A
turn is an mbarrier per instance, in whose phases it goes round: instance 0 begins, so the parity of its wait is inverted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.ir.scalar import ONE, Const, Expr, and_, const, eq, ge, is_multiple, lt, select, simplify, xor
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.kir import barrier_slots, walk
from taskfuse.kir.nodes import Branch, If, Stmt
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Advance, Arrive, Barrier, BarrierScope, Commit, Cursor, CursorInit, Wait, WgmmaFence
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.completion import frame_of
from taskfuse.lowering.domains import refused
from taskfuse.lowering.insertion_points import leaves
from taskfuse.lowering.plan import PLoop, PNode, PSync, children, statements
from taskfuse.lowering.prefetch import blocks
from taskfuse.lowering.software_pipeline import is_shared, pieces
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index, linear_thread
from taskfuse.schedule.order import Tree
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True, eq=False)
class LoopTurns:
    """The turns of one loop.

    Attributes:
        name: the mbarriers.
        of: the first tensor that takes them.
        ptype: the thread index type on which instances differ.
        count: of instances.
        arrivals: with which an instance passes the turn.
        by_warp: a lane of each warp arrives; otherwise all threads.
        take, give: where it is taken and passed.
    """

    name: str
    of: TensorView
    ptype: ParallelType
    count: int
    arrivals: Expr
    by_warp: bool
    take: PSync
    give: PSync


def insert_turns(plan: list[PNode], tree: Tree, ranges: ThreadRanges) -> list[LoopTurns]:
    """Insert the turns of a plan.

    Raises:
        LoweringError: tensors of one loop take turns on different types, or are no instances of a constant number there, or share no loop with other code.
    """
    taking = {tv for tv in tree.place if tv.schedule.turns is not None}
    found: list[LoopTurns] = []
    for block in list(blocks(plan)):
        for loop in [n for n in block if is_shared(n)]:
            assert isinstance(loop, PLoop)
            deeper = {s.tv for inner in blocks(loop.body) for n in inner if is_shared(n) for s in statements([n])}
            inside = {s.tv for s in statements(loop.body)} & taking
            if inside - deeper:
                mine = inside  # those of loops within it share its turns
                found.append(_insert(plan, loop, mine, tree, ranges, f"turn{len(found)}"))
                taking -= mine
    for tv in sorted(taking, key=lambda tv: tv.id):
        raise refused(tv, "it takes turns, but its code shares no loop with other code", "inline it into the loop whose products are issued in turn")
    return found


def _insert(plan: list[PNode], loop: PLoop, mine: set[TensorView], tree: Tree, ranges: ThreadRanges, name: str) -> LoopTurns:
    of = min(mine, key=lambda tv: tv.id)
    ptype = of.schedule.turns
    assert ptype is not None
    spans = {(r.start, r.extent) for tv in mine for r in [ranges.range(tree.place[tv], ptype)]}
    other = next((tv for tv in sorted(mine, key=lambda tv: tv.id) if tv.schedule.turns is not ptype), None)
    if other is not None or len(spans) > 1:
        reason = f"it takes turns with {', '.join(tv.name for tv in sorted(mine, key=lambda tv: tv.id) if tv is not of)} on other indices of {ptype.value}"
        raise refused(of, reason, "give the tensors of a loop that take turns one thread index type and one range of it")
    task = tree.place[of]
    index_range = ranges.range(task, ptype)
    count = simplify(index_range.extent, ranges.facts)
    if not isinstance(count, Const) or count.value < 2:
        raise refused(of, f"it takes turns on {ptype.value}, where its task has {count} instances", "bind an axis of a constant extent of 2 or more to it")
    if ptype.index_name in loop.extent.free:
        raise refused(of, f"it takes turns on {ptype.value}, on whose index the trips of its loop depend", "take turns in a loop whose trips are alike")
    instance = hardware_index(ptype) - index_range.start
    cursor = f"{name}.c"
    parity = xor(Cursor(cursor).parity, select(eq(instance, 0), 1, 0))
    passing, arrivals = _arrive(task, ptype, BarrierSlot(name, simplify((instance + 1) % count, ranges.facts)), ranges)
    mine_alone = _region(task, ranges)
    take = PSync((If((Branch(mine_alone, (Wait(BarrierSlot(name, instance), parity),)),)),), of)
    give = PSync((If((Branch(mine_alone, (*passing, Advance(cursor, ONE))),)),), of)
    loop.body[:] = pieces(loop.body)
    held = [k for k, n in enumerate(loop.body) if any(s.tv in mine for s in statements([n]))]
    first, last = held[0], held[-1] + 1
    while first and all(isinstance(s, Wait | WgmmaFence) for s in _synchronization(loop.body[first - 1])):
        first -= 1
    while last < len(loop.body) and all(isinstance(s, Commit) for s in _synchronization(loop.body[last])):
        last += 1
    inside = next(s for s in statements(loop.body) if s.tv in mine)
    frame_of(plan, inside).insert(0, PSync((CursorInit(cursor, 1, 0, 0),), of))
    loop.body[last:last] = [give]
    loop.body[first:first] = [take]
    return LoopTurns(name, of, ptype, count.value, arrivals, not isinstance(passing[0], Arrive), take, give)


def _region(task: Task, ranges: ThreadRanges) -> Expr:
    """The threads of a task; of what the scopes around it imply, nothing is left in the kernel."""
    spans = [(hardware_index(p) - r.start, r.extent) for p in THREAD_TYPES for r in [ranges.range(task, p)]]
    return and_(*(c for index, extent in spans for c in (ge(index, 0), lt(index, extent))))


def _arrive(task: Task, ptype: ParallelType, slot: BarrierSlot, ranges: ThreadRanges) -> tuple[tuple[Stmt, ...], Expr]:
    """How an instance passes its turn, and how many arrivals this takes: one of each warp if it has whole ones."""
    width = ONE
    for p in THREAD_TYPES[: THREAD_TYPES.index(ptype)]:
        width = width * ranges.launch[p]
    threads = simplify(ranges.count(task) // ranges.range(task, ptype).extent, ranges.facts)
    if not ranges.is_aligned(task) or not is_multiple(width, WARP, ranges.facts):
        return (Arrive(slot),), threads
    lane = simplify(linear_thread(ranges) % WARP, ranges.facts)
    barrier = Barrier(BarrierScope.WARP, const(WARP), note="before one lane arrives for the warp")
    return (barrier, If((Branch(eq(lane, 0), (Arrive(slot),)),))), simplify(threads // WARP, ranges.facts)


def _synchronization(node: PNode) -> list[Stmt]:
    """The statements of a node that is synchronization alone; for another node, one that is none of these."""
    found = list(leaves([node]))
    return [s for leaf in found for s in (leaf.stmts if isinstance(leaf, PSync) else (leaf.stmt,))]


def check_turns(plan: list[PNode], turns: list[LoopTurns], channels: Channels) -> None:
    """Within a turn no thread waits for what another instance does only in its own: no barrier of several instances, no shuffle of warps that they share, no
    position of a channel in each trip of an inner loop, no turn at a distributed channel. Nor is a turn of a loop taken within one at a channel.

    To be called when all barriers are inserted. Raises :class:`LoweringError`.
    """
    order = list(leaves(plan))
    place = {id(n): k for k, n in enumerate(order)}
    orders = {f"{end.cursor}.order" for ch in channels.channels for end in ch.consumers if end.pingpong is not None}
    held = {name: [k for k, n in enumerate(order) if isinstance(n, PSync) and name in _slots(n)] for name in orders}
    for t in turns:
        first, last = place[id(t.take)], place[id(t.give)]
        inside = order[first:last]
        if any(isinstance(n, PSync) and n.is_barrier and t.ptype in n.types for n in inside):
            raise refused(t.of, f"it takes turns on {t.ptype.value}, but a barrier of all instances lies within a turn", "keep data within an instance there")
        meets = any(_is_of_warps(s) for n in inside for s in walk(n.stmts if isinstance(n, PSync) else (n.stmt,)))
        if meets and not t.by_warp:
            reason = f"its instances on {t.ptype.value} may share warps, and all lanes of a warp meet within a turn"
            raise refused(t.of, reason, "let each instance have whole warps")
        around = next((name for name, found in held.items() if found and min(found) <= last and max(found) >= first), None)
        if around is not None:
            reason = (
                f"it takes turns on {t.ptype.value} while it holds that of {around.removesuffix('.order')}, a channel of which instances take slots in turn"
            )
            raise refused(t.of, reason, "let the role take turns in one place: at the channel, or in a loop")
        body = next(block for block in blocks(plan) if any(n is t.take for n in block))
        if any(first < place[id(n)] < last and any(isinstance(s, Wait) for s in walk(n.stmts)) for n in _in_loops(body)):
            reason = f"it takes turns on {t.ptype.value}, and an inner loop waits in each trip for data that other instances need, too"
            raise refused(t.of, reason, "take turns in the innermost loop that waits")


def _slots(node: PSync) -> set[str]:
    """The mbarriers at which a node waits or arrives."""
    return {b.name for s in walk(node.stmts) for b in barrier_slots(s)}


def _in_loops(nodes: list[PNode]) -> Iterator[PSync]:
    """The synchronization in loops below some nodes."""
    for n in nodes:
        if isinstance(n, PLoop) and n.extent is not ONE:
            yield from (leaf for leaf in leaves(n.body) if isinstance(leaf, PSync))
        else:
            yield from (x for body in children(n) for x in _in_loops(body))


def _is_of_warps(stmt: Stmt) -> bool:
    """True for what all lanes of a warp execute together."""
    return isinstance(stmt, Shuffle) or (isinstance(stmt, Barrier) and stmt.scope is BarrierScope.WARP)
