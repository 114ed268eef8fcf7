"""Turns: instances of a role issue their products one instance after another (docs/channels.md).

In each trip of a loop, an instance waits for its turn before the first code of the loop's tensors that take turns, and passes the turn on behind the last. A
turn is an mbarrier per instance, in whose phases it goes round: instance 0 begins, so the parity of its wait is inverted.
"""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.scalar import ONE, Const, Expr, and_, const, eq, ge, is_multiple, lt, select, simplify, xor
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, ParallelType
from taskfuse.kir import walk
from taskfuse.kir.nodes import Branch, If, Stmt
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Advance, Arrive, Barrier, BarrierScope, Commit, Cursor, CursorInit, Wait, WgmmaFence
from taskfuse.lowering.completion import frame_of
from taskfuse.lowering.domains import refused
from taskfuse.lowering.insertion_points import leaves
from taskfuse.lowering.plan import PLoop, PNode, PSync, statements
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
            mine = {s.tv for s in statements(loop.body)} & taking - deeper
            if mine:
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


def check_turns(plan: list[PNode], turns: list[LoopTurns]) -> None:
    """No barrier of several instances, and no shuffle of warps that they share, lies within a turn: the others wait for it.

    To be called when all barriers are inserted. Raises :class:`LoweringError`.
    """
    order = list(leaves(plan))
    for t in turns:
        inside = order[order.index(t.take) : order.index(t.give)]
        if any(isinstance(n, PSync) and n.is_barrier and t.ptype in n.types for n in inside):
            raise refused(t.of, f"it takes turns on {t.ptype.value}, but a barrier of all instances lies within a turn", "keep data within an instance there")
        meets = any(_is_of_warps(s) for n in inside for s in walk(n.stmts if isinstance(n, PSync) else (n.stmt,)))
        if meets and not t.by_warp:
            reason = f"its instances on {t.ptype.value} may share warps, and all lanes of a warp meet within a turn"
            raise refused(t.of, reason, "let each instance have whole warps")


def _is_of_warps(stmt: Stmt) -> bool:
    """True for what all lanes of a warp execute together."""
    return isinstance(stmt, Shuffle) or (isinstance(stmt, Barrier) and stmt.scope is BarrierScope.WARP)
