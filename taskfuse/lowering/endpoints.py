"""Endpoints in the plan: waits, arrivals, cursors and turns of every channel (docs/channels.md).

All threads of an endpoint's thread range wait before the first use in an iteration of the channel's loop and arrive after the last one, outside
every guard and dispatch below the endpoint, so that trips, waits and arrivals agree in all roles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

from taskfuse.errors import LoweringError
from taskfuse.ir.expr import Read, Scan
from taskfuse.ir.scalar import and_, const, eq, ge, is_multiple, le, minimum, prove, select, simplify, sym, xor
from taskfuse.ir.storage import storage_operands
from taskfuse.ir.tasks import Node, Task
from taskfuse.ir.tasks import leaves as tasks
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import THREAD_TYPES, MemoryType, ParallelType
from taskfuse.kir import walk
from taskfuse.kir.nodes import Branch, If, Stmt
from taskfuse.kir.operands import BarrierSlot, Queue
from taskfuse.kir.products import Shuffle
from taskfuse.kir.synchronization import Advance, Arrive, ArriveAsync, Barrier, BarrierScope, Cursor, CursorInit, Expect, FenceProxyAsync, Wait, WaitGroup
from taskfuse.lowering.bulk import fill_bytes
from taskfuse.lowering.channels import Channel, ChannelEndpoint, Channels
from taskfuse.lowering.completion import (
    WAIT_FOR_COPIES,
    close_batch,
    drain_at_exit,
    has_copies_of_threads,
    issues_to,
    open_batch,
    queues,
    wait_for_reads,
)
from taskfuse.lowering.held_rings import HeldRing, batches_in
from taskfuse.lowering.insertion_points import Touch, frame, leaves, level_blocks, loop_of, loops_around, split_around
from taskfuse.lowering.pingpong import Pingpong
from taskfuse.lowering.plan import PBind, PLoop, PNode, PStmt, PSync, statements
from taskfuse.lowering.semaphores import acquire, release
from taskfuse.lowering.statements import Statements
from taskfuse.lowering.thread_ranges import hardware_index, linear_thread
from taskfuse.target import WARP

ONE = const(1)


class Endpoints:
    """Inserts the channels of a fusion into its plan.

    Attributes:
        held: where turns are held: (the statement that takes the turn, the one that passes it, endpoint).
    """

    def __init__(self, channels: Channels, statements: Statements, rings: Sequence[HeldRing] = ()) -> None:
        self.channels = channels
        self.statements = statements
        self.ranges = channels.ranges
        self.tree = channels.tree
        self.held: list[tuple[PSync, PSync, ChannelEndpoint]] = []
        self._late: set[TensorView] = set()
        self._rings = rings

    def check_pingpong(self, plan: list[PNode]) -> None:
        """Check that a barrier, a warp, or an end of another channel shared by several instances of a distributed one never waits where one instance holds the
        turn: the others wait for it.

        To be called when all barriers are inserted. Raises :class:`LoweringError`.
        """
        order = list(leaves(plan))
        for take, give, end in self.held:
            inside = order[order.index(take) : order.index(give)]
            pingpong = end.pingpong
            if pingpong is None:
                continue
            shuffles = any(isinstance(n, PStmt) and isinstance(n.stmt, Shuffle) for n in inside)
            if shuffles and not is_multiple(pingpong.width, WARP, self.ranges.facts):
                raise LoweringError(
                    what=end.node.name,
                    reason=f"its instances on {pingpong.ptype.value} take turns in a channel and share warps, but a shuffle lies within a turn",
                    help="let each instance have whole warps: bind axes of it to lower thread types, 32 threads or a multiple",
                )
            if any(isinstance(n, PSync) and n.is_barrier and pingpong.ptype in n.types for n in inside):
                raise LoweringError(
                    what=end.node.name,
                    reason=f"its instances on {pingpong.ptype.value} take turns in a channel, but a barrier of all of them lies within a turn",
                    help="keep data within an instance there: bind the axes that exchange it to lower thread types, in whole warps",
                )
            waits = {s.barrier.name for n in inside if isinstance(n, PSync) for s in walk(n.stmts) if isinstance(s, Wait)}
            for ch in self.channels.channels:
                ends = ((ch.producer, "empty"), *((c, "full") for c in ch.consumers))
                joint = (e for e, what in ends if f"{ch.name}.{what}" in waits and e.pingpong is None and e.node is end.node)
                several = any(self.ranges.range(e.node, pingpong.ptype).extent is not ONE for e in joint)
                if ch.loop is not None and ch.loop.depth > pingpong.loop.depth and several:
                    names = ", ".join(tv.name for tv in ch.tensors)
                    raise LoweringError(
                        what=end.node.name,
                        reason=f"its instances on {pingpong.ptype.value} take turns in a channel, but within a turn one waits in a loop for slots of"
                        f" {ch.subject}, which all of them fill or empty together",
                        help=f"inline {names} at {pingpong.loop.depth} or less, or make the axis on {pingpong.ptype.value} Serial in all roles",
                    )

        self._check_order(order)

    def _check_order(self, order: Sequence[PStmt | PSync]) -> None:
        """A ring of which no slot is taken before all instances have had their turn in another holds a slot for each of them, if what fills the other
        fills it, too: the producer would wait for a slot there before it has filled the other for all instances.
        """
        for (_, give, one), (take, _, other) in permutations(self.held, 2):
            first, then = one.pingpong, other.pingpong
            if first is None or then is None or first.outer is not then.outer or first.ptype is not then.ptype or one.node is not other.node:
                continue
            between = order[order.index(give) : order.index(take)]
            if not any(isinstance(n, PSync) and n.is_barrier and first.ptype in n.types for n in between):
                continue
            source, ring = self._channel(one), self._channel(other)
            if prove(le(then.slots, ring.stages), self.ranges.facts) or self._upstream(source.producer.node).isdisjoint(tasks(ring.producer.node)):
                continue
            raise LoweringError(
                what=other.node.name,
                reason=f"its instances on {first.ptype.value} take turns in {source.subject}, wait for each other, and take turns in {ring.subject}"
                f" afterwards: {ring.stages} slots of it do not hold what the {then.count} instances take, and its producer cannot fill the first",
                help=f"give it circular_buffer({then.slots}) or more, or keep data within an instance between the two",
            )

    def _channel(self, end: ChannelEndpoint) -> Channel:
        return next(ch for ch in self.channels.channels if end in ch.consumers)

    def _upstream(self, node: Node) -> set[Task]:
        """The tasks that a node's data comes from through channels, its own among them."""
        found: set[Task] = set()
        new = set(tasks(node))
        while new:
            found |= new
            new = {t for ch in self.channels.channels for c in ch.consumers if not found.isdisjoint(tasks(c.node)) for t in tasks(ch.producer.node)} - found
        return found

    def insert(self, plan: list[PNode]) -> None:
        """Insert waits, arrivals and cursors into the plan."""
        for ch in self.channels.channels:
            full, empty = f"{ch.name}.full", f"{ch.name}.empty"
            self._endpoint(plan, ch, ch.producer, empty, full, self._fills(ch), parity=1)
            for end in ch.consumers:
                names = {t.name for t in ch.tensors}
                self._endpoint(plan, ch, end, full, empty, lambda s, names=names: any(r.buffer in names for r in s.reads), parity=0)
        for tv in self.tree.place:
            if tv.schedule.in_flight and tv not in self._late:
                raise LoweringError(
                    what=tv.name,
                    reason=f"in_flight({tv.schedule.in_flight}) releases its operands' slots late, but it reads no ring with mbarriers",
                    help=f"{tv.name}.in_flight(0), or make its operand a boundary of a vertical group on thread types",
                    location=tv.location,
                )

    def _fills(self, ch: Channel) -> Touch:
        """The code of a fill: all code of the tensors, except the totals of scans, which outlive it."""
        made = set(ch.tensors)
        totals = {self.statements.accumulator(tv) for tv in made if isinstance(self.statements.definition(tv), Scan)}
        return lambda s: s.tv in made and not any(w.buffer in totals for w in s.writes)

    def _endpoint(self, plan: list[PNode], ch: Channel, end: ChannelEndpoint, wait: str, arrive: str, touches: Touch, parity: int) -> None:
        c = end.cursor
        slot = Cursor(c).slot
        level = end.pingpong.outer if end.pingpong is not None and end.pingpong.loop is ch.loop else ch.loop
        first, last = split_around(level_blocks(plan, end.node, level), touches, end.pingpong is not None)
        issued = [s for blocks in level_blocks(plan, end.node, level) for n in blocks for s in statements([n]) if touches(s)]
        if ch.is_between_blocks:
            copied = [PSync(WAIT_FOR_COPIES, ch.tensors[0])] if end is not ch.producer and any(has_copies_of_threads(s.tv) for s in issued) else []
            last[0][last[1] + 1 : last[1] + 1] = [*copied, *release(self.ranges, ch, end), PSync((Advance(c, const(1)),), ch.tensors[0])]
            first[0][first[1] : first[1]] = acquire(self.ranges, ch, end)
            frame(plan, ch.group, end.node, self.tree).insert(0, PSync((CursorInit(c, ch.stages, 0, parity),), ch.tensors[0]))
            return
        batches = {} if end is ch.producer else queues(issued)
        around = last[0] if ch.loop is not None else []
        trips = {queue: batches_in(around, self._rings, queue) for queue in batches}
        lag = min((-(-pending // trips[queue]) for queue, pending in batches.items()), default=0)
        batches = {queue: min(pending, lag * trips[queue]) for queue, pending in batches.items()}
        self._late |= {s.tv for s in issued if issues_to(s) in batches}
        released = self._release(plan, ch, end, last, issued, batches, lag, BarrierSlot(arrive, slot))
        waiting = Wait(BarrierSlot(wait, slot), Cursor(c).parity)
        start = [_sync(ch, end, waiting)]
        if end is ch.producer and ch.transfers:
            starter, expect = self._expect(ch, BarrierSlot(arrive, slot), issued)
            where = [eq(hardware_index(p), self.ranges.range(starter, p).start) for p in THREAD_TYPES if self.ranges.range(end.node, p).extent is not ONE]
            # Where the engine alone fills slots, the others do not arrive, so they must not wait either: nothing would keep them within a phase of the ring.
            together = (expect,) if ch.is_filled_by_threads else (waiting, expect)
            announced = PSync((If((Branch(and_(*where), together),)),) if where else together, ch.tensors[0])
            start = [*start, announced] if ch.is_filled_by_threads else [announced]
        first[0][first[1] : first[1]] = start
        for queue in batches:
            self._check_registers(ch, [s for s in issued if issues_to(s) is queue])
            issuer = _issuer(issued, queue)
            open_batch(*_first(first[0], queue), queue, issuer.tv)
            drain_at_exit(plan, issuer, queue)
        inits = [CursorInit(c, ch.stages, 0, parity)]
        if lag:
            inits.append(CursorInit(_behind(end), ch.stages, 0, parity))
        if end.pingpong is not None:
            inits.append(CursorInit(f"{c}.round", 1, 0, 0))
            self._pingpong(plan, ch, end, end.pingpong, touches, start[0], released)
        if ch.follows is None:
            frame(plan, ch.group, end.node, self.tree).insert(0, PSync(tuple(inits), ch.tensors[0]))

    def _check_registers(self, ch: Channel, issued: list[PStmt]) -> None:
        """Operands in registers of a batch are written again only after the batch is complete. Raises :class:`LoweringError`."""
        for tv in dict.fromkeys(s.tv for s in issued):
            for source in {r.tensor for r in self._reads(tv)}:
                if self.statements.indexer.memory.get(source) is not MemoryType.Local:
                    continue
                if self.statements.indexer.slot(source, tv) is not None:
                    continue  # in each trip of the ring's loop a wait frees the next slot
                inside = 0 if ch.loop is None else ch.loop.depth + 1
                shared = [a for a in source.loop[inside : source.schedule.inline] if source.schedule.ptype(a).is_loop]
                if shared or tv.schedule.in_flight:
                    raise LoweringError(
                        what=source.name,
                        reason=f"{tv.name} reads its registers asynchronously, and the next "
                        + (f"iteration over its axis of {shared[0].extent}" if shared else "batch")
                        + " writes them again before that is done",
                        help=f"inline {source.name} no deeper than the loop of the ring" if shared else f"{tv.name}.in_flight(0)",
                        location=source.location,
                    )

    def _release(
        self,
        plan: list[PNode],
        ch: Channel,
        end: ChannelEndpoint,
        last: tuple[list[PNode], int],
        issued: list[PStmt],
        batches: dict[Queue, int],
        lag: int,
        slot: BarrierSlot,
    ) -> PSync:
        """Give a slot on: after the last use of it, or ``lag`` iterations later, and the last ones after the loop. Returns what stands there."""
        nodes, at = last
        at += 1
        for queue in batches:
            at = close_batch(nodes, at - 1, queue, _issuer(issued, queue).tv)
        publish = (*self._publish(ch, end), *(wait_for_reads(queue, pending) for queue, pending in batches.items()))
        if not lag:
            released = _sync(ch, end, *publish, *self._give(ch, end, slot), Advance(end.cursor, ONE))
            nodes.insert(at, released)
            return released
        behind = _behind(end)
        give = (*self._give(ch, end, BarrierSlot(slot.name, Cursor(behind).slot)), Advance(behind, ONE))
        around = loop_of(plan, end.node, ch.loop)
        if around is None or lag >= ch.stages:
            raise LoweringError(
                what=ch.subject,
                reason=f"its consumer releases slots {_count(lag, 'iteration')} late, but it has {_count(ch.stages, 'slot') if around else 'no loop'}",
                help="circular_buffer with more slots than in_flight" if around else "in_flight(0)",
                location=ch.tensors[0].location,
            )
        block, loop = around
        released = _sync(ch, end, *publish, If((Branch(ge(sym(loop.var), lag), give),)), Advance(end.cursor, ONE))
        nodes.insert(at, released)
        after = block.index(loop) + 1
        waits: list[PNode] = [PSync((WaitGroup(queue, 0),), ch.tensors[0]) for queue in batches]
        while after < len(block) and isinstance(node := block[after], PSync) and any(isinstance(n, PSync) and n.stmts == node.stmts for n in waits):
            waits = [n for n in waits if not (isinstance(n, PSync) and n.stmts == node.stmts)]
            after += 1
        trips = simplify(minimum(loop.extent, lag), self.ranges.facts)
        drain: list[PNode] = [_sync(ch, end, *give)] if trips is ONE else [PLoop(f"{behind}.k", trips, False, [_sync(ch, end, *give)])]
        pingpong = end.pingpong
        if pingpong is not None:
            if pingpong.depth > 1:
                raise LoweringError(
                    what=ch.subject,
                    reason=f"its consumer's instances on {pingpong.ptype.value} take slots in turns over {pingpong.depth} loops, and release them late",
                    help="in_flight(0), or one loop inside the distributing one",
                    location=ch.tensors[0].location,
                )
            drain.append(_sync(ch, end, Advance(behind, pingpong.after)))
        block[after:after] = [*waits, *drain]
        if pingpong is not None:
            block.insert(block.index(loop), _sync(ch, end, Advance(behind, pingpong.before)))
        return released

    def _expect(self, ch: Channel, slot: BarrierSlot, issued: list[PStmt]) -> tuple[Task, Expect]:
        """The bytes of one fill, and the task whose first thread announces them and starts the transfers."""
        tasks = {self.tree.place[tv] for tv in ch.transfers}
        if len(tasks) > 1:
            names = ", ".join(sorted(t.name for t in tasks))
            raise LoweringError(
                what=ch.subject, reason=f"the tasks {names} start bulk copies of one fill", help="put them into one task", location=ch.transfers[0].location
            )
        return tasks.pop(), Expect(slot, const(sum(fill_bytes(self.statements, t, ch.loop, issued) for t in ch.transfers)))

    def _publish(self, ch: Channel, end: ChannelEndpoint) -> tuple[Stmt, ...]:
        """The fences of a producer's threads before they arrive: they order stores and copies before asynchronous reads of the same bytes."""
        if end is not ch.producer or not ch.stores:
            return ()
        names = {tv.name for tv in ch.stores}
        for tv in self.tree.place:
            atom = tv.schedule.atom
            if atom is not None and atom.is_async and any(s.tensor.name in names for s in self._reads(tv)):
                return (*(WAIT_FOR_COPIES if any(has_copies_of_threads(made) for made in ch.stores) else ()), FenceProxyAsync())
        return ()

    def _reads(self, tv: TensorView) -> list[Read]:
        return [o for o in storage_operands(self.statements.fusion, self.statements.definition(tv)) if isinstance(o, Read)]

    def _pingpong(self, plan: list[PNode], ch: Channel, end: ChannelEndpoint, pingpong: Pingpong, touches: Touch, wait: PSync, released: PSync) -> None:
        """Advance to the instance's own slots and wait for its turn; pass the turn on and advance past the others'.

        Where the wait for a slot and its release stand in the same block as these, they stand inside: the iteration has one position, in a loop of
        its own or in none.
        """
        between = next((loop for loop in loops_around(plan, end.node) if loop.depth > pingpong.loop.depth), None)
        if between is not None:
            alike = [tv for tv in between.axes if tv.schedule.ptype(pingpong.loop.axes[tv]) is pingpong.ptype]
            other = next(tv.name for tv in alike if end.node not in self.tree.path(tv))
            raise LoweringError(
                what=end.node.name,
                reason=f"its instances on {pingpong.ptype.value} take turns in a channel, and its code stands in a loop inside theirs that {other} shares",
                help=f"put {other} into the same task, or share fewer loops with it",
            )
        c = end.cursor
        w = pingpong.instance
        slot = f"{c}.round"
        first, last = split_around(level_blocks(plan, end.node, pingpong.outer), touches, True)
        parity = xor(Cursor(slot).parity, select(eq(w, 0), 1, 0))
        follow = simplify((w + 1) % pingpong.count, self.ranges.facts)
        passing = self.arrive(end, BarrierSlot(f"{c}.order", follow))
        start = next((k for k, n in enumerate(first[0]) if n is wait), first[1])
        at = len(last[0]) if pingpong.late else next((k for k, n in enumerate(last[0]) if n is released), last[1]) + 1
        give = _sync(ch, end, *passing, Advance(slot, const(1)), Advance(c, pingpong.after))
        take = _sync(ch, end, Advance(c, pingpong.before), Wait(BarrierSlot(f"{c}.order", w), parity))
        last[0].insert(at, give)
        first[0].insert(start, take)
        self.held.append((take, give, end))

    def _give(self, ch: Channel, end: ChannelEndpoint, slot: BarrierSlot) -> tuple[Stmt, ...]:
        """The arrivals with which an endpoint hands a slot on: a producer's threads for their copies, then for what they have stored."""
        if end is not ch.producer:
            return self.arrive(end, slot, ch.across)
        return (*((ArriveAsync(slot),) if ch.copies else ()), *(self.arrive(end, slot) if ch.stores else ()))

    def arrive(self, end: ChannelEndpoint, slot: BarrierSlot, across: tuple[ParallelType, ...] = ()) -> tuple[Stmt, ...]:
        """The statements with which an endpoint arrives, in all blocks that share a copy ``across`` some cluster types."""
        if not self.channels.by_warp(end):
            return (Arrive(slot, across),)
        lane = simplify(linear_thread(self.ranges) % WARP, self.ranges.facts)
        return (Barrier(BarrierScope.WARP, const(WARP), note="before one lane arrives for the warp"), If((Branch(eq(lane, 0), (Arrive(slot, across),)),)))


def _first(nodes: list[PNode], queue: Queue) -> tuple[list[PNode], int]:
    """The block and the place in it of the first node that issues to a queue; inside an index binding or a loop if other code comes first there, which may
    load its operands.
    """
    at = next(k for k, n in enumerate(nodes) if any(issues_to(s) is queue for s in statements([n])))
    inner = nodes[at]
    found = _first(inner.body, queue) if isinstance(inner, PBind | PLoop) else (nodes, at)
    return found if found[1] > 0 else (nodes, at)


def _issuer(issued: list[PStmt], queue: Queue) -> PStmt:
    """The first of some statements that is committed to a queue."""
    return next(s for s in issued if issues_to(s) is queue)


def _count(n: int, what: str) -> str:
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def _behind(end: ChannelEndpoint) -> str:
    """The name of the cursor with which a consumer gives back slots late."""
    return f"{end.cursor}.r"


def _sync(ch: Channel, end: ChannelEndpoint, *stmts: Stmt) -> PSync:
    """Statements of an endpoint of a channel, executed by the threads of its instances."""
    guard = None if end.pingpong is None else end.pingpong.guard
    return PSync(stmts if guard is None else (If((Branch(guard, stmts),)),), ch.tensors[0])
