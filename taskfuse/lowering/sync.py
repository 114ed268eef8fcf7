"""Insertion of barriers where accesses of different threads conflict (docs/loop-nests.md).

Two accesses of one buffer conflict if one writes and different threads may access one element. They are already ordered if the
same thread makes both: one allocation axis takes, in both, values that determine the thread's index by one expression. Each remaining conflict
gets a barrier of the innermost node that holds both accesses, in the block of code where their paths part, outside all guards below.

If one side is an asynchronous read, more is needed before the barrier: writers make their stores visible to the asynchronous proxy, in Shared memory
or, where a bulk copy reads an output again, in Global memory; and the thread that issued the read waits until it is complete. A ring of s slots lets
s - 1 younger batches be unfinished then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from taskfuse.errors import LoweringError
from taskfuse.ir.medium import MEDIA, Medium
from taskfuse.ir.scalar import Const, Expr, const, sym
from taskfuse.ir.tasks import Node
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import CLUSTER_TYPES, GRID_TYPES, MemoryType, ParallelType
from taskfuse.kir.declarations import Buffer
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access, Queue
from taskfuse.kir.synchronization import Barrier, BarrierScope, FenceProxyAsync, WaitGroup
from taskfuse.kir.walk import updating
from taskfuse.lowering.access_threads import AccessThreads, Touch
from taskfuse.lowering.barriers import ONE, PlanBarriers
from taskfuse.lowering.completion import close_batch, drain_at_exit, is_transfer, issues_to, open_batch, wait_for_reads
from taskfuse.lowering.plan import PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync, children, item_name, statements
from taskfuse.lowering.rings import RoleRings
from taskfuse.lowering.thread_ranges import ThreadRanges

_OF_BLOCKS = {scope: frozenset(p.index_name for p in types) for scope, types in ((BarrierScope.GRID, GRID_TYPES), (BarrierScope.CLUSTER, CLUSTER_TYPES))}
"""The barriers of several blocks, and the indices that distinguish these."""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A list of plan nodes, the node whose thread range executes it, and its number in the plan."""

    nodes: list[PNode]
    node: Node
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class _Need:
    """A synchronization required between two uses.

    Attributes:
        block: where their paths part; ``early`` and ``late`` are the nodes in it that hold them. No ``early``: anywhere in the block before ``late``.
        around: from ``early`` in one iteration of the loop around the block to ``late`` in the next.
        types: whose threads or blocks wait for each other; empty: none.
        within_warps: only lanes of one warp do.
        buffer, of: why: the storage, and the tensor that is written there.
        before: what is done before the barrier.
    """

    block: _Block
    early: PNode | None
    late: PNode
    around: bool
    types: frozenset[ParallelType]
    buffer: str
    of: TensorView
    before: tuple[Stmt, ...] = ()
    within_warps: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """One access of one statement, with the blocks on the way to it."""

    path: tuple[tuple[_Block, PNode], ...]
    touch: Touch
    is_write: bool

    @property
    def stmt(self) -> PStmt:
        return self.touch.stmt

    @property
    def access(self) -> Access:
        return self.touch.access

    @property
    def is_update(self) -> bool:
        """True for the target of an update: updates need no order among themselves."""
        return updating(self.stmt.stmt) is not None and self.access in self.stmt.writes

    @property
    def is_bulk_update(self) -> bool:
        """True for the target of an update by the copy engine."""
        return self.is_update and issues_to(self.stmt) is Queue.BULK

    @property
    def queue(self) -> Queue | None:
        """The queue of an asynchronous read of an operand."""
        return None if self.is_write or self.is_update else issues_to(self.stmt)

    @property
    def is_transfer(self) -> bool:
        """True if a bulk copy reads it in Global memory, and completes at a barrier of its destination."""
        return not self.is_write and is_transfer(self.stmt.tv)

    @property
    def is_of_engine(self) -> bool:
        """True if it is read through the asynchronous proxy."""
        return self.queue is not None or self.is_transfer


class Synchronizer:
    """Inserts barriers into one plan.

    Args:
        ordered: buffers whose accesses channels order.
        rings: the rings inside roles: buffers whose slots change with each iteration of a loop.
        in_place: outputs that are written into the array of an input, with that input.
        outputs: outputs and wholes that are assembled, with their shapes; the statements that write one of them write different elements.

    Attributes:
        barriers: their forms and declarations.
    """

    def __init__(
        self,
        ranges: ThreadRanges,
        root: Node,
        buffers: list[Buffer],
        ordered: set[str],
        rings: RoleRings,
        in_place: Mapping[str, str] = MappingProxyType({}),
        outputs: Mapping[str, tuple[Expr, ...]] = MappingProxyType({}),
    ) -> None:
        self.ranges = ranges
        self.root = root
        self.barriers = PlanBarriers(ranges)
        self._ordered = ordered
        self._rings = rings.loops
        self._ahead = {tv.name for ahead in rings.prefetches for tv in ahead.tensors}
        self._memory = {b.name: b.memory for b in buffers}
        self._apart = frozenset(outputs)
        self._threads = AccessThreads(ranges, {**outputs, **{b.name: b.shape for b in buffers}}, self._rings.keys() | self._ahead)
        self._alias = [*_aliases(buffers), *map(list, in_place.items())]
        self._memory |= dict.fromkeys(in_place.values(), MemoryType.Global)
        self._blocks = 0
        self._batches: dict[tuple[int, int, Queue], tuple[_Block, PNode, _Use]] = {}
        self._made: dict[str, list[tuple[tuple[_Block, PNode], ...]]] = {}

    def insert(self, plan: list[PNode]) -> None:
        """Insert every barrier that the plan's accesses need.

        Tensors are in single assignment: a statement does not conflict with itself (where a loop reuses its storage, the reads between
        are ordered on both sides).

        Raises:
            LoweringError: blocks would wait for each other in a loop of which they run different numbers of trips.
        """
        self._choose_forms(plan)
        for name in self._apart:
            self._memory.setdefault(name, MemoryType.Global)
        uses: dict[str, list[_Use]] = {}
        self._collect(self._block(plan, self.root), (), uses)
        groups = [[n for n in group if n in uses] for group in self._alias]
        listed = {n for g in groups for n in g}
        groups += [[n] for n in uses if n not in listed]
        needs: list[_Need] = []
        for group in groups:
            found = [u for n in group for u in uses[n]]
            for i, a in enumerate(found):
                for b in found[i + 1 :]:
                    if (a.is_write or b.is_write) and not (a.is_write and b.is_write and a.access.buffer in self._apart) and not (a.is_update and b.is_update):
                        needs += self._needs(a, b)
        self._satisfy(needs)
        check_trips(plan)
        for block, node, use in self._batches.values():
            assert use.queue is not None
            inside, inner, is_rewritten = self._behind_registers(block, node, use)
            at = open_batch(inside.nodes, inside.nodes.index(inner), use.queue, use.stmt.tv)
            after = close_batch(inside.nodes, at, use.queue, use.stmt.tv)
            if is_rewritten:
                inside.nodes.insert(after, PSync((WaitGroup(use.queue, 0),), use.stmt.tv))
            drain_at_exit(plan, use.stmt, use.queue)

    def _behind_registers(self, block: _Block, node: PNode, use: _Use) -> tuple[_Block, PNode, bool]:
        """Where the batch of ``node`` begins and ends, as the registers that it reads want it, and whether a loop writes these again.

        They are written before the batch opens, by code that may lie inside ``node``, and again only after the batch is complete.
        """
        held = {a.buffer for a in use.stmt.reads if self._medium(a.buffer).is_private}
        held -= {a.buffer for a in use.stmt.writes}
        writers = [[n for _, n in path] for buffer in held for path in self._made.get(buffer, [])]
        steps = list(use.path)
        depth = next(k for k, (_, n) in enumerate(steps) if n is node)
        while depth + 1 < len(steps) and any(steps[depth][1] in path for path in writers):
            depth += 1
        around = [n for _, n in steps[:depth] if isinstance(n, PLoop)]
        is_rewritten = any(loop in path for loop in around for path in writers)
        inside, inner = steps[depth]
        return inside, inner, is_rewritten

    def _choose_forms(self, nodes: list[PNode]) -> None:
        """The form of each barrier that is in the plan already."""
        for n in nodes:
            if isinstance(n, PSync) and n.node is not None:
                n.stmts = self.barriers.in_block(n.node, n.of, n.note).stmts
            for block in children(n):
                self._choose_forms(block)

    def _medium(self, buffer: str) -> Medium:
        """That of a buffer; one that is not declared yet is in registers."""
        return MEDIA[self._memory.get(buffer, MemoryType.Local)]

    def _block(self, nodes: list[PNode], node: Node) -> _Block:
        self._blocks += 1
        return _Block(nodes, node, self._blocks)

    def _collect(self, block: _Block, path: tuple[tuple[_Block, PNode], ...], uses: dict[str, list[_Use]]) -> None:
        for n in block.nodes:
            here = (*path, (block, n))
            if isinstance(n, PStmt):
                loops = frozenset(name for _, around in path if isinstance(around, PLoop) for name in (around.var, item_name(around.var)))
                for access in n.reads:
                    if not self._medium(access.buffer).is_private:
                        uses.setdefault(access.buffer, []).append(_Use(here, Touch(n, access, loops), False))
                for access in n.writes:
                    self._made.setdefault(access.buffer, []).append(here)
                    if not self._medium(access.buffer).is_private:
                        uses.setdefault(access.buffer, []).append(_Use(here, Touch(n, access, loops), True))
            elif isinstance(n, PDispatch):
                for m in n.members:
                    self._collect(self._block(m.body, m.node), (*here, (block, m)), uses)
            else:
                for body in children(n):
                    self._collect(self._block(body, n.node if isinstance(n, PScope) else block.node), here, uses)

    # -- conflicts ------------------------------------------------------------------------------------------------------------------

    def _reuses_slot(self, a: _Use, b: _Use, around: PLoop | None) -> bool:
        """False if a ring takes another slot in the next iteration: a slot is used again only past the barrier of the iterations between."""
        loops = self._rings.get(a.access.buffer, {})
        return a.access.buffer != b.access.buffer or around is None or around.loop is None or around.loop not in loops

    def _before(self, early: _Use, late: _Use, pending: int) -> tuple[Stmt, ...]:
        """The statements before the barrier between two uses, of which one is asynchronous, the last of them first: a wait, a proxy fence."""
        if early.is_bulk_update:
            return (*((FenceProxyAsync(MemoryType.Global),) if late.is_of_engine else ()), WaitGroup(Queue.BULK, 0))
        if early.is_write and late.is_bulk_update:
            return (FenceProxyAsync(MemoryType.Global),)
        if early.queue is not None and late.is_write:
            return (wait_for_reads(early.queue, pending),)
        if not early.is_write or not late.is_of_engine:
            return ()
        return (FenceProxyAsync(MemoryType.Global if late.is_transfer else MemoryType.Shared),)

    def _needs(self, a: _Use, b: _Use) -> list[_Need]:
        """Where barriers must stand between two uses."""
        if a.access.buffer == b.access.buffer and a.access.buffer in self._ordered:
            return []
        if a.access.buffer == b.access.buffer and a.access.buffer in self._ahead:
            return self._of_ring(a, b)
        depth = 0
        while depth < min(len(a.path), len(b.path)) and a.path[depth][1] is b.path[depth][1]:
            depth += 1
        same = depth == len(a.path) == len(b.path)
        at = depth - 1 if same else depth
        block, first = a.path[at]
        other, second = b.path[at]
        if block is not other or (isinstance(first, PScope) and at > 0 and isinstance(a.path[at - 1][1], PDispatch) and first is not second):
            return []
        types = self._crossing(a, b, block.node)
        if not types and not a.is_of_engine and not b.is_of_engine:
            return []
        for use in (a, b):
            if use.queue is not None:
                inside, node = next((step for step in reversed(use.path[at:]) if _is_waited_for(*step, use.queue)), use.path[at])
                self._batches.setdefault((id(inside), id(node), use.queue), (inside, node, use))
        loop = next((n for _, n in reversed(a.path[:at]) if isinstance(n, PLoop)), None)
        of = (a if a.is_write else b).stmt.tv
        lanes = self._within_warps(a, b, types, block.node)
        found: list[_Need] = []
        if not same:
            ordered = block.nodes.index(first) < block.nodes.index(second)
            (x, early), (y, late) = ((a, first), (b, second)) if ordered else ((b, second), (a, first))
            found.append(_Need(block, early, late, False, types, a.access.buffer, of, self._before(x, y, 0), lanes))
            if loop is not None:
                reuses = self._reuses_slot(a, b, loop)
                pending = 0 if reuses or loop.loop is None else self._rings[a.access.buffer][loop.loop] - 1
                before = self._before(y, x, pending)
                if reuses or (y.queue is not None and x.is_write):
                    found.append(_Need(block, late, early, True, types, a.access.buffer, of, before, lanes))
        elif (carrying := _carrying(a, b, at)) is not None and self._reuses_slot(a, b, loop):
            inside, node = carrying
            lanes = self._within_warps(a, b, types, inside.node)
            found.append(_Need(inside, node, node, True, self._crossing(a, b, inside.node), a.access.buffer, of, within_warps=lanes))
        return found

    def _of_ring(self, a: _Use, b: _Use) -> list[_Need]:
        """One barrier in an iteration of a loop that fills a ring ahead: before the fill, after the waits for earlier ones.

        A slot that is used in an iteration has been filled in an earlier one, or before the loop, and is filled again in the next one at the
        earliest: the beginning of an iteration lies between, up to its fill.
        """
        if a.is_write and b.is_write:
            return []
        use = b if a.is_write else a
        buffer = use.access.buffer
        block, fill = next((block, n) for block, _ in reversed(use.path) for n in block.nodes if isinstance(n, PGuard) and _fills(n, buffer))
        types = self._crossing(a, b, block.node)
        k = block.nodes.index(fill)
        waits = block.nodes[k - 1] if k > 0 and isinstance(s := block.nodes[k - 1], PSync) and any(isinstance(x, WaitGroup) for x in s.stmts) else None
        lanes = self._within_warps(a, b, types, block.node)
        return [_Need(block, waits, fill, False, types, buffer, (a if a.is_write else b).stmt.tv, within_warps=lanes)] if types else []

    def _crossing(self, a: _Use, b: _Use, node: Node) -> frozenset[ParallelType]:
        """The index types along which data crosses between two uses. All threads of a node wait for the bytes of a transfer: none
        may be left behind by two phases.
        """
        memory = self._memory[a.access.buffer]
        types = MEDIA[memory].shared_along
        is_awaited = memory is MemoryType.Shared and any(u.is_write and is_transfer(u.stmt.tv) for u in (a, b))
        return frozenset(
            p for p in types if self.ranges.range(node, p).extent is not ONE and (is_awaited or not self._threads.is_one_index(a.touch, b.touch, p))
        )

    def _within_warps(self, a: _Use, b: _Use, types: frozenset[ParallelType], node: Node) -> bool:
        """True if data that crosses ``types`` stays in each warp."""
        return types == frozenset({ParallelType.TIDx}) and self.barriers.has_whole_warps(node) and self._threads.is_one_warp(a.touch, b.touch)

    # -- barriers -------------------------------------------------------------------------------------------------------------------

    def _satisfy(self, needs: list[_Need]) -> None:
        straight = [n for n in needs if not n.around]
        straight.sort(key=lambda n: (n.block.number, n.block.nodes.index(n.late)))
        in_order = [*straight, *(n for n in needs if n.around)]
        for need in sorted(in_order, key=lambda n: n.within_warps):  # what waits for more may do for these
            nodes = need.block.nodes
            i, j = -1 if need.early is None else nodes.index(need.early), nodes.index(need.late)
            between = nodes[i + 1 : j] if not need.around else nodes[i + 1 :] + nodes[:j]
            barriers = (n for n in between if isinstance(n, PSync) and n.is_barrier)
            ready = next((n for n in barriers if need.types <= n.types or (need.within_warps and n.is_of_warps)), None)
            if ready is None:
                between = partial(self.barriers.between, within_warps=need.within_warps)
                ready = between(need.block.node, need.types, need.buffer, need.of) if need.types else PSync((), need.of, True)
                is_early = need.around and j == 0 and not any(isinstance(s, WaitGroup) for s in need.before)  # what is awaited has the time until then
                nodes.insert(len(nodes) if is_early else j, ready)
            ready.stmts = _joined(need.before, ready.stmts)


def _carrying(a: _Use, b: _Use, at: int) -> tuple[_Block, PNode] | None:
    """What is in the innermost loop around two uses of one statement in whose trips they may access one element, at depth ``at`` or outside: none, where each
    trip of each loop has elements of its own, which one index of both accesses counts."""
    for depth in reversed(range(at)):
        loop = a.path[depth][1]
        if isinstance(loop, PLoop) and loop.extent is not ONE and not (a.access.buffer == b.access.buffer and _count(loop, a.access, b.access)):
            return a.path[depth + 1]
    return None


def _count(loop: PLoop, a: Access, b: Access) -> bool:
    """True if two accesses of one buffer take the variable of a loop as an index along the same axis."""
    return any(x is y and x is sym(loop.var) for x, y in zip(a.index, b.index, strict=True))


def check_trips(nodes: list[PNode], around: tuple[PLoop, ...] = ()) -> None:
    """Check that no block waits for others in a loop that those may leave earlier. Raises :class:`LoweringError`."""
    for n in nodes:
        scopes = {s.scope for s in n.stmts if isinstance(s, Barrier)} if isinstance(n, PSync) else set[BarrierScope]()
        if not scopes.isdisjoint(_OF_BLOCKS):
            apart = frozenset[str]().union(*(_OF_BLOCKS[scope] for scope in scopes & _OF_BLOCKS.keys()))
            loop = next((x for x in around if not x.extent.free.isdisjoint(apart)), None)
            if loop is not None:
                made = next((s.tv for s in statements(loop.body)), None)
                raise LoweringError(
                    what="" if made is None else made.name,
                    reason=f"blocks wait for each other in a loop of {loop.extent} trips, a number that differs between blocks",
                    help="exchange these elements after the loop, or let the extent of the work be a multiple of the blocks",
                    location=None if made is None else made.location,
                )
        for block in children(n):
            check_trips(block, (*around, n) if isinstance(n, PLoop) else around)


def _joined(before: tuple[Stmt, ...], stmts: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """Statements with others before them, each wait for a queue once, for the fewest unfinished batches."""
    for b in before:
        same = next(
            (s for s in stmts if s == b or (isinstance(s, WaitGroup) and isinstance(b, WaitGroup) and (s.queue, s.read_only) == (b.queue, b.read_only))), None
        )
        if same is None:
            stmts = (b, *stmts)
        elif isinstance(same, WaitGroup) and isinstance(b, WaitGroup) and b.pending < same.pending:
            stmts = tuple(b if s is same else s for s in stmts)
    return stmts


def _fills(node: PGuard, buffer: str) -> bool:
    return any(a.buffer == buffer for s in statements([node]) for a in s.writes)


def _is_waited_for(block: _Block, node: PNode, queue: Queue) -> bool:
    """True if a block waits for what a node of it has issued: a batch is closed before that."""
    behind = block.nodes[block.nodes.index(node) + 1 :]
    return any(isinstance(n, PSync) and any(isinstance(s, WaitGroup) and s.queue is queue for s in n.stmts) for n in behind)


def _aliases(buffers: list[Buffer]) -> list[list[str]]:
    """Groups of Shared buffers whose bytes overlap."""
    spans: list[tuple[str, int, int]] = []
    for b in buffers:
        size = const(max(1, b.dtype.bits // 8))
        for e in b.shape:
            size = size * e
        if isinstance(b.offset, Const) and isinstance(size, Const):
            spans.append((b.name, b.offset.value, b.offset.value + size.value))
    groups: list[list[str]] = []
    for name, lo, hi in spans:
        for other, lo2, hi2 in spans:
            if name < other and lo < hi2 and lo2 < hi:
                groups.append([name, other])
    return groups
