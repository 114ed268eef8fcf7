"""No race: two conflicting accesses never touch one element, are made by one thread, or are ordered.

Ordered means: every path from one to the other passes a barrier of both threads, or a ring hands the slot over in between. Asynchronous accesses
begin when they are issued and end at a wait_group, or when the ring's barrier completes; a generic write that an engine then sees needs
the proxy fence of its writer.
"""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.access_order import AccessOrder, fence_text, needs_fence
from taskfuse.check.accesses import Engine, Use, Uses, overlapping
from taskfuse.check.barriers import Barriers
from taskfuse.check.endpoints import share_ring
from taskfuse.check.multibuffers import MultiBuffers, PrivatePair
from taskfuse.check.paths import Paths, SyncPoints, common_loops
from taskfuse.check.relation import Relation, pinned
from taskfuse.check.remote import apart
from taskfuse.check.ring_order import RingOrder
from taskfuse.check.ring_sections import Section, Sections
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.tma_prefetch import TmaPrefetch
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.operands import Queue
from taskfuse.reports.certificate import Layer, Obligation, Verdict

ONE_THREAD = THREADS | BLOCKS
"""What has one value in two accesses that one thread makes."""


class Races:
    """The address layer for one kernel."""

    def __init__(
        self, tree: StatementTree, threads: Threads, barriers: Barriers, rings: Rings, paths: Paths, multibuffers: MultiBuffers, prefetch: TmaPrefetch
    ) -> None:
        self.tree = tree
        self.threads = threads
        self.rings = rings
        self.paths = paths
        self.uses = Uses(tree)
        self._order = AccessOrder(threads, barriers, rings, paths)
        self._sections = Sections(threads, rings, paths, self.uses, self._order)
        self._ring_order = RingOrder(rings.rings, threads, paths)
        self._multibuffers = multibuffers
        self._tma_prefetch = prefetch
        self._sync_points = SyncPoints(c for m in barriers.at.values() if (c := m.sync_point) is not None)
        self._relations: dict[tuple[int, int, bool], Relation] = {}

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

    # -- pairs ------------------------------------------------------------------------------------------------------------------------

    def _pair(self, a: Use, b: Use) -> str:
        """Why two accesses may race; empty if they do not."""
        if a.memory is MemoryType.Shared and not a.engine.is_async and not b.engine.is_async and self._sync_points.separate(a.node, b.node, pinned(a, b)):
            return ""
        reason, relation = self._conflict(a, b)
        if not reason or relation is None:
            return reason
        equal = frozenset(relation.equal)
        pairs = self._order.pairs(a, b, equal) if equal >= BLOCKS else None
        if pairs is not None and (pairs.empty or (not a.engine.is_async and not b.engine.is_async and pairs.one_thread(equal))):
            return ""
        return "" if relation.excluded() or relation.apart(a, b) else reason

    def _relation(self, a: Use, b: Use) -> Relation:
        """The relation of two accesses: the same for all accesses at these two places, such as copies of an unrolled loop. Of generic ones, whether one thread
        makes both is asked first, which is enough."""
        generic = not a.engine.is_async and not b.engine.is_async
        places = a.place, b.place, generic
        found = self._relations.get(places)
        if found is None:
            found = self._relations[places] = Relation(a, b, self.threads, enough=ONE_THREAD if generic else None)
        return found

    def _once(self, a: Use, b: Use) -> bool:
        """True only if in one iteration of their common loops one thread makes both in its own order, or they never touch one element."""
        same = frozenset(loop.stmt.var for loop in common_loops(a.node, b.node) if isinstance(loop.stmt, For))
        if not same:
            return False
        generic = not a.engine.is_async and not b.engine.is_async
        r = Relation(a, b, self.threads, same, ONE_THREAD if generic else None)
        return r.never or (generic and r.equal >= ONE_THREAD)

    def _by_rings(self, a: Use, b: Use, equal: frozenset[str]) -> bool:
        """True only if one of two accesses of an element is over when a position of a ring completes, and the other one follows a wait for that."""
        return any(
            self._sections.inside(x, ring.producer, visit) and self._ring_order.comes_first(ring, visit, x, y, equal)
            for x, y in ((a, b), (b, a))
            if not needs_fence(x, y)
            for ring, visit in self._ring_order.positions(x.node)
        )

    def _conflict(self, a: Use, b: Use) -> tuple[str, Relation | None]:
        """Why two accesses may race, as far as digits and barriers tell."""
        one, two = self._sections.pair(a, b)
        if one is not None and two is not None and one.ring is two.ring and not self._of_one_ring(a, one, b, two):
            one = two = None
        if one is not None and two is not None and one.ring is two.ring and self._sections.same_slot(a, b, one, two):
            producers = (one.end is one.ring.producer, two.end is two.ring.producer)
            if producers[0] is not producers[1]:
                if (a.is_remote or b.is_remote) and any(u.is_write and not u.is_remote for u in (a, b)) and not self._sections.is_published(one.ring):
                    return "an arrival or a wait at the scope of a block orders no write before copies from other blocks of the cluster", None
                if all(self._sections.fenced(x, s) for x, y, s in ((a, b, one), (b, a, two)) if needs_fence(x, y)):
                    return "", None
                return f"no {fence_text(a)} stands between a write and the arrival that hands it to an asynchronous engine", None
        if a.is_remote or b.is_remote:
            return self._from_other_blocks(a, b, one, two), None
        r = self._relation(a, b)
        if r.never:
            return "", None
        equal = frozenset(r.equal)
        generic = not a.engine.is_async and not b.engine.is_async
        if generic and equal >= ONE_THREAD:
            return "", None
        if a.memory is MemoryType.Global and a.engine.is_async and a is b and equal >= ONE_THREAD:
            return self._order.overlapping_stores(a, equal), r
        if self._order.after_load(a, b, equal) or (
            (a.memory is MemoryType.Shared or equal >= BLOCKS) and self._order.chains.handed_over(a, b, self._order.over)
        ):
            return "", None
        same_ring = one is not None and two is not None and one.end is two.end and self._sections.same_slot(a, b, one, two)
        if same_ring and not self._sections.published(a, b, one, two):
            same_ring = False
        same_position = same_ring and one is not None and two is not None and one.visit is two.visit
        loops = [loop for loop in common_loops(a.node, b.node) if isinstance(loop.stmt, For) and loop.stmt.var not in equal]
        buffered = self._multibuffers.pair(a, b)
        if buffered is not None and (self._tma_prefetch.position(a.node) or self._tma_prefetch.position(b.node)):
            return self._refilled(buffered, equal), r
        if a.node is b.node:
            one_load = a.engine is b.engine is Engine.LOAD and same_position and self.threads.at_most_one(a.context.conditions)
            if not one_load and (generic or not equal >= ONE_THREAD) and not self._once(a, b):
                return "different threads may touch one element in one statement", r
        elif (same_position or not same_ring) and (buffered is None or buffered.same):
            steps = self.paths.forward(a.node, b.node)
            if steps is None:
                back = self.paths.forward(b.node, a.node)
                if back is None:
                    if not self._exclusive(a, b) and not self._once(a, b) and not self._by_rings(a, b, equal):
                        return "they stand in different arms, and nothing orders them", r
                elif (reason := self._order.missing(back, b, a, equal)) and not self._once(a, b) and not self._by_rings(a, b, equal):
                    return f"{reason} in one iteration", r
            elif (reason := self._order.missing(steps, a, b, equal)) and not self._once(a, b) and not self._by_rings(a, b, equal):
                return f"{reason} in one iteration", r
        if buffered is not None and not all(self._order.ordered(steps, x, y, equal) for x, y, steps, _ in buffered.later()):
            return f"nothing orders the uses of one of {buffered.ring.slots} slots at different positions of {buffered.ring.cursor}", r
        for loop in loops:
            if same_ring and self._advances(one, loop):
                continue
            if buffered is not None and buffered.ring.counts(loop):
                continue
            for x, y in ((a, b), (b, a)):
                if reason := self._order.missing(self.paths.around(x.node, y.node, loop), x, y, equal):
                    assert isinstance(loop.stmt, For)
                    return f"{reason} in different iterations of the loop over {loop.stmt.var}", r
                if a is b:
                    break
        return "", None

    def _of_one_ring(self, a: Use, one: Section, b: Use, two: Section) -> bool:
        """True only if accesses of one element, at two ends of a ring, are made by blocks of the same ring: one of mbarriers is its block's."""
        if one.is_of_block and MEDIA[a.memory].reach is not Reach.BLOCK:
            return frozenset(self._relation(a, b).equal) >= BLOCKS
        return share_ring(a, one.end, b, two.end)

    def _from_other_blocks(self, a: Use, b: Use, one: Section | None, two: Section | None) -> str:
        """Why copies from other blocks of the cluster may race with an access; empty if they are of one position of a ring, and land apart."""
        same = one is not None and two is not None and one.end is two.end and a.engine is b.engine is Engine.LOAD and a.buffer == b.buffer
        if (
            not same
            or self._sections.slot_axis(a) != 0
            or self._sections.slot_axis(b) != 0
            or not all(self.threads.at_most_one(u.context.conditions) for u in (a, b))
        ):
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
            around = pair.ring.block if one.inside or pair.ring.loop is None else pair.ring.loop
            together = pair.same and not (a.node is b.node and a.node.loops == around.context.loops)
            return "two loads of one position may overlap" if together else ""
        (load,) = loads
        use, position = (b, two) if load is a else (a, one)
        if use.engine.is_async or not self._tma_prefetch.waited(load.node, use, position):
            return "the thread that accesses it has not waited for the load"
        for first, _, steps, distance in pair.later():
            if first is load and distance < 0:
                return "a load overwrites a slot that is still in use"
            if first is use and not self._order.ordered(steps, use, load, equal):
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

    def _advances(self, section: Section | None, loop: Node) -> bool:
        """True if different iterations of a loop are different positions."""
        assert section is not None
        return loop in section.visit.advance.loops

    # -- the end --------------------------------------------------------------------------------------------------------------------------

    def waited_for_at_exit(self) -> list[Obligation]:
        """Every store and wgmma is waited for by its issuer before it exits, and so is every copy that no arrival in a ring waits for."""
        found: list[Obligation] = []
        for u in self.uses.all:
            queue = u.engine.queue
            if queue is None or (queue is Queue.COPY and (not u.is_write or self._sections.section(u) is not None or self._order.chains.awaited(u))):
                continue
            if self._order.waited_for(self.paths.to_end(u.node), queue, u, reads=u.engine is Engine.TENSOR or not u.is_write) is None:
                found.append(Obligation(Layer.ORDER, u.node.text, Verdict.OUTSIDE, "no wait covers it: the thread may exit before it completes"))
        return found
