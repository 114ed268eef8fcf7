"""Release of a slot: each thread that arrives at a position has waited for it, and other threads' accesses to the slot precede that arrival.

A thread of an endpoint either arrives itself, or a barrier synchronizes it with one that arrives, between its accesses to the slot and that arrival.
"""

from __future__ import annotations

from taskfuse.check.barriers import Barriers, BarrierSite
from taskfuse.check.endpoints import Endpoint
from taskfuse.check.known import together
from taskfuse.check.paths import Paths, PathStep
from taskfuse.check.statement_tree import THREADS, Conditions, Node
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import NotRing, Visit, visits
from taskfuse.ir.scalar import Expr
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.synchronization import BarrierScope


class SlotRelease:
    """Questions about the threads of endpoints and their arrivals."""

    def __init__(self, threads: Threads, barriers: Barriers, paths: Paths) -> None:
        self.threads = threads
        self.barriers = barriers
        self.paths = paths

    def check(self, e: Endpoint) -> None:
        """Each thread that arrives at a position has waited for it; each that waits arrives there, or synchronizes with one that then arrives."""
        for visit in (*visits(e.traversal), *(visits(e.releases) if e.release != e.cursor else ())):
            for a in visit.releases:
                if not self.has_waited(a, e):
                    raise NotRing("the threads that arrive at a position are not those that waited for it", a)
        for visit in visits(e.traversal):
            if not visit.arrivals or visit.wait is None:
                continue
            arrivals = [a for a in visit.arrivals if not isinstance(a.stmt, TmaLoad)]
            if not any(self.released(visit.wait, a, e, control=True) for a in arrivals):
                raise NotRing("threads that waited continue without synchronizing with the one that arrives for them", visit.wait, *arrivals[:1])
        if e.release != e.cursor:
            for visit, release in zip(visits(e.traversal), visits(e.releases), strict=True):
                for a in release.releases:
                    if not self._covered(visit, release, a, e):
                        raise NotRing("threads that waited are not synchronized with the one that arrives for them", a)

    def has_waited(self, node: Node, e: Endpoint) -> bool:
        """True only if all threads that execute a statement are among those that wait at an endpoint."""
        split = self.threads.split(node.conditions)
        return not split.varying and self.threads.implies(split.threads, e.threads)

    def _covered(self, visit: Visit, release: Visit, arrival: Node, e: Endpoint) -> bool:
        """True if every thread that waits synchronizes with one that arrives, or is in a converged warp with one, for a trailing release."""
        who = self.threads.split(arrival.conditions).threads
        if self.threads.same(who, e.threads):
            return True
        if not self.threads.implies(who, e.threads):
            return False
        assert visit.wait is not None
        steps = self.paths.passed(visit.wait, arrival, release.lag if arrival in release.arrivals else 0)
        if steps is None:
            return False
        return self.synchronized(steps, arrival, e) or (self.threads.covers_warps(e.threads, who) and any(self._together(s.node, e) for s in steps))

    def _together(self, node: Node, e: Endpoint) -> bool:
        """True for what all threads of an endpoint execute warp by warp."""
        if together(node.stmt):
            return self.threads.implies(e.threads, self.threads.split(node.conditions).threads)
        m = self.barriers.at.get(node)
        return m is not None and m.scope is BarrierScope.WARP and self.threads.implies(e.threads, m.participants)

    def released(self, x: Node, arrival: Node, e: Endpoint, *, control: bool = False) -> bool:
        """True only if a thread's access at ``x`` precedes the arrival.

        ``control``: it suffices that control has reached ``x``; instructions of a whole warp then serve as barriers.
        """
        who = self.threads.split(arrival.conditions).threads
        mine = self.threads.split(x.conditions).threads
        if self.threads.implies(tuple(dict.fromkeys((*mine, *e.threads))), who, None):
            return True
        steps = self.paths.forward(x, arrival)
        if steps is None:
            return False
        if control and any(self._together(s.node, e) for s in steps) and self.threads.implies(who, e.threads) and self.threads.covers_warps(e.threads, who):
            return True
        return self.synchronized(steps, arrival, e)

    def synchronized(self, steps: list[PathStep], arrival: Node, e: Endpoint) -> bool:
        """True only if one of the statements passed on the way to an arrival synchronizes with the threads that arrive."""
        who = self.threads.split(arrival.conditions).threads
        if not self.threads.implies(who, e.threads) or not self.threads.at_least_one(who):
            return False
        return any((m := self.barriers.at.get(s.node)) is not None and self._synchronizes(m, e, who) for s in steps)

    def acquired(self, wait: Node, x: Node, e: Endpoint) -> bool:
        """True only if a thread of the endpoint at ``x`` has waited, or synchronized with one that has: of rings between blocks."""
        who = self.threads.split(wait.conditions).threads
        if self.threads.implies(tuple(dict.fromkeys((*self.threads.split(x.conditions).threads, *e.threads))), who, None):
            return True
        steps = self.paths.forward(wait, x)
        if steps is None or not self.threads.implies(who, e.threads) or not self.threads.at_least_one(who):
            return False
        return any((m := self.barriers.at.get(s.node)) is not None and self._synchronizes(m, e, who) for s in steps)

    def covers(self, take: Node, give: Node, who: Conditions, index: Expr) -> bool:
        """True only if each thread that takes a turn synchronizes with the thread of its instance that passes it, before that."""
        arriving = self.threads.split(give.conditions).threads
        if self.threads.same(arriving, who):
            return True
        steps = self.paths.forward(take, give)
        if steps is None:
            return False
        return any(
            m.scope is BarrierScope.WARP and self.threads.implies(who, m.participants) and self.threads.covers_warps(who, arriving)
            for s in steps
            if (m := self.barriers.at.get(s.node)) is not None
        )

    def _synchronizes(self, m: BarrierSite, e: Endpoint, who: Conditions) -> bool:
        if not self.threads.implies(e.threads, m.participants):
            return False
        match m.scope:
            case BarrierScope.WARP:
                return self.threads.covers_warps(e.threads, who)
            case BarrierScope.BLOCK | BarrierScope.CLUSTER:
                return e.pingpong is None
            case BarrierScope.NAMED:
                return m.id is not None and (not m.id.free & THREADS or self.threads.covers_values(m.id, e.threads, who))
            case BarrierScope.GRID:
                return False
