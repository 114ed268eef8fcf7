"""Sections of rings: between the wait and the release of a position, its owner has exclusive access to the slot."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.check.access_order import AccessOrder, needs_fence
from taskfuse.check.accesses import Engine, Use, Uses
from taskfuse.check.endpoints import Endpoint, Ring
from taskfuse.check.paths import Paths
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import Node
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import Visit, visits
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Sym
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import Acquire, Arrive, ArriveAsync, Cursor, MbarrierScope, Wait


@dataclass(frozen=True, slots=True)
class Section:
    """The place of an access in a ring: the end, and the position in the text. ``axis``: of its index, the slot's; -1: none."""

    ring: Ring
    end: Endpoint
    visit: Visit
    axis: int = -1

    @property
    def is_of_block(self) -> bool:
        """True if the ring has mbarriers, which lie in Shared memory: each block has its own."""
        return self.visit.wait is not None and isinstance(self.visit.wait.stmt, Wait)


class Sections:
    """The sections of the rings of one kernel, and the accesses inside them."""

    def __init__(self, threads: Threads, rings: Rings, paths: Paths, uses: Uses, order: AccessOrder) -> None:
        self._threads = threads
        self._rings = rings
        self._paths = paths
        self._uses = uses
        self._order = order
        self._sections: dict[int, Section | None] = {}
        self._singles: dict[tuple[int, str], Section | None] = {}
        self._single = [r for r in rings.rings if r.slots == 1 and any(isinstance(v.wait.stmt, Wait) for v in r.producer.visits() if v.wait is not None)]
        self._cursors = {Cursor(e.cursor).slot.name: (ring, e) for ring in rings.rings for e in ring.endpoints}

    def section(self, u: Use) -> Section | None:
        """The section of the cursor in an access's index; ``None`` in memory of other blocks, which have other rings."""
        if MEDIA[u.memory].is_by_rank:
            return None
        if u.number not in self._sections:
            found = ((k, *self._cursors[e.name]) for k, e in enumerate(u.index) if isinstance(e, Sym) and e.name in self._cursors)
            self._sections[u.number] = next(filter(None, (self._in(u, ring, end, axis) for axis, ring, end in found)), None)
        return self._sections[u.number]

    def pair(self, a: Use, b: Use) -> tuple[Section | None, Section | None]:
        """The sections of two accesses in one ring, if they have any: those of the cursors in their indices, or of a ring with a single slot, whatever the
        buffers.

        The owner of the slot of a ring with one slot has exclusive access to all buffers of that ring, under any index or name.
        """
        one, two = self.section(a), self.section(b)
        if a.memory is not MemoryType.Shared or (one is not None and two is not None and one.ring is two.ring):
            return one, two
        for ring in self._single:
            mine, theirs = self._within(a, ring), self._within(b, ring)
            if mine is not None and theirs is not None:
                return mine, theirs
        return one, two

    def same_slot(self, a: Use, b: Use, one: Section, two: Section) -> bool:
        """True only if two accesses in a ring that share a byte belong to one slot."""
        if one.ring in self._single:
            return True
        rows = self._uses.rows(a.buffer)
        return one.axis == two.axis and (a.buffer == b.buffer or (one.axis == 0 and rows is not None and rows == self._uses.rows(b.buffer)))

    def slot_axis(self, u: Use) -> int:
        return next((k for k, e in enumerate(u.index) if e is not None and str(e) in self._cursors), -1)

    def fenced(self, u: Use, section: Section) -> bool:
        """The writer of a slot fences its write, then arrives, or synchronizes with the thread that arrives for it."""
        for a in section.visit.arrivals:
            steps = self._paths.forward(u.node, a) or []
            if u.engine.queue is not None:  # it is a write of the thread from its wait_group on
                waited = self._order.waited_for(steps, u.engine.queue, u, reads=False)
                steps = [] if waited is None else steps[waited + 1 :]
            fence = next((s.node for s in steps if self._order.fences(s.node, u)), None)
            if (
                fence is not None
                and not isinstance(a.stmt, (ArriveAsync, TmaLoad))
                and (self._arrives(u, a) or self._rings.slot_release.released(fence, a, section.end))
            ):
                return True
        return False

    def is_published(self, ring: Ring) -> bool:
        """True only if what the consumers of a ring across blocks have written precedes what its producers in all these blocks do after their wait."""
        gives = (a.stmt for e in ring.consumers for v in visits(e.releases) for a in v.releases)
        waits = (v.wait.stmt for v in ring.producer.visits() if v.wait is not None)
        return all(isinstance(s, (Arrive, Wait)) and s.scope is MbarrierScope.CLUSTER for s in (*gives, *waits))

    def published(self, a: Use, b: Use, one: Section | None, two: Section | None) -> bool:
        """Uses of a slot by one end, at different positions: the ring orders them, and a generic write is fenced before a later engine's access."""
        sides = ((a, b, one), (b, a, two))
        return all(s is not None and self.fenced(x, s) for x, y, s in sides if needs_fence(x, y))

    def _in(self, u: Use, ring: Ring, end: Endpoint, axis: int = -1) -> Section | None:
        return next((Section(ring, end, visit, axis) for visit in end.visits() if self.inside(u, end, visit)), None)

    def _within(self, u: Use, ring: Ring) -> Section | None:
        """Where an access lies in a ring of one slot."""
        key = u.number, ring.full
        if key not in self._singles:
            self._singles[key] = next(filter(None, (self._in(u, ring, end) for end in ring.endpoints)), None)
        return self._singles[key]

    def inside(self, u: Use, end: Endpoint, visit: Visit) -> bool:
        """Its thread has waited for the position, and the position is released only after the access is done."""
        wait = visit.wait
        assert wait is not None
        n = u.node
        if not wait.number < n.number < visit.advance.number or n.loops[: len(wait.loops)] != wait.loops:
            return False
        split = self._threads.split(wait.conditions)
        if not set(split.uniform) <= set(n.conditions) or not self._threads.implies(u.context.conditions, end.threads, u.context):
            return False
        if isinstance(wait.stmt, Acquire) and (u.engine.is_async or not self._rings.slot_release.acquired(wait, n, end)):
            return False
        if u.engine is Engine.LOAD:  # of its reads for other blocks, their barriers tell
            return n in visit.arrivals and (u.is_write or not (isinstance(n.stmt, TmaLoad) and n.stmt.across))
        if u.engine is Engine.COPY:
            return end.release == end.cursor and any(self._hands_over(u, a, end) for a in visit.arrivals)
        if u.engine is Engine.TENSOR:
            return self._is_over(u, Queue.WGMMA, end, visit)
        if u.engine is Engine.STORE:
            return self._is_over(u, Queue.BULK, end, visit)
        if end.release != end.cursor:
            return self._is_over(u, None, end, visit)
        return any(n.number < a.number and self._released(u, a, end) for a in visit.arrivals if not isinstance(a.stmt, (ArriveAsync, TmaLoad)))

    def _hands_over(self, u: Use, arrival: Node, end: Endpoint) -> bool:
        """An asynchronous copy is done before an arrival counts: one that waits for copies, or one past the wait_group of the copy by its issuer."""
        steps = self._paths.forward(u.node, arrival)
        if steps is None or isinstance(arrival.stmt, TmaLoad):
            return False
        if isinstance(arrival.stmt, ArriveAsync):
            return self._order.same_issuer(arrival, u)
        waited = self._order.waited_for(steps, Queue.COPY, u)
        return waited is not None and (self._arrives(u, arrival) or self._rings.slot_release.released(steps[waited].node, arrival, end))

    def _arrives(self, u: Use, arrival: Node) -> bool:
        """True only if the thread that makes an access also makes an arrival."""
        return self._threads.implies(u.context.conditions, self._threads.split(arrival.conditions).threads, u.context)

    def _released(self, u: Use, arrival: Node, end: Endpoint) -> bool:
        return self._arrives(u, arrival) or self._rings.slot_release.released(u.node, arrival, end)

    def _is_over(self, u: Use, queue: Queue | None, end: Endpoint, visit: Visit) -> bool:
        """An access of a slot is over before the slot is released.

        An asynchronous one is waited for: by the thread that issued it (bulk; a write of Global memory, too, and not its source alone), or by each warp for
        itself (wgmma). Past that its own thread arrives, or a thread of each of these warps, or it synchronizes with one that arrives. A read of the thread
        itself (no queue) comes before its own arrival, or before such a barrier.
        """
        release_of = {v.wait: r for v, r in zip(end.visits(), visits(end.releases), strict=True)}
        release = release_of.get(visit.wait)
        if release is None:
            return False
        for a in release.releases:
            steps = self._paths.passed(u.node, a, release.lag if a in release.arrivals else 0)
            if steps is None:
                return False
            if queue is None:
                if not self._arrives(u, a) and not self._rings.slot_release.synchronized(steps, a, end):
                    return False
                continue
            waited = self._order.waited_for(steps, queue, u, reads=not u.is_write)
            if waited is None:
                return False
            by_warps = queue is Queue.WGMMA and self._threads.covers_warps(end.threads, self._threads.split(a.conditions).threads)
            if not (by_warps or self._arrives(u, a) or self._rings.slot_release.synchronized(steps[waited + 1 :], a, end)):
                return False
        return bool(release.arrivals)
