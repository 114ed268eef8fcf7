"""No race: two conflicting accesses never touch one element, are made by one thread, or are ordered.

Ordered means: every path from one to the other passes a barrier of both threads, or a ring hands the slot over in between. Asynchronous accesses
begin when they are issued and end at a wait_group, or when the ring's barrier completes; a generic write that an engine then sees needs
the proxy fence of its writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.check.accesses import Engine, Use, Uses, overlapping
from taskfuse.check.barriers import Barriers, BarrierSite, ordered_by
from taskfuse.check.chains import Chains
from taskfuse.check.endpoints import Endpoint, Ring, share_ring
from taskfuse.check.enumeration import Pairs, Table
from taskfuse.check.multibuffers import MultiBuffers, PrivatePair
from taskfuse.check.paths import Paths, Region, Step, SyncPoints, common_loops
from taskfuse.check.relation import Relation, pinned
from taskfuse.check.remote import apart
from taskfuse.check.ring_order import RingOrder
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.tma_prefetch import TmaPrefetch
from taskfuse.check.traversals import Visit, visits
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, Sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Acquire, ArriveAsync, BarrierScope, Commit, FenceProxyAsync, Wait, WaitGroup
from taskfuse.reports.certificate import Layer, Obligation, Verdict


@dataclass(frozen=True, slots=True)
class Section:
    """Where an access lies in a ring: at which end, at which position in the text. ``axis``: of its index, the slot's; -1: none is."""

    ring: Ring
    end: Endpoint
    visit: Visit
    axis: int = -1


class Races:
    """The address layer for one kernel."""

    def __init__(
        self, tree: StatementTree, threads: Threads, barriers: Barriers, rings: Rings, paths: Paths, multibuffers: MultiBuffers, prefetch: TmaPrefetch
    ) -> None:
        self.tree = tree
        self.threads = threads
        self.barriers = barriers
        self.rings = rings
        self.paths = paths
        self.uses = Uses(tree)
        self._sections: dict[int, Section | None] = {}
        self._singles: dict[tuple[int, str], Section | None] = {}
        self._single = [r for r in rings.rings if r.slots == 1 and any(isinstance(v.wait.stmt, Wait) for v in r.producer.visits() if v.wait is not None)]
        self._cursors: dict[str, tuple[Ring, Endpoint]] = {}
        for ring in rings.rings:
            for e in ring.endpoints:
                self._cursors[f"{e.cursor}.slot"] = (ring, e)
        self._multibuffers = multibuffers
        self._tma_prefetch = prefetch
        self._ring_order = RingOrder(rings.rings, threads, paths)
        self._chains = Chains(threads, barriers, paths, rings.once)
        self._sync_points = SyncPoints(c for m in barriers.at.values() if (c := m.sync_point) is not None)
        self._relations: dict[tuple[int, int], Relation] = {}
        self._pairs: dict[tuple[int, int], Pairs | None] = {}
        self._tables: dict[tuple[int, tuple[int, ...]], Table | None] = {}

    def check(self) -> Iterator[Obligation]:
        """Every pair of conflicting accesses: those that may race, one by one; or one obligation for all."""
        failed = False
        pairs = 0
        for buffer, uses in self.uses.by_buffer.items():
            writes = any(u.is_write for u in uses)
            if not writes:
                continue
            for i, a in enumerate(uses):
                for b in uses[i:]:
                    if a.conflicts_with(b):
                        pairs += 1
                        reason = self._pair(a, b)
                        if reason:
                            failed = True
                            yield self._obligation(buffer, a, b, reason)
        for one, two in overlapping(self.tree):
            for a in self.uses.by_buffer.get(one, []):
                for b in self.uses.by_buffer.get(two, []):
                    if a.conflicts_with(b):
                        pairs += 1
                        reason = self._pair(*((a, b) if a.number < b.number else (b, a)))
                        if reason:
                            failed = True
                            yield self._obligation(f"{one} and {two}", a, b, reason)
        if not failed:
            yield Obligation(Layer.ADDRESS, "races", Verdict.PROVED, f"{pairs} pairs of conflicting accesses are ordered or disjoint")

    def _obligation(self, subject: str, a: Use, b: Use, reason: str) -> Obligation:
        notes = tuple(
            f"{'write' if u.is_write else 'read'} of {u.text} by {u.engine.value}" + (f" in {u.node.role}" if u.node.role else "") + ": " + u.node.text
            for u in (a, b)
        )
        return Obligation(Layer.ADDRESS, subject, Verdict.OUTSIDE, reason, notes)

    # -- sections of rings ------------------------------------------------------------------------------------------------------------

    def _section(self, u: Use) -> Section | None:
        """That of the cursor in its index."""
        if u.number not in self._sections:
            found = ((k, *self._cursors[e.name]) for k, e in enumerate(u.index) if isinstance(e, Sym) and e.name in self._cursors)
            self._sections[u.number] = next(filter(None, (self._in(u, ring, end, axis) for axis, ring, end in found)), None)
        return self._sections[u.number]

    def _in(self, u: Use, ring: Ring, end: Endpoint, axis: int = -1) -> Section | None:
        return next((Section(ring, end, visit, axis) for visit in end.visits() if self._inside(u, end, visit)), None)

    def _pair_of_sections(self, a: Use, b: Use) -> tuple[Section | None, Section | None]:
        """Where two accesses lie in one ring, if they do: that of the cursors in their indices, or one of a single slot, whatever they are of.

        Who has the slot of a ring that has no other one is alone with all that belongs to it, by whatever index or name.
        """
        one, two = self._section(a), self._section(b)
        if a.memory is not MemoryType.Shared or (one is not None and two is not None and one.ring is two.ring):
            return one, two
        for ring in self._single:
            mine, theirs = self._within(a, ring), self._within(b, ring)
            if mine is not None and theirs is not None:
                return mine, theirs
        return one, two

    def _within(self, u: Use, ring: Ring) -> Section | None:
        """Where an access lies in a ring of one slot."""
        key = u.number, ring.full
        if key not in self._singles:
            self._singles[key] = next(filter(None, (self._in(u, ring, end) for end in ring.endpoints)), None)
        return self._singles[key]

    def _same_slot(self, a: Use, b: Use, one: Section, two: Section) -> bool:
        """True only if two accesses in a ring that have a byte in common are of one slot of it."""
        if one.ring in self._single:
            return True
        rows = self.uses.rows(a.buffer)
        return one.axis == two.axis and (a.buffer == b.buffer or (one.axis == 0 and rows is not None and rows == self.uses.rows(b.buffer)))

    def _inside(self, u: Use, end: Endpoint, visit: Visit) -> bool:
        """Its thread has waited for the position, and the position is released only after the access is done."""
        wait = visit.wait
        assert wait is not None
        n = u.node
        if not wait.number < n.number < visit.advance.number or n.loops[: len(wait.loops)] != wait.loops:
            return False
        split = self.threads.split(wait.conditions)
        if not set(split.uniform) <= set(n.conditions) or not self.threads.implies(u.context.conditions, end.threads, u.context):
            return False
        if isinstance(wait.stmt, Acquire) and (u.engine.is_async or not self.rings.slot_release.acquired(wait, n, end)):
            return False
        if u.engine is Engine.LOAD:
            return n in visit.arrivals
        if u.engine is Engine.COPY:
            return end.release == end.cursor and any(self._hands_over(u, a, end) for a in visit.arrivals)
        if u.engine is Engine.TENSOR:
            return self._read_released(u, Queue.WGMMA, end, visit)
        if u.engine is Engine.STORE:
            return self._read_released(u, Queue.BULK, end, visit)
        if end.release != end.cursor:
            return self._read_released(u, None, end, visit)
        return any(n.number < a.number and self._released(u, a, end) for a in visit.arrivals if not isinstance(a.stmt, (ArriveAsync, TmaLoad)))

    def _hands_over(self, u: Use, arrival: Node, end: Endpoint) -> bool:
        """An asynchronous copy is done before an arrival counts: one that waits for copies, or one past the wait_group of the copy by its issuer."""
        steps = self.paths.forward(u.node, arrival)
        if steps is None or isinstance(arrival.stmt, TmaLoad):
            return False
        if isinstance(arrival.stmt, ArriveAsync):
            return self._same_issuer(arrival, u)
        retired = self._retired(steps, Queue.COPY, u)
        return retired is not None and (self._arrives(u, arrival) or self.rings.slot_release.released(steps[retired].node, arrival, end))

    def _fenced(self, u: Use, section: Section) -> bool:
        """The writer of a slot fences its write, then arrives, or synchronizes with the thread that arrives for it."""
        for a in section.visit.arrivals:
            steps = self.paths.forward(u.node, a) or []
            if u.engine.queue is not None:  # it is a write of the thread from its wait_group on
                retired = self._retired(steps, u.engine.queue, u, reads=False)
                steps = [] if retired is None else steps[retired + 1 :]
            fence = next((s.node for s in steps if self._fences(s.node, u)), None)
            if (
                fence is not None
                and not isinstance(a.stmt, (ArriveAsync, TmaLoad))
                and (self._arrives(u, a) or self.rings.slot_release.released(fence, a, section.end))
            ):
                return True
        return False

    def _published(self, a: Use, b: Use, one: Section | None, two: Section | None) -> bool:
        """Uses of a slot by one end, at different positions: the ring orders them, and a generic write is fenced where an engine comes later."""
        sides = ((a, b, one), (b, a, two))
        return all(s is not None and self._fenced(x, s) for x, y, s in sides if _needs_fence(x, y))

    def _arrives(self, u: Use, arrival: Node) -> bool:
        """True only if the thread that makes an access also makes an arrival."""
        return self.threads.implies(u.context.conditions, self.threads.split(arrival.conditions).threads, u.context)

    def _released(self, u: Use, arrival: Node, end: Endpoint) -> bool:
        return self._arrives(u, arrival) or self.rings.slot_release.released(u.node, arrival, end)

    def _read_released(self, u: Use, queue: Queue | None, end: Endpoint, visit: Visit) -> bool:
        """A read of a slot is over before the slot is released.

        An asynchronous one is waited for: by the thread that issued it (bulk), or by each warp for itself (wgmma). Past that its own thread arrives, or a
        thread of each of these warps, or it synchronizes with one that arrives. A read of the thread itself (no queue) comes before its own
        arrival, or before such a barrier.
        """
        release_of = {v.wait: r for v, r in zip(end.visits(), visits(end.releases), strict=True)}
        release = release_of.get(visit.wait)
        if release is None:
            return False
        for a in release.releases:
            steps = self.paths.passed(u.node, a, release.lag if a in release.arrivals else 0)
            if steps is None:
                return False
            if queue is None:
                if not self._arrives(u, a) and not self.rings.slot_release.synchronized(steps, a, end):
                    return False
                continue
            retired = self._retired(steps, queue, u)
            if retired is None:
                return False
            by_warps = queue is Queue.WGMMA and self.threads.covers_warps(end.threads, self.threads.split(a.conditions).threads)
            if not (by_warps or self._arrives(u, a) or self.rings.slot_release.synchronized(steps[retired + 1 :], a, end)):
                return False
        return bool(release.arrivals)

    def _retired(self, steps: list[Step], queue: Queue, u: Use, *, reads: bool = True) -> int | None:
        """The step after which an operation issued at ``u`` is done (its source read, if ``reads``), or ``None``."""
        after = -1  # batches closed after the operation's own; -1: its own is open
        for k, s in enumerate(steps):
            match s.node.stmt:
                case Commit(queue=q) if q is queue and self._same_issuer(s.node, u):
                    after += 1
                case WaitGroup(queue=q, pending=n, read_only=read_only) if q is queue and self._same_issuer(s.node, u):
                    if after >= n and (reads or not read_only):
                        return k
                case _:
                    pass
        return None

    def _same_issuer(self, node: Node, u: Use) -> bool:
        """True only if the threads that issue an operation all execute a statement."""
        split = self.threads.split(node.conditions)
        return not split.varying and self.threads.implies(u.context.conditions, split.threads, u.context)

    # -- pairs ------------------------------------------------------------------------------------------------------------------------

    def _pair(self, a: Use, b: Use) -> str:
        """Why two accesses may race; empty if they do not."""
        if a.memory is MemoryType.Shared and not a.engine.is_async and not b.engine.is_async and self._sync_points.separate(a.node, b.node, pinned(a, b)):
            return ""
        reason, relation = self._conflict(a, b)
        if not reason or relation is None:
            return reason
        equal = frozenset(relation.equal)
        pairs = self._enumerated(a, b, equal) if equal >= BLOCKS else None
        if pairs is not None and (pairs.empty or (not a.engine.is_async and not b.engine.is_async and pairs.one_thread(equal))):
            return ""
        return "" if relation.excluded() or relation.apart(a, b) else reason

    def _relation(self, a: Use, b: Use) -> Relation:
        """What two accesses have in common: the same for all accesses at these two places, such as those of an unrolled loop's copies."""
        places = a.place, b.place
        found = self._relations.get(places)
        if found is None:
            found = self._relations[places] = Relation(a, b, self.threads)
        return found

    def _once(self, a: Use, b: Use) -> bool:
        """True only if in one iteration of their common loops one thread makes both in its own order, or they never touch one element."""
        same = frozenset(loop.stmt.var for loop in common_loops(a.node, b.node) if isinstance(loop.stmt, For))
        if not same:
            return False
        r = Relation(a, b, self.threads, same)
        generic = not a.engine.is_async and not b.engine.is_async
        return r.never or (generic and r.equal >= THREADS | BLOCKS)

    def _by_rings(self, a: Use, b: Use, equal: frozenset[str]) -> bool:
        """True only if one of two accesses of an element is over when a position of a ring completes, and the other one comes behind a wait for that."""
        return any(
            self._inside(x, ring.producer, visit) and self._ring_order.comes_first(ring, visit, x, y, equal)
            for x, y in ((a, b), (b, a))
            if not _needs_fence(x, y)
            for ring, visit in self._ring_order.positions(x.node)
        )

    def _enumerated(self, a: Use, b: Use, equal: frozenset[str]) -> Pairs | None:
        """Which threads may make the two; ``equal``: what their relation says."""
        places = a.place, b.place
        if places not in self._pairs:
            self._pairs[places] = Pairs.of(a, b, equal, self._tables)
        return self._pairs[places]

    def _conflict(self, a: Use, b: Use) -> tuple[str, Relation | None]:
        """Why two accesses may race, as far as digits and barriers tell."""
        one, two = self._pair_of_sections(a, b)
        if one is not None and two is not None and one.ring is two.ring and not share_ring(a, one.end, b, two.end):
            one = two = None
        if one is not None and two is not None and one.ring is two.ring and self._same_slot(a, b, one, two):
            producers = (one.end is one.ring.producer, two.end is two.ring.producer)
            if producers[0] is not producers[1]:
                if all(self._fenced(x, s) for x, y, s in ((a, b, one), (b, a, two)) if _needs_fence(x, y)):
                    return "", None
                return f"no {_fence(a)} stands between a write and the arrival that hands it to an asynchronous engine", None
        if a.is_remote or b.is_remote:
            return self._from_other_blocks(a, b, one, two), None
        r = self._relation(a, b)
        if r.never:
            return "", None
        equal = frozenset(r.equal)
        generic = not a.engine.is_async and not b.engine.is_async
        if generic and equal >= THREADS | BLOCKS:
            return "", None
        if a.memory is MemoryType.Global and a.engine.is_async and a is b and equal >= THREADS | BLOCKS:
            return self._again(a, equal), r
        if self._after_load(a, b, equal) or ((a.memory is MemoryType.Shared or equal >= BLOCKS) and self._chains.handed_over(a, b, self._over)):
            return "", None
        same_ring = one is not None and two is not None and one.end is two.end and self._same_slot(a, b, one, two)
        if same_ring and not self._published(a, b, one, two):
            same_ring = False
        same_position = same_ring and one is not None and two is not None and one.visit is two.visit
        loops = [loop for loop in common_loops(a.node, b.node) if isinstance(loop.stmt, For) and loop.stmt.var not in equal]
        buffered = self._multibuffers.pair(a, b)
        if buffered is not None and (self._tma_prefetch.position(a.node) or self._tma_prefetch.position(b.node)):
            return self._refilled(buffered, equal), r
        if a.node is b.node:
            one_load = a.engine is b.engine is Engine.LOAD and same_position and self.threads.at_most_one(a.context.conditions)
            if not one_load and (generic or not equal >= THREADS | BLOCKS) and not self._once(a, b):
                return "different threads may touch one element in one statement", r
        elif (same_position or not same_ring) and (buffered is None or buffered.same):
            steps = self.paths.forward(a.node, b.node)
            if steps is None:
                back = self.paths.forward(b.node, a.node)
                if back is None:
                    if not self._exclusive(a, b) and not self._once(a, b) and not self._by_rings(a, b, equal):
                        return "they stand in different arms, and nothing orders them", r
                elif (reason := self._unordered(back, b, a, equal)) and not self._once(a, b) and not self._by_rings(a, b, equal):
                    return f"{reason} in one iteration", r
            elif (reason := self._unordered(steps, a, b, equal)) and not self._once(a, b) and not self._by_rings(a, b, equal):
                return f"{reason} in one iteration", r
        if buffered is not None and not all(self._ordered(steps, x, y, equal) for x, y, steps, _ in buffered.later()):
            return f"nothing orders the uses of one of {buffered.ring.slots} slots at different positions of {buffered.ring.cursor}", r
        for loop in loops:
            if same_ring and self._advances(one, loop):
                continue
            if buffered is not None and buffered.ring.counts(loop):
                continue
            for x, y in ((a, b), (b, a)):
                if reason := self._unordered(self.paths.around(x.node, y.node, loop), x, y, equal):
                    assert isinstance(loop.stmt, For)
                    return f"{reason} in different iterations of the loop over {loop.stmt.var}", r
                if a is b:
                    break
        return "", None

    def _from_other_blocks(self, a: Use, b: Use, one: Section | None, two: Section | None) -> str:
        """Why copies from other blocks of the cluster may race with an access; empty if they are of one position of a ring, and land apart."""
        same = one is not None and two is not None and one.end is two.end and a.engine is b.engine is Engine.LOAD and a.buffer == b.buffer
        if not same or self._slot_axis(a) != 0 or self._slot_axis(b) != 0 or not all(self.threads.at_most_one(u.context.conditions) for u in (a, b)):
            return "other blocks of the cluster may write it at any time"
        assert one is not None
        assert two is not None
        once = all(u.node.loops == one.visit.advance.loops for u in (a, b))  # in a position
        if one.visit is two.visit and once and apart(self.rings.clusters, a, b, self.uses.shapes[a.buffer]):
            return ""
        return "copies from different blocks of the cluster may overlap"

    def _refilled(self, pair: PrivatePair, equal: frozenset[str]) -> str:
        """Why uses of a slot that bulk loads of its own role fill may race; empty if the ring orders them."""
        (a, b), (one, two) = pair.uses, pair.at
        loads = [u for u in pair.uses if self._tma_prefetch.position(u.node) is not None]
        for u, at in zip(pair.uses, pair.at, strict=True):
            if u in loads and self._tma_prefetch.position(u.node) != (pair.ring, at.count):
                return "a load completes at the barrier of another position than it writes"
        if len(loads) == 2:
            if not (isinstance(a.node.stmt, TmaLoad) and isinstance(b.node.stmt, TmaLoad) and a.node.stmt.barrier.name == b.node.stmt.barrier.name):
                return "two loads of one slot complete at different barriers"
            together = pair.same and not (a.node is b.node and a.node.loops == (pair.ring.block if one.inside else a.node.block).context.loops)
            return "two loads of one position may overlap" if together else ""
        (load,) = loads
        use, position = (b, two) if load is a else (a, one)
        if use.engine.is_async or not self._tma_prefetch.waited(load.node, use, position):
            return "the thread that accesses it has not waited for the load"
        for first, _, steps, distance in pair.later():
            if first is load and distance < 0:
                return "a load overwrites a slot that is still in use"
            if first is use and not self._ordered(steps, use, load, equal):
                return "nothing orders a use of a slot and the load that fills it again"
        return ""

    def _exclusive(self, a: Use, b: Use) -> bool:
        """Two arms never run in one iteration: a condition that all threads agree on decides."""
        for x, y in zip(a.node.path, b.node.path, strict=False):
            if x is y:
                continue
            break
        one, two = set(a.context.conditions), set(b.context.conditions)
        mine = [c for c in one - two if c.free.isdisjoint(THREADS) and c.free.isdisjoint(BLOCKS)]
        theirs = [c for c in two - one if c.free.isdisjoint(THREADS) and c.free.isdisjoint(BLOCKS)]
        loops = [n for n in common_loops(a.node, b.node)]
        names = {n.stmt.var for n in loops if isinstance(n.stmt, For)} | self.threads.launch
        mine, theirs = [c for c in mine if c.free <= names], [c for c in theirs if c.free <= names]
        ranges = self.threads.context.ranges.under_all(mine)
        return any(ranges.refutes(c) for c in theirs)

    def _slot_axis(self, u: Use) -> int:
        return next((k for k, e in enumerate(u.index) if e is not None and str(e) in self._cursors), -1)

    def _advances(self, section: Section | None, loop: Node) -> bool:
        """True if different iterations of a loop are different positions."""
        assert section is not None
        return loop in section.visit.advance.loops

    # -- order --------------------------------------------------------------------------------------------------------------------------

    def _unordered(self, steps: list[Step], a: Use, b: Use, equal: frozenset[str]) -> str:
        """What is missing between ``a`` and a later ``b``; empty if they are ordered."""
        if self._ordered(steps, a, b, equal):
            return ""
        fence = self._ordered(steps, a, b, equal, fenced=False)
        return f"an engine sees a write, and no {_fence(a)} of the writer stands between them" if fence else "nothing orders them"

    def _ordered(self, steps: list[Step], a: Use, b: Use, equal: frozenset[str], *, fenced: bool = True) -> bool:
        """True if what stands between ``a`` and a later ``b`` orders them: a wait_group of ``a``, a fence for ``b``, a barrier of both, in that order.

        Args:
            fenced: false: but for the fence.
        """
        same = equal >= THREADS | BLOCKS
        if same and b.engine is a.engine and a.engine.queue is not None and self._retired(steps, a.engine.queue, a, reads=not a.is_write) is not None:
            return True
        start = self._over(steps, a, b, fenced=fenced and not (same and a.engine.is_async_proxy))
        if start is None:
            return False
        if same and (not a.engine.is_async_proxy or self._one_thread(a)):
            return True
        shared = tuple(c for c in a.context.conditions if c in b.context.conditions)
        common = _common_conditions(a.node, b.node)
        for s in steps[start:]:
            m = self.barriers.at.get(s.node)
            if m is not None and self._joins(m, s, a, b, common, shared, equal):
                return True
        return a.memory is MemoryType.Global and self._chains.across_blocks(steps[start:], a, b, common)

    def _over(self, steps: list[Step], a: Use, b: Use, *, fenced: bool = True) -> int | None:
        """How many statements are passed until ``a`` is over, and can be seen by ``b``: a wait_group, and a fence if one is required. ``None``: never."""
        start = 0
        if a.engine.is_async:
            found = None if a.engine.queue is None else self._retired(steps, a.engine.queue, a, reads=not a.is_write)
            if found is None:
                return None
            start = found + 1
        if fenced and _needs_fence(a, b):
            fence = next((k for k, s in enumerate(steps) if k >= start and self._fences(s.node, a)), None)
            return None if fence is None else fence + 1
        return start

    def _fences(self, node: Node, u: Use) -> bool:
        """True only if the accessing thread executes a proxy fence there, for the memory of the access."""
        return isinstance(node.stmt, FenceProxyAsync) and node.stmt.memory is u.memory and self._same_issuer(node, u)

    def _one_thread(self, u: Use) -> bool:
        return self.threads.at_most_one(u.context.conditions)

    def _joins(self, m: BarrierSite, step: Step, a: Use, b: Use, common: set[Expr], shared: tuple[Expr, ...], equal: frozenset[str]) -> bool:
        """True if both threads reach a barrier, and it synchronizes them with each other."""
        allowed = set(a.node.conditions) if step.region is Region.AFTER else set(b.node.conditions) if step.region is Region.BEFORE else common
        for c in m.uniform:
            if c not in allowed and c not in step.given:
                return False
            if m.scope is BarrierScope.GRID and not c.free.isdisjoint(BLOCKS) and not (c in a.node.conditions and c in b.node.conditions):
                return False
        for u in (a, b):
            if not self.threads.implies(u.context.conditions, m.participants, u.context):
                return False
        return ordered_by(m, shared, equal, lambda: self._enumerated(a, b, equal), self.threads)

    def _after_load(self, a: Use, b: Use, equal: frozenset[str]) -> bool:
        """A load that completes a barrier of its block once, and an access of a thread of that block that has waited for it."""
        if a.memory is MemoryType.Global and not equal >= BLOCKS:
            return False
        for x, y in ((a, b), (b, a)):
            shot = self.rings.once.get(x.node)
            if x.engine is not Engine.LOAD or shot is None:
                continue
            if y is x and self.threads.at_most_one(x.context.conditions):
                return True
            steps = self.paths.from_start(y.node)
            if any(isinstance(s.node.stmt, Wait) and self.rings.once.get(s.node) == shot and self._same_issuer(s.node, y) for s in steps):
                return True
        return False

    def _again(self, a: Use, equal: frozenset[str]) -> str:
        """A bulk store that may overlap an earlier one of the same thread: their order is open."""
        for loop in common_loops(a.node, a.node):
            assert isinstance(loop.stmt, For)
            if loop.stmt.var not in equal and not self._ordered(self.paths.around(a.node, a.node, loop), a, a, equal):
                return f"stores of different iterations of the loop over {loop.stmt.var} may overlap"
        return ""

    # -- the end --------------------------------------------------------------------------------------------------------------------------

    def retired_at_exit(self) -> list[Obligation]:
        """Every store and wgmma is waited for by its issuer before it exits, and so is every copy that no arrival in a ring waits for."""
        found: list[Obligation] = []
        for u in self.uses.all:
            queue = u.engine.queue
            if queue is None or (queue is Queue.COPY and (not u.is_write or self._section(u) is not None or self._chains.awaited(u))):
                continue
            if self._retired(self.paths.to_end(u.node), queue, u, reads=u.engine is Engine.TENSOR or not u.is_write) is None:
                found.append(Obligation(Layer.ORDER, u.node.text, Verdict.OUTSIDE, "no wait covers it: the thread may exit before it completes"))
        return found


def _needs_fence(a: Use, b: Use) -> bool:
    """True if ``b`` sees ``a`` past a proxy fence alone: a write by the generic proxy, or one of an engine to Global memory, for another thread's engine."""
    return a.is_write and b.engine.is_async_proxy and (a.memory is MemoryType.Global or not a.engine.is_async_proxy)


def _fence(u: Use) -> str:
    return f"FENCE {MEDIA[u.memory].fence}"


def _common_conditions(a: Node, b: Node) -> set[Expr]:
    """What holds in the innermost block around both."""
    found: set[Expr] = set()
    for x, y in zip(a.path, b.path, strict=False):
        found = set(x.block.context.conditions) if x.block is y.block else found
        if x is not y:
            break
    return found
