"""Emission of kernel IR: local indices become hardware indices, equal guards one IF; notes of dispatches say what orders their data."""

from __future__ import annotations

from dataclasses import replace

from taskfuse.ir.axes import CLAIMED
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, Facts, and_, const, eq, not_, prove, simplify, substitute, sym
from taskfuse.ir.storage import has_code, producers, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import INDEX_TYPES, THREAD_TYPES
from taskfuse.kir import Kernel, barrier_slots, map_expressions, map_stmts, walk
from taskfuse.kir.clusters import cluster_blocks, reaches, remote_barriers
from taskfuse.kir.declarations import Buffer, Counter, IntegerParam, Mbarrier, Param, ScalarParam, Semaphore, TensorMapParam, TensorParam, WorkQueue
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.operands import BarrierSlot
from taskfuse.kir.synchronization import Advance, Barrier, BarrierScope, CursorInit, FenceInit, InitBarrier
from taskfuse.kir.walk import expressions
from taskfuse.location import Location
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.clusters import cluster_shape, grid_shape, in_grid
from taskfuse.lowering.domains import refused
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.locations import Locations, located
from taskfuse.lowering.plan import PBind, PDispatch, PGuard, PLoop, PNode, PScope, PStmt, PSync, Walk, base_name, children
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index
from taskfuse.schedule.order import is_vertical
from taskfuse.schedule.shared_loops import Loop
from taskfuse.target import Target


def _input(fusion: Fusion, tv: TensorView) -> TensorParam:
    known = fusion.tables.get(tv)
    if known is None:
        return TensorParam(tv.name, tv.dtype, tv.shape, False)
    rises, lengths = (known.low, known.high) if known.rises else None, known.high if known.lengths else None
    return TensorParam(tv.name, tv.dtype, tv.shape, False, None, rises, known.search, known.holds, lengths)


class Notes:
    """Writes the note of every dispatch of a plan, after channels and barriers are inserted."""

    def __init__(self, indexer: Indexer, channels: Channels) -> None:
        self.indexer = indexer
        self.channels = channels

    def write(self, nodes: list[PNode], before: bool = False, after: bool = False) -> None:
        """Set the notes below ``nodes``. ``before``, ``after``: a barrier stands there in a block around them."""
        for k, n in enumerate(nodes):
            earlier = before or any(self._barrier(m) for m in nodes[:k])
            later = after or any(self._barrier(m) for m in nodes[k + 1 :])
            if isinstance(n, PDispatch):
                inside = set(self.indexer.ranges.tensors(n.group))
                kind = "vertical" if is_vertical(n.group) else "horizontal"
                entering = self._say(self._entering(inside), earlier, "enters")
                leaving = self._say(self._leaving(inside), later, "leaves")
                ptype = n.group.ptype.value if n.group.ptype is not None else ""
                n.note = f"{n.group.name}: {kind} on {ptype}; {entering}; {leaving}"
            for block in children(n):
                self.write(block, earlier, later)

    def _barrier(self, n: PNode) -> bool:
        return isinstance(n, PSync) and n.is_barrier

    def _entering(self, inside: set[TensorView]) -> list[TensorView]:
        found: dict[TensorView, None] = {}
        for tv in sorted(inside, key=lambda t: t.id):
            found.update((p, None) for p in producers(self.indexer.fusion, tv) if p not in inside and not p.is_input)
        return list(found)

    def _leaving(self, inside: set[TensorView]) -> list[TensorView]:
        fusion = self.indexer.fusion
        return [t for t in sorted(inside, key=lambda t: t.id) if any(has_code(fusion, u) and u.output not in inside for u in storage_uses(fusion, t))]

    def _say(self, data: list[TensorView], has_barrier: bool, verb: str) -> str:
        if not data:
            return f"no data {verb}"
        names = dict.fromkeys(ch.name for tv in data if (ch := self.channels.channel(tv)) is not None)
        if names and all(self.channels.channel(tv) is not None for tv in data):
            return f"{', '.join(names)} orders what {verb}"
        return f"a barrier orders what {verb}" if has_barrier else f"what {verb} stays with its thread"


class Emitter:
    """Emits one plan."""

    def __init__(self, fusion: Fusion, ranges: ThreadRanges, target: Target) -> None:
        self.fusion = fusion
        self.ranges = ranges
        self.target = target
        self.lines = Locations(fusion)
        self.queues: dict[Loop, WorkQueue] = {}  # of loops over items that blocks claim, in all roles

    def body(self, nodes: list[PNode], facts: Facts) -> tuple[Stmt, ...]:
        """Kernel-IR statements of a block."""
        out: list[Stmt] = []
        k = 0
        while k < len(nodes):
            n = nodes[k]
            if isinstance(n, PStmt):
                run = [n]
                while k + 1 < len(nodes) and isinstance(follow := nodes[k + 1], PStmt) and self._guards(follow) == self._guards(n):
                    run.append(follow)
                    k += 1
                out += self._statements(run, facts)
            else:
                out += self._node(n, facts)
            k += 1
        return tuple(out)

    def _guards(self, s: PStmt) -> tuple[Expr, ...]:
        at = self._place(s)
        return tuple(simplify(substitute(g, at), self.ranges.facts) for g in s.guards)

    def _place(self, s: PStmt) -> dict[str, Expr]:
        return {base_name(p, s.task): hardware_index(p) - self.ranges.range(s.task, p).start for p in INDEX_TYPES}

    def _statements(self, run: list[PStmt], facts: Facts) -> list[Stmt]:
        stmts: list[Stmt] = []
        for s in run:
            at = self._place(s)
            stmts.append(replace(map_expressions(s.stmt, lambda e, at=at: substitute(e, at)), location=self.lines.of_node(s)))
        guards = [g for g in self._guards(run[0]) if not prove(g, facts)]
        return [If((Branch(and_(*guards), tuple(stmts)),), location=stmts[0].location)] if guards else stmts

    def _node(self, n: PNode, facts: Facts) -> list[Stmt]:
        match n:
            case PLoop():
                inner = facts.with_range(n.var, 0, n.extent - 1)
                if n.walk is not None:
                    return [self._walk(n, n.walk, inner.with_range(str(n.walk.item), 0, n.walk.stop - 1))]
                return [For(n.var, const(0), n.extent, const(1), n.unroll, self.body(n.body, inner), location=self.lines.of_node(n))]
            case PBind():
                return [Bind(n.index, n.ptype, n.extent, self.body(n.body, facts), location=self.lines.of_node(n))]
            case PGuard(cond=cond) if prove(not_(cond), facts):
                return []  # a fill of a position that there is not
            case PGuard(cond=cond, body=body):
                inside = self.body(body, facts.with_assumption(cond))
                return list(inside) if prove(cond, facts) else [If((Branch(cond, inside),), location=self.lines.of_node(n))]
            case PScope():
                cond = and_(*n.conds)
                body = self.body(n.body, facts.with_assumption(cond))
                return [If((Branch(cond, body, n.node.name),), location=self.lines.of_node(n))] if n.conds else list(body)
            case PDispatch():
                arms = [Branch(and_(*m.conds), self.body(m.body, facts.with_assumption(and_(*m.conds))), m.node.name) for m in n.members]
                return [If(tuple(arms), n.note, location=self.lines.of_node(n))]
            case PSync():
                return list(located(n.stmts, self.lines.of_node(n)))
            case PStmt():
                return self._statements([n], facts)

    def _walk(self, n: PLoop, items: Walk, facts: Facts) -> For:
        """A loop over items of work: what counts its trips finds their number from the item."""
        item = sym(n.var)
        value = {str(items.item): item, n.var: (item - items.start) // items.step}
        inside = self.body(n.body, facts)
        if items.claimed is not None:
            assert n.loop is not None
            if any(n.var in e.free for s in walk(inside) for e in expressions(s)):
                reason = "it counts the trips of a loop over claimed items"
                raise refused(next(iter(n.loop.axes)), reason, "distribute the items over blocks: without tf.tiles.dynamic()")
            queue = self.queues.setdefault(n.loop, WorkQueue(f"queue{len(self.queues)}", items.stop)).name
            value = {str(items.item): item, CLAIMED: item - items.claimed}  # so that the place among those of a trip is that of the item
        else:
            queue = None
        body = map_stmts(inside, lambda s: map_expressions(s, lambda e: substitute(e, value) if not e.free.isdisjoint(value) else e))
        return For(n.var, items.start, items.stop, items.step, n.unroll, body, queue, location=self.lines.of_node(n))

    def kernel(
        self,
        plan: list[PNode],
        buffers: list[Buffer],
        mbarriers: list[tuple[str, int, Expr]],
        counters: list[str],
        semaphores: list[Semaphore],
        cursors: tuple[CursorInit, ...],
        maps: tuple[TensorMapParam, ...],
    ) -> Kernel:
        """The whole kernel: arguments, launch shape, initialization of mbarriers, body."""
        fusion, ranges = self.fusion, self.ranges
        cluster = cluster_shape(ranges, self.target)
        body = self.body(plan, ranges.facts)
        lines: dict[str, Location | None] = {}  # of an mbarrier, or of a cursor that counts everywhere: that of the first statement that names it
        for s in walk(body):
            for name in (s.cursor,) if isinstance(s, Advance) else (b.name for b in barrier_slots(s)):
                lines.setdefault(name, s.location)
        spread = {b.name for b in buffers if MEDIA[b.memory].is_by_rank}
        far = next((s for s in walk(body) if reaches(s, spread)), None)
        remote = bool(remote_barriers(walk(body)))
        everyone = simplify(ranges.threads * cluster_blocks(cluster), ranges.facts)
        tail = (Barrier(BarrierScope.CLUSTER, everyone, note="no block exits while others reach it", location=far.location),) if far is not None else ()
        head: list[Stmt] = []
        if mbarriers:
            first = and_(*(eq(hardware_index(p), 0) for p in THREAD_TYPES if ranges.launch[p] is not const(1)))
            inits: tuple[Stmt, ...] = tuple(
                InitBarrier(BarrierSlot(name, const(slot)), count, location=lines.get(name)) for name, slots, count in mbarriers for slot in range(slots)
            )
            start = inits[0].location
            if maps:
                inits = (*inits, FenceInit(location=start))
            scope, threads = (BarrierScope.CLUSTER, everyone) if remote else (BarrierScope.BLOCK, ranges.threads)
            head += [If((Branch(first, inits),), location=start), Barrier(scope, threads, note="barriers are initialized", location=start)]
        head += (replace(c, location=lines.get(c.name)) for c in cursors)
        params: list[Param] = [_input(fusion, tv) for tv in fusion.inputs]
        params += [ScalarParam(s.name, s.dtype) for s in fusion.scalars]
        params += map(IntegerParam, fusion.integers)
        into = {r.tensor: r.into.name for r in fusion.results if r.into is not None and r.into.is_input}
        params += [TensorParam(tv.name, tv.dtype, tv.shape, True, into.get(tv)) for tv in fusion.outputs]
        params += maps

        x, y, z = (ranges.launch[p] for p in THREAD_TYPES)
        return Kernel(
            name=fusion.name,
            extents=tuple(fusion.dims.values()),
            params=tuple(params),
            grid=grid_shape(ranges),
            block=(x, y, z),
            buffers=tuple(buffers),
            mbarriers=tuple(Mbarrier(name, slots) for name, slots, _ in mbarriers),
            counters=tuple(Counter(c) for c in counters),
            body=in_grid((*head, *body, *tail), cluster),
            cluster=cluster,
            semaphores=tuple(semaphores),
            queues=tuple(self.queues.values()),
            residents=fusion.residents,
        )
