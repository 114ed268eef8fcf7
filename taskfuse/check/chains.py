"""Order through several barriers: a grid or cluster barrier between block barriers, and mbarriers that complete once.

Some threads of each block synchronize at a barrier of the grid, or of the cluster. What another thread did precedes it if a block barrier synchronized the
two in between, and what a thread does follows it if a block barrier synchronizes the two afterwards: order is transitive.

An mbarrier that completes once has all its arrivals in one phase. What a thread did before it arrived, or before a barrier with a thread that then
arrived, precedes what a thread does after it waited, or after a barrier with a thread that had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from taskfuse.check.accesses import Engine, Use
from taskfuse.check.barriers import Barriers, BarrierSite
from taskfuse.check.paths import PathRegion, Paths, PathStep
from taskfuse.check.rings import Shot
from taskfuse.check.statement_tree import BLOCKS, SAME_CLUSTER, THREADS, Conditions, Node
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import Expr
from taskfuse.kir.synchronization import Arrive, ArriveAsync, BarrierScope, Expect, Wait

Done = Callable[[list[PathStep], Use, Use], int | None]
"""The number of statements passed until an access is complete and visible to another one; ``None``: never."""


class Chains:
    """Questions about accesses of one kernel.

    Args:
        once: the mbarrier that completes once, for each statement that uses one.
    """

    def __init__(self, threads: Threads, barriers: Barriers, paths: Paths, once: Mapping[Node, Shot]) -> None:
        self.threads = threads
        self.barriers = barriers
        self.paths = paths
        self._scopes = {m.scope for m in barriers.at.values()}
        self._once = once
        self._arrivals: dict[Shot, list[Node]] = {}
        self._awaited: set[Shot] = set()
        for n, shot in once.items():
            if isinstance(n.stmt, (Arrive, ArriveAsync, Expect)):
                self._arrivals.setdefault(shot, []).append(n)
            elif isinstance(n.stmt, Wait) and threads.at_least_one(threads.split(n.conditions).threads):
                self._awaited.add(shot)
        self._waits: dict[tuple[Node, Conditions], frozenset[Shot]] = {}

    # -- across blocks ------------------------------------------------------------------------------------------------------------------

    def across_blocks(self, steps: list[PathStep], a: Use, b: Use, common: set[Expr], equal: frozenset[str]) -> bool:
        """True only if a barrier of several blocks stands between ``a``, which is complete, and ``b``, and both synchronize with its participants."""
        scopes = self._scopes & {BarrierScope.GRID, *((BarrierScope.CLUSTER,) if SAME_CLUSTER in equal else ())}
        if not scopes:
            return False
        met = [(s, m) for s in steps if (m := self.barriers.at.get(s.node)) is not None]
        for k, (s, m) in enumerate(met):
            if m.scope in scopes and self._holds(m, s, a, b, common, (a, b)) and self.threads.at_least_one(m.participants):
                before = any(self._tells(a, m, n) for t, n in met[:k] if self._holds(n, t, a, b, common, (a,)))
                after = any(self._tells(b, m, n) for t, n in met[k + 1 :] if self._holds(n, t, a, b, common, (b,)))
                if (before or self._takes_part(a, m)) and (after or self._takes_part(b, m)):
                    return True
        return False

    def _holds(self, m: BarrierSite, step: PathStep, a: Use, b: Use, common: set[Expr], blocks: tuple[Use, ...]) -> bool:
        """True only if the conditions around a barrier hold, those on the block in the blocks of some accesses."""
        allowed = set(a.node.conditions) if step.region is PathRegion.AFTER else set(b.node.conditions) if step.region is PathRegion.BEFORE else common
        return all((c in allowed or c in step.given) and (c.free.isdisjoint(BLOCKS) or all(c in u.node.conditions for u in blocks)) for c in m.uniform)

    def _takes_part(self, u: Use, m: BarrierSite) -> bool:
        return self.threads.implies(u.context.conditions, m.participants, u.context)

    def _tells(self, u: Use, wide: BarrierSite, m: BarrierSite) -> bool:
        """True only if the accessing thread synchronizes with the participants of a barrier of several blocks at one of its block."""
        match m.scope:
            case BarrierScope.BLOCK:
                of_all = True
            case BarrierScope.NAMED:
                of_all = m.id is not None and m.id.free.isdisjoint(THREADS)
            case BarrierScope.WARP:
                of_all = self.threads.one_warp(m.participants, m.node.context, frozenset())
            case _:
                of_all = False
        return of_all and self._takes_part(u, m) and self.threads.implies(wide.participants, m.participants)

    # -- mbarriers that complete once ---------------------------------------------------------------------------------------------------

    def handed_over(self, a: Use, b: Use, done: Done) -> bool:
        """True only if an mbarrier that completes once orders two accesses of one block, in either order."""
        return any(self._arrives(x, y, shot, done) for x, y in ((a, b), (b, a)) for shot in self.waited(y)) if self._arrivals else False

    def awaited(self, u: Use) -> bool:
        """True only if an asynchronous copy is complete when such an mbarrier, for which some thread waits, completes."""
        return any(isinstance(r.stmt, ArriveAsync) and self._follows(u, r) for shot in self._awaited for r in self._arrivals.get(shot, ()))

    def waited(self, u: Use) -> frozenset[Shot]:
        """The mbarriers for which the accessing thread has waited, or synchronized with one that has."""
        key = u.node, u.context.conditions
        if key not in self._waits:
            steps = self.paths.from_start(u.node)
            found: set[Shot] = set()
            for k, s in enumerate(steps):
                shot = self._once.get(s.node)
                if isinstance(s.node.stmt, Wait) and shot in self._arrivals:
                    who = self.threads.split(s.node.conditions).threads
                    direct = self.threads.implies(u.context.conditions, who, u.context)
                    if direct or self._synchronized(u, steps[k + 1 :], who):
                        found.add(shot)
            self._waits[key] = frozenset(found)
        return self._waits[key]

    def _arrives(self, x: Use, y: Use, shot: Shot, done: Done) -> bool:
        """True only if what ``x`` does is over, and seen by ``y``, when the thread that made it arrives, or one that has synchronized with that thread."""
        for r in self._arrivals[shot]:
            if isinstance(r.stmt, ArriveAsync):
                if not y.engine.is_async_proxy and self._follows(x, r):
                    return True
                continue
            steps = self.paths.forward(x.node, r)
            start = None if steps is None else done(steps, x, y)
            if steps is None or start is None:
                continue
            who = self.threads.split(r.conditions).threads
            if self.threads.implies(x.context.conditions, who, x.context) or self._synchronized(x, steps[start:], who):
                return True
        return False

    def _follows(self, u: Use, arrival: Node) -> bool:
        """True only if an asynchronous copy is one of those after which an arrival counts."""
        who = self.threads.split(arrival.conditions).threads
        return u.engine is Engine.COPY and self.paths.forward(u.node, arrival) is not None and self.threads.implies(u.context.conditions, who, u.context)

    def _synchronized(self, u: Use, steps: list[PathStep], who: Conditions) -> bool:
        """True only if a statement that the accessing thread passes synchronizes it with one of some threads, of which there is one."""
        if not self.threads.at_least_one(who):
            return False
        mine = self.threads.split(u.node.conditions).threads
        for s in steps:
            m = self.barriers.at.get(s.node)
            if m is None or m.uniform or not self._takes_part(u, m) or not self.threads.implies(who, m.participants):
                continue
            if m.scope is BarrierScope.BLOCK or (m.scope is BarrierScope.WARP and self.threads.covers_warps(mine, who)):
                return True
        return False
