"""Software pipelining inside one role: a loop in which code of stage 1 runs one trip behind that of stage 0 (docs/channels.md).

The asynchronous products of stage 1 run while stage 0 computes the rest of its trip, of which their trip does not depend::

    for i in 0..T: s0(i); s1(i)        for i in 0..T + 1: if i < T:  first(i)        the products that stage 0 begins with
                                                          if i >= 1: s1(i - 1)       issues its products
                                                          if i < T:  rest(i)
                                                          wait for the products of s1
                                                          if i < T:  last(i)         what writes registers that they read

``first`` is stage 0 up to its first batch of products, so both batches are in the tensor cores' queue when ``rest`` begins. Waits in ``rest`` leave the
batch of stage 1 in flight. That one is committed outside the condition, which all threads agree on: in the first iteration it is empty, and waits count it.

Both orders compute the same if no code of stage 0 accesses what stage 1 writes, and stage 0 writes what stage 1 reads in the same trip before it, behind
``first``: trip ``i - 1`` of it is over, and trip ``i`` has not begun. Slots of channels are taken and released where their stage uses them, so a ring whose
slots stage 1 uses needs two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from taskfuse.ir.expr import Fold, Scan
from taskfuse.ir.scalar import ONE, Facts, ge, lt, sym
from taskfuse.ir.tensor import TensorView
from taskfuse.kir import map_stmts, walk
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Advance, Barrier, BarrierScope, Commit, WaitGroup, WgmmaFence
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.completion import issues_to
from taskfuse.lowering.domains import refused
from taskfuse.lowering.insertion_points import leaves
from taskfuse.lowering.plan import PBind, PGuard, PLoop, PNode, PScope, PStmt, PSync, moved, statements
from taskfuse.lowering.prefetch import blocks

STAGES = 2
"""The slots that a ring needs whose slots stage 1 uses."""
COMMIT = (Commit(Queue.WGMMA),)


def pipeline(plan: list[PNode], channels: Channels) -> list[Pipelined]:
    """Pipeline the loops of the plan around tensors of stage 1. Returns them.

    Raises:
        LoweringError: the two stages depend on each other in another way, or stand in no loop.
    """
    late = {tv for tv in channels.tree.place if tv.schedule.pipeline_stage}
    done: set[TensorView] = set()
    found: list[Pipelined] = []
    for block in list(blocks(plan)):
        for loop in [n for n in block if is_shared(n)]:
            assert isinstance(loop, PLoop)
            deeper = {s.tv for inner in blocks(loop.body) for n in inner if is_shared(n) for s in statements([n])}
            mine = {s.tv for s in statements(loop.body)} & late - deeper
            if mine and loop.extent is not ONE:
                found.append(Pipelined(loop, mine, channels))
                found[-1].skew()
            done |= mine
    for tv in sorted(late - done, key=lambda tv: tv.id):
        raise refused(tv, "it is of stage 1, but its code shares no loop with other code", f"{tv.name}.pipeline_stage(0)")
    return found


def check_pipelines(pipelined: list[Pipelined]) -> None:
    """No barrier of the whole grid lies within such a loop: blocks would meet under its conditions.

    To be called when all barriers are inserted. Raises :class:`LoweringError`.
    """
    for p in pipelined:
        if any(isinstance(s, Barrier) and s.scope is BarrierScope.GRID for leaf in leaves(p.loop.body) if isinstance(leaf, PSync) for s in walk(leaf.stmts)):
            raise refused(p.of, "it is of stage 1, and blocks wait for each other in its loop", f"{p.of.name}.pipeline_stage(0)")


def is_shared(node: PNode) -> bool:
    """True for a loop of several tensors."""
    return isinstance(node, PLoop) and not node.unroll and node.loop is not None and len(node.loop.axes) > 1


def pieces(nodes: list[PNode]) -> list[PNode]:
    """Nodes whose scopes hold one node each, and so do loops that hardware indices take, where a batch of products ends in them."""
    found: list[PNode] = []
    for n in nodes:
        if isinstance(n, PScope) or (isinstance(n, PBind) and any(isinstance(leaf, PSync) and leaf.stmts == COMMIT for leaf in leaves([n]))):
            found += [replace(n, body=[piece]) for piece in pieces(n.body)]
        else:
            found.append(n)
    return found


def _inside(node: PNode) -> PNode:
    """What a scope, or a loop that a hardware index takes, of one node holds."""
    return _inside(node.body[0]) if isinstance(node, PScope | PBind) and len(node.body) == 1 else node


@dataclass(slots=True, eq=False)
class Pipelined:
    """One loop. ``late``: its tensors of stage 1."""

    loop: PLoop
    late: set[TensorView]
    channels: Channels

    @property
    def of(self) -> TensorView:
        """The first tensor of stage 1, which errors name."""
        return min(self.late, key=lambda tv: tv.id)

    def skew(self) -> None:
        """Change the loop's body."""
        loop, of = self.loop, self.of
        self._check_loop(of)
        nodes = pieces(loop.body)
        rings = self._rings()
        is_late = [self._is_late(n, rings) for n in nodes]
        early = [n for n, late in zip(nodes, is_late, strict=True) if not late]
        second = [n for n, late in zip(nodes, is_late, strict=True) if late]
        begin = next((k + 1 for k, n in enumerate(early) if _is_commit(n)), 0)
        issue = next((k for k, n in enumerate(second) if _is_commit(n)), len(second))
        if any(map(_is_commit, second[issue + 1 :])):
            raise refused(of, "it is of stage 1, which has several batches of products", "give one product stage 1")
        self._check(nodes, is_late, early[:begin])
        first, rest, last = early[:begin], *self._split(early[begin:], second[:issue])
        here, before = lt(sym(loop.var), loop.extent), ge(sym(loop.var), 1)
        trips = loop.extent

        def of_stage_0(facts: Facts) -> Facts:
            return facts.with_range(loop.var, 0, trips).with_assumption(here)

        def of_stage_1(facts: Facts) -> Facts:
            return facts.with_range(loop.var, 0, trips).with_assumption(before)

        def now(part: list[PNode]) -> list[PNode]:
            return [PGuard(here, moved(part, {}, of_stage_0))] if part else []

        def behind(part: list[PNode]) -> list[PNode]:
            return [PGuard(before, moved(part, {loop.var: sym(loop.var) - 1}, of_stage_1))] if part else []

        has_products = issue < len(second)
        commit: list[PNode] = [PSync(COMMIT, of)] if has_products else []
        drain: list[PNode] = [PSync((WaitGroup(Queue.WGMMA, 0),), of)] if has_products else []
        waits = [_pending(n, 1) if has_products else n for n in rest]
        released = [n for n in (_without_waits(n) for n in second[issue + 1 :]) if n is not None]
        loop.body[:] = [*now(first), *behind(second[:issue]), *commit, *now(waits), *drain, *behind(released), *now(last)]
        loop.extent = trips + 1

    def _check_loop(self, of: TensorView) -> None:
        """The loop counts trips, and moves no position but those of channels, each in one place. Raises :class:`LoweringError`."""
        cursors = {end.cursor for ch in self.channels.channels for end in (ch.producer, *ch.consumers)}
        reason = "it is of stage 1 in a loop over items of work" if self.loop.walk is not None else ""
        if any(isinstance(tv.definition, Scan | Fold) for tv in self.late):
            reason = "it is of stage 1, and its steps are taken in order, in each trip of its loop"
        for leaf in leaves(self.loop.body):
            if isinstance(leaf, PStmt) and leaf.tv.schedule.in_flight:
                reason = f"it is of stage 1, and {leaf.tv.name} in its loop leaves products in flight"
            if isinstance(leaf, PSync) and any(isinstance(s, Advance) and s.cursor not in cursors for s in leaf.stmts):
                reason = "it is of stage 1, and a ring inside the role takes a slot in each trip of its loop"
        if reason:
            raise refused(of, reason, f"{of.name}.pipeline_stage(0)")

    def _rings(self) -> set[TensorView]:
        """The tensors of the channels whose slots stage 1 uses. Raises :class:`LoweringError` if stage 0 uses some of them, or there are too few slots."""
        inside = list(statements(self.loop.body))
        touched = ({a.buffer for s in inside if (s.tv in self.late) is late for a in (*s.reads, *s.writes)} for late in (True, False))
        mine, theirs = touched
        found: set[TensorView] = set()
        for ch in self.channels.channels:
            names = {tv.name for tv in ch.tensors}
            if names.isdisjoint(mine) or ch.loop is not self.loop.loop:
                continue
            tv = self.of
            if not names.isdisjoint(theirs):
                raise refused(tv, f"it is of stage 1, and code of stage 0 reads {ch.subject}, too", "give both one stage")
            if ch.stages < STAGES:
                raise refused(tv, f"it is of stage 1, and {ch.subject} has {ch.stages} slot: it is released one trip late", "circular_buffer(2)")
            if any(c.pingpong is not None for c in ch.consumers) or ch.is_between_blocks or any(tv in set(ch.tensors) for tv in self.late):
                raise refused(tv, f"it is of stage 1, and {ch.subject} is distributed, between blocks, or made by it", f"{tv.name}.pipeline_stage(0)")
            found |= set(ch.tensors)
        return found

    def _is_late(self, node: PNode, rings: set[TensorView]) -> bool:
        """True for a node of stage 1. Raises :class:`LoweringError` if it holds code of both stages."""
        kinds = {n.tv in self.late if isinstance(n, PStmt) else n.of in self.late | rings for n in leaves([node])}
        if len(kinds) > 1:
            tv = self.of
            raise refused(tv, "it is of stage 1, and code of stage 0 stands in the same inner loop", "give all code of that loop one stage")
        return kinds == {True}

    def _check(self, nodes: list[PNode], is_late: list[bool], first: list[PNode]) -> None:
        """The stages depend on each other as the module says. Raises :class:`LoweringError`."""
        tv = self.of
        stage_1 = [s for n, late in zip(nodes, is_late, strict=True) if late for s in statements([n])]
        written, read = {a.buffer for s in stage_1 for a in s.writes}, {a.buffer for s in stage_1 for a in s.reads}
        opening = set(map(id, statements(first)))
        begun = False
        for node, late in zip(nodes, is_late, strict=True):
            begun = begun or late
            for s in statements([node]) if not late else ():
                other = next((a.buffer for a in (*s.reads, *s.writes) if a.buffer in written), None)
                if other is not None:
                    raise refused(tv, f"it is of stage 1, and {s.tv.name} of stage 0 accesses {other}, which stage 1 writes", f"{s.tv.name}.pipeline_stage(1)")
                ahead = next((a.buffer for a in s.writes if a.buffer in read), None)
                if ahead is not None and (begun or id(s) in opening):
                    where = "behind it" if begun else "before the first products of the next trip are issued"
                    raise refused(tv, f"it is of stage 1, and {s.tv.name} writes {ahead}, which it reads, {where}", f"{s.tv.name}.pipeline_stage(1)")

    def _split(self, nodes: list[PNode], issue: list[PNode]) -> tuple[list[PNode], list[PNode]]:
        """Code of stage 0 that may run while products of stage 1 do, and code behind it: it writes registers that they read, or issues other products."""
        held = {a.buffer for s in statements(issue) if issues_to(s) is not None for a in s.reads}
        at = next((k for k, n in enumerate(nodes) if _issues(n) or any(a.buffer in held for s in statements([n]) for a in s.writes)), len(nodes))
        return nodes[:at], nodes[at:]


def _is_commit(node: PNode) -> bool:
    """True for the end of a batch of products."""
    inner = _inside(node)
    return isinstance(inner, PSync) and inner.stmts == COMMIT


def _issues(node: PNode) -> bool:
    """True for products, for the fence before some, and for the end of a batch."""
    inner = _inside(node)
    return _is_commit(node) or (isinstance(inner, PSync) and inner.stmts == (WgmmaFence(),)) or any(issues_to(s) is Queue.WGMMA for s in statements([node]))


def _on_waits(node: PNode, change: Callable[[WaitGroup], Stmt | None]) -> PNode:
    """A copy of a node with other waits for products; ``None``: without."""

    def one(s: Stmt) -> Stmt | tuple[Stmt, ...]:
        if isinstance(s, WaitGroup) and s.queue is Queue.WGMMA:
            changed = change(s)
            return () if changed is None else changed
        return s

    match node:
        case PSync():
            return replace(node, stmts=map_stmts(node.stmts, one))
        case PLoop() | PBind() | PScope() | PGuard():
            return replace(node, body=[_on_waits(n, change) for n in node.body])
        case _:
            return node


def _pending(node: PNode, more: int) -> PNode:
    """A node whose waits leave ``more`` younger batches in flight."""
    return _on_waits(node, lambda s: replace(s, pending=s.pending + more))


def _without_waits(node: PNode) -> PNode | None:
    """A node without its waits for products; ``None`` if nothing is left."""
    found = _on_waits(node, lambda s: None)
    return found if any(not isinstance(leaf, PSync) or leaf.stmts for leaf in leaves([found])) else None
