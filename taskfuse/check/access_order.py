"""The order of two accesses: one completes before the other begins, on every path between them.

A barrier of both threads must be between them. Asynchronous accesses begin when they are issued and end at a wait_group; a generic write that an
engine then reads needs a proxy fence by its writer.
"""

from __future__ import annotations

from taskfuse.check.accesses import Engine, Use
from taskfuse.check.barriers import Barriers, BarrierSite, ordered_by
from taskfuse.check.chains import Chains
from taskfuse.check.enumeration import AccessTable, Pairs
from taskfuse.check.paths import PathRegion, Paths, PathStep, common_loops
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node
from taskfuse.check.threads import Threads
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Expr
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import For
from taskfuse.kir.operands import Queue
from taskfuse.kir.synchronization import BarrierScope, Commit, FenceProxyAsync, WaitGroup


class AccessOrder:
    """The order that barriers, wait_groups and fences establish in one kernel."""

    def __init__(self, threads: Threads, barriers: Barriers, rings: Rings, paths: Paths) -> None:
        self.chains = Chains(threads, barriers, paths, rings.once)
        self._threads = threads
        self._barriers = barriers
        self._rings = rings
        self._paths = paths
        self._known: dict[tuple[int, int], Pairs | None] = {}
        self._tables: dict[tuple[int, tuple[int, ...]], AccessTable | None] = {}

    def missing(self, steps: list[PathStep], a: Use, b: Use, equal: frozenset[str]) -> str:
        """The synchronization that is missing between ``a`` and a later ``b``; empty if they are ordered."""
        if self.ordered(steps, a, b, equal):
            return ""
        fence = self.ordered(steps, a, b, equal, fenced=False)
        return f"an engine sees a write, and no {fence_text(a)} of the writer stands between them" if fence else "nothing orders them"

    def ordered(self, steps: list[PathStep], a: Use, b: Use, equal: frozenset[str], *, fenced: bool = True) -> bool:
        """True if the synchronization between ``a`` and a later ``b`` orders them: a wait_group of ``a``, a fence for ``b``, a barrier of both, in that order.

        Args:
            fenced: false: without the fence.
        """
        same = equal >= THREADS | BLOCKS
        if same and b.engine is a.engine and a.engine.queue is not None and self.waited_for(steps, a.engine.queue, a, reads=not a.is_write) is not None:
            return True
        start = self.over(steps, a, b, fenced=fenced and not (same and a.engine.is_async_proxy))
        if start is None:
            return False
        if same and (not a.engine.is_async_proxy or self._one_thread(a)):
            return True
        shared = tuple(c for c in a.context.conditions if c in b.context.conditions)
        common = common_conditions(a.node, b.node)
        for s in steps[start:]:
            m = self._barriers.at.get(s.node)
            if m is not None and self._joins(m, s, a, b, common, shared, equal):
                return True
        return MEDIA[a.memory].reach is not Reach.BLOCK and self.chains.across_blocks(steps[start:], a, b, common, equal)

    def over(self, steps: list[PathStep], a: Use, b: Use, *, fenced: bool = True) -> int | None:
        """The number of statements passed until ``a`` is complete and visible to ``b``: after a wait_group, and a fence if required. ``None``: never."""
        start = 0
        if a.engine.is_async:
            found = None if a.engine.queue is None else self.waited_for(steps, a.engine.queue, a, reads=not a.is_write)
            if found is None:
                return None
            start = found + 1
        if fenced and needs_fence(a, b):
            fence = next((k for k, s in enumerate(steps) if k >= start and self.fences(s.node, a)), None)
            return None if fence is None else fence + 1
        return start

    def fences(self, node: Node, u: Use) -> bool:
        """True only if the accessing thread executes a proxy fence there, for the memory of the access."""
        return isinstance(node.stmt, FenceProxyAsync) and node.stmt.memory is u.memory and self.same_issuer(node, u)

    def _one_thread(self, u: Use) -> bool:
        return self._threads.at_most_one(u.context.conditions)

    def _joins(self, m: BarrierSite, step: PathStep, a: Use, b: Use, common: set[Expr], shared: tuple[Expr, ...], equal: frozenset[str]) -> bool:
        """True if both threads reach a barrier, and it synchronizes them with each other."""
        allowed = set(a.node.conditions) if step.region is PathRegion.AFTER else set(b.node.conditions) if step.region is PathRegion.BEFORE else common
        for c in m.uniform:
            if c not in allowed and c not in step.given:
                return False
            if m.scope is BarrierScope.GRID and not c.free.isdisjoint(BLOCKS) and not (c in a.node.conditions and c in b.node.conditions):
                return False
        for u in (a, b):
            if not self._threads.implies(u.context.conditions, m.participants, u.context):
                return False
        return ordered_by(m, shared, equal, lambda: self.pairs(a, b, equal), self._threads)

    def pairs(self, a: Use, b: Use, equal: frozenset[str]) -> Pairs | None:
        """The pairs of threads that may make the two accesses; ``equal``: the equalities of their relation."""
        places = a.place, b.place
        if places not in self._known:
            self._known[places] = Pairs.of(a, b, equal, self._tables)
        return self._known[places]

    def after_load(self, a: Use, b: Use, equal: frozenset[str]) -> bool:
        """A load that completes a barrier of its block once, and an access of a thread of that block that has waited for it, or met one that has."""
        if a.memory is MemoryType.Global and not equal >= BLOCKS:
            return False
        for x, y in ((a, b), (b, a)):
            shot = self._rings.once.get(x.node)
            if x.engine is not Engine.LOAD or shot is None:
                continue
            if y is x and self._threads.at_most_one(x.context.conditions):
                return True
            if shot in self.chains.waited(y):
                return True
        return False

    def overlapping_stores(self, a: Use, equal: frozenset[str]) -> str:
        """A bulk store that may overlap an earlier one of the same thread: the two are not ordered."""
        for loop in common_loops(a.node, a.node):
            assert isinstance(loop.stmt, For)
            if loop.stmt.var not in equal and not self.ordered(self._paths.around(a.node, a.node, loop), a, a, equal):
                return f"stores of different iterations of the loop over {loop.stmt.var} may overlap"
        return ""

    def waited_for(self, steps: list[PathStep], queue: Queue, u: Use, *, reads: bool = True) -> int | None:
        """The step after which an operation issued at ``u`` is done (its source read, if ``reads``), or ``None``."""
        after = -1  # batches closed after the operation's own; -1: its own is open
        for k, s in enumerate(steps):
            match s.node.stmt:
                case Commit(queue=q) if q is queue and self.same_issuer(s.node, u):
                    after += 1
                case WaitGroup(queue=q, pending=n, read_only=read_only) if q is queue and self.same_issuer(s.node, u):
                    if after >= n and (reads or not read_only):
                        return k
                case _:
                    pass
        return None

    def same_issuer(self, node: Node, u: Use) -> bool:
        """True only if the threads that issue an operation all execute a statement, in their blocks: that of the other access may be another one."""
        split = self._threads.split(node.conditions)
        of_blocks = tuple(c for c in split.uniform if not c.free.isdisjoint(BLOCKS))
        return not split.varying and self._threads.implies(u.context.conditions, (*split.threads, *of_blocks), u.context)


def needs_fence(a: Use, b: Use) -> bool:
    """True if ``b`` sees ``a`` only after a proxy fence: a write by the generic proxy, or one of an engine to Global memory, for another thread's engine."""
    return a.is_write and b.engine.is_async_proxy and (a.memory is MemoryType.Global or not a.engine.is_async_proxy)


def fence_text(u: Use) -> str:
    """The fence that makes a write visible to engines."""
    return f"FENCE {MEDIA[u.memory].fence}"


def common_conditions(a: Node, b: Node) -> set[Expr]:
    """The conditions of the innermost block around both."""
    found: set[Expr] = set()
    for x, y in zip(a.path, b.path, strict=False):
        found = set(x.block.context.conditions) if x.block is y.block else found
        if x is not y:
            break
    return found
