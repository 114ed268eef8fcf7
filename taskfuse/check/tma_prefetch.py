"""Rings that bulk loads fill ahead inside one role: mbarriers ``full`` without ``empty``.

One thread of the role expects the bytes of a position and starts its loads; all threads of the role wait for every position. No mbarrier frees a slot:
after all threads have waited for position ``n``, a barrier synchronizes them, and then the thread fills position ``n + S``. Positions are those of the
cursor that the waits use (:mod:`taskfuse.check.multibuffers`). Requirements:

1. every execution of the cursor's block waits at each of its positions, then advances;
2. every position is filled once: in the loop under ``i + d < stop``, the first ``d`` before it under ``start + p < stop``; or, in a block without such
   a loop, each by a statement of its own. One thread, which also waits, expects the bytes of its loads; the barrier counts this one arrival;
3. that thread has waited for position ``n`` when it fills ``n + S``, and a barrier has synchronized it with all others after their waits for ``n``.

Then (E) a thread that waits for ``n`` has itself waited for ``n - S``; (L) completion of ``n + S`` needs an arrival that comes after all waits for ``n``;
(A) the arrival for ``n + S`` comes after the thread's own wait for ``n``. A fill precedes the wait for its position in program order.
"""

from __future__ import annotations

from taskfuse.check.accesses import Use
from taskfuse.check.endpoints import Endpoint
from taskfuse.check.multibuffers import MultiBuffer, MultiBuffers, Position
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import THREADS, Conditions, Context, Node
from taskfuse.check.traversals import NotRing
from taskfuse.ir.scalar import ONE, TRUE, Expr, ge, le, lt, prove, sym
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.synchronization import CursorInit, Expect, Wait
from taskfuse.reports.certificate import Layer, Obligation, Verdict


class TmaPrefetch:
    """The rings of one kernel that a role fills ahead by bulk loads.

    Attributes:
        obligations: the obligations about them.
        edges: a fill and the wait for its position, if both may be in one execution of a block.
    """

    def __init__(self, rings: Rings, multibuffers: MultiBuffers) -> None:
        self.obligations: list[Obligation] = []
        self.edges: list[tuple[Node, Node]] = []
        self._rings = rings
        self._threads = rings.threads
        self._multibuffers = multibuffers
        self._waits: dict[str, list[Position]] = {}
        self._filled: dict[Node, tuple[MultiBuffer, int]] = {}
        self._who: dict[str, Conditions] = {}
        for name in rings.refilled:
            try:
                self._waits[name] = self._check(name)
            except NotRing as e:
                notes = tuple(n.text for n in e.nodes)
                self.obligations.append(Obligation(Layer.STRUCTURE, f"mbarrier {name}", Verdict.OUTSIDE, e.reason, notes))
                continue
            reason = f"{rings.slots[name]} slots, filled ahead by a thread that waits: each position once, after a barrier of all"
            self.obligations.append(Obligation(Layer.STRUCTURE, f"ring {name}", Verdict.PROVED, reason))

    def waited(self, load: Node, use: Use, position: Position) -> bool:
        """True only if the accessing thread has waited for the loads of its position, and so for all before."""
        assert isinstance(load.stmt, TmaLoad)
        name = load.stmt.barrier.name
        before = any(w.count == position.count and w.node.number < use.node.number for w in self._waits[name])
        return position.inside and before and self._threads.implies(use.context.conditions, self._who[name], use.context)

    def position(self, load: Node) -> tuple[MultiBuffer, int] | None:
        """The ring that a load fills, and the count of its :class:`Position`; ``None`` if it fills none."""
        return self._filled.get(load)

    # -- one ring -------------------------------------------------------------------------------------------------------------------

    def _check(self, name: str) -> list[Position]:
        nodes = self._rings.waits(name)
        if name in self._rings.order_waits:
            raise NotRing("it is waited for by another parity than that of its cursor", self._rings.order_waits[name][0])
        first = nodes[0]
        assert isinstance(first.stmt, Wait)
        found = self._multibuffers.slot(first.stmt.barrier.slot)
        if found is None:
            raise NotRing("the positions of its waits are not known", first)
        ring = found[0]
        self._check_cursor(ring, name)
        waits = self._positions(ring, nodes)
        for move in ring.moves:
            own = [w for w in waits if w.node.block is ring.block and w.count == sum(m.index < move.index for m in ring.moves)]
            if len(own) != 1:
                raise NotRing("a position does not have exactly one wait", move)
        if len(waits) != len(ring.moves):
            raise NotRing("a position has several waits, or is waited for by some threads only", first)
        fills = self._positions(ring, self._rings.order_arrivals[name])
        groups: dict[tuple[bool, int], list[Position]] = {}
        for f in fills:
            groups.setdefault((f.inside, f.count), []).append(f)
        self._check_each_once(ring, {key: [f.node for f in group] for key, group in groups.items()})
        who = self._who[name] = self._threads.split(first.conditions).threads
        end = Endpoint(ring.cursor, ring.cursor, who, ())
        for (inside, _), group in groups.items():
            self._check_fill([f.node for f in group], end, ring.block.context if inside or ring.loop is None else ring.loop.context)
            for f in group:
                self._check_order(ring, waits, f, end)
        self._filled.update({f.node: (ring, f.count) for f in fills if isinstance(f.node.stmt, TmaLoad)})
        self.edges += [(f.node, w.node) for f in fills for w in waits if not f.inside or f.count == w.count]
        return waits

    def _check_cursor(self, ring: MultiBuffer, name: str) -> None:
        (init,) = self._rings.inits(ring.cursor)
        assert isinstance(init.stmt, CursorInit)
        if (init.stmt.slots, init.stmt.slot, init.stmt.parity) != (self._rings.slots[name], 0, 0):
            raise NotRing(f"cursor {ring.cursor} does not begin with the first phase of slot 0", init)
        counts = self._rings.counts(name)
        if any(count is not ONE for count in counts):
            raise NotRing(f"it counts {counts[0]} arrivals, but gets 1")

    def _positions(self, ring: MultiBuffer, nodes: list[Node]) -> list[Position]:
        found: list[Position] = []
        for n in nodes:
            match n.stmt:
                case Wait(barrier=slot) | Expect(barrier=slot) | TmaLoad(barrier=slot, across=()):
                    place = self._multibuffers.slot(slot.slot)
                case _:
                    raise NotRing("a thread arrives that does not start loads into this block alone", n)
            position = None if place is None or place[0] is not ring else ring.position(n, place[1])
            if position is None:
                raise NotRing("it is used at an unknown position", n)
            found.append(position)
        return found

    def _check_each_once(self, ring: MultiBuffer, groups: dict[tuple[bool, int], list[Node]]) -> None:
        """Every position is filled once, and nothing else."""
        inside = sorted(count for within, count in groups if within)
        front = sorted(count for within, count in groups if not within)
        nodes = [n for group in groups.values() for n in group]
        if not front and inside == list(range(len(ring.moves))):
            for n in nodes:
                self._exactly(n, ring.block.context, TRUE)
            return
        loop = ring.loop
        if loop is None or len(ring.moves) > 1 or len(inside) > 1:
            raise NotRing("the positions that are filled are unknown", *nodes[:1])
        stmt = loop.stmt
        assert isinstance(stmt, For)
        distance = inside[0] if inside else max(front) + 1
        if stmt.step is not ONE or distance < 1 or any(p >= distance for p in front):
            raise NotRing("the positions that are filled are unknown", *nodes[:1])
        facts = loop.context.facts
        if inside:
            for n in groups[True, distance]:
                self._exactly(n, ring.block.context, lt(sym(stmt.var) + distance, stmt.stop))
        elif not prove(le(stmt.stop - stmt.start, distance), facts):
            raise NotRing("its last positions are not filled", loop)
        for p in range(distance):
            for n in groups.get((False, p), []):
                self._exactly(n, loop.context, lt(stmt.start + p, stmt.stop))
            if (False, p) not in groups and not prove(ge(stmt.start + p, stmt.stop), facts):
                raise NotRing("its first positions are not filled", loop)

    def _exactly(self, n: Node, context: Context, condition: Expr) -> None:
        """In a context, a statement is executed if and only if a condition holds, by whatever threads."""
        added = [c for c in n.conditions[len(context.conditions) :] if c.free.isdisjoint(THREADS)]
        assumed = context.facts.with_assumption(condition)
        if not prove(condition, n.context.facts) or not all(prove(c, assumed) for c in added):
            raise NotRing(f"it fills a position under another condition than {condition}", n)

    def _check_fill(self, nodes: list[Node], end: Endpoint, context: Context) -> None:
        """One thread of those that wait expects what the loads of a position bring."""
        expects = [n for n in nodes if isinstance(n.stmt, Expect)]
        if len(expects) != 1 or expects[0].loops != context.loops:
            raise NotRing("the bytes of a position are not expected once", *nodes[:1])
        for n in nodes:
            split = self._threads.split(n.conditions)
            if not self._threads.exactly_one(n.conditions) or not self._threads.implies(split.threads, end.threads):
                raise NotRing("it is not filled by one thread of those that wait", n)
        self._rings.arrivals.balanced(nodes, context.loops)

    def _check_order(self, ring: MultiBuffer, waits: list[Position], fill: Position, end: Endpoint) -> None:
        """The fill of a position comes after all waits for the one before it in its slot."""
        passed = sum(w.node.number < fill.node.number for w in waits) if fill.inside else 0
        if fill.count - ring.slots >= passed:
            raise NotRing("a slot is filled again before its last position has been waited for", fill.node)
        who = self._threads.split(fill.node.conditions).threads
        if self._threads.implies(end.threads, who):
            return
        for w in waits:
            if not all(self._rings.slot_release.synchronized(steps, fill.node, end) for steps, _ in ring.passed(w, fill)):
                raise NotRing("threads that wait for a position are not synchronized with the one that fills its slot again", w.node, fill.node)
