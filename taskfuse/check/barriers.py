"""Barriers: block, warp, named, cluster and grid barriers, and mbarriers at which all participants arrive and wait.

A barrier is *well formed* if all its participants reach it equally often and in the same order. It then completes in every interleaving, and orders
what its participants did before it against what they do after it. This holds if the participants are a fixed set of threads (selected by
conditions on thread indices alone), everything else around the barrier is the same for all of them, and its count is their number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from taskfuse.check.clusters import Clusters
from taskfuse.check.enumeration import Pairs
from taskfuse.check.index_bounds import box_count
from taskfuse.check.paths import SyncPoint
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, SAME_CLUSTER, SAME_WARP, THREADS, Conditions, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import ZERO, Const, Expr, const, eq, prove, simplify
from taskfuse.ir.types import CLUSTER_TYPES
from taskfuse.kir.clusters import cluster_blocks
from taskfuse.kir.nodes import For, If, TmaLoad
from taskfuse.kir.synchronization import Advance, Arrive, ArriveAsync, Barrier, BarrierScope, Cursor, CursorInit, Expect, InitBarrier, MbarrierScope, Wait
from taskfuse.reports.certificate import Layer, Obligation, Verdict
from taskfuse.target import WARP


@dataclass(frozen=True, slots=True, eq=False)
class BarrierSite:
    """A barrier in the kernel: a place where threads synchronize.

    Attributes:
        node: the barrier, or the arrival of a pair of arrival and wait.
        scope: BLOCK also for such a pair: its participants are one group; CLUSTER for one whose arrivals reach all blocks of the cluster.
        participants: conditions on thread indices.
        uniform: the other conditions around it, on which all participants agree.
        id: of a named barrier, per thread.
    """

    node: Node
    scope: BarrierScope
    participants: Conditions
    uniform: Conditions
    id: Expr | None = None

    @property
    def sync_point(self) -> SyncPoint | None:
        """The indices on which threads of one block must agree to synchronize there; ``None`` if no few indices determine it."""
        match self.scope:
            case BarrierScope.BLOCK:
                everyone = isinstance(self.node.stmt, Barrier)  # a block barrier has all threads of the block
                return SyncPoint(self.node, frozenset(() if everyone else self.participants), frozenset())
            case BarrierScope.NAMED:
                assert self.id is not None
                return SyncPoint(self.node, frozenset(self.participants), self.id.free & THREADS)
            case _:
                return None


class Barriers:
    """The well-formed barriers of a kernel.

    Attributes:
        at: by node.
        mbarriers: names of the mbarriers at which all participants arrive and wait.
        obligations: the obligations about them.
    """

    def __init__(self, tree: StatementTree, threads: Threads) -> None:
        self.tree = tree
        self.threads = threads
        self.at: dict[Node, BarrierSite] = {}
        self.mbarriers: set[str] = set()
        self.obligations: list[Obligation] = []
        self._clusters = clusters = Clusters(tree)
        named: list[BarrierSite] = []
        counters: dict[str, list[BarrierSite]] = {}
        for node in tree.leaves():
            stmt = node.stmt
            if not isinstance(stmt, Barrier):
                continue
            site, reason = self._site(node, stmt)
            if site is None:
                self._fail(node, reason)
                continue
            match stmt.scope:
                case BarrierScope.BLOCK:
                    if not threads.everyone(site.participants):
                        self._fail(node, f"only threads with {_text(site.participants)} reach a barrier of the whole block")
                        continue
                case BarrierScope.CLUSTER:
                    reason = clusters.uneven(node, CLUSTER_TYPES)
                    if reason or not threads.everyone(site.participants):
                        self._fail(node, reason or f"only threads with {_text(site.participants)} reach a barrier of the whole cluster")
                        continue
                case BarrierScope.NAMED:
                    named.append(site)
                    continue
                case BarrierScope.GRID:
                    assert stmt.counter is not None
                    counters.setdefault(stmt.counter, []).append(site)
                    continue
                case BarrierScope.WARP:
                    if not threads.complete_warps(site.participants):
                        self._fail(node, f"only a part of a warp reaches a barrier of the whole warp: threads with {_text(site.participants)}")
                        continue
            self._hold(site)
        self._named(named)
        for name, barriers in counters.items():
            self._grid(name, barriers)
        self._pairs()

    def _hold(self, site: BarrierSite) -> None:
        self.at[site.node] = site

    def _fail(self, node: Node, reason: str, verdict: Verdict = Verdict.OUTSIDE) -> None:
        self.obligations.append(Obligation(Layer.ORDER, _subject(node), verdict, reason))

    def _site(self, node: Node, stmt: Barrier) -> tuple[BarrierSite | None, str]:
        split = self.threads.split(node.conditions)
        in_warp = stmt.scope is BarrierScope.WARP
        alike = self.threads.outer if in_warp else frozenset[str]()

        def same(e: Expr) -> bool:
            return in_warp and self.threads.one_value(e, WARP, alike)

        varying = apart(split.varying, alike, same)
        if varying:
            return None, f"the set of threads that reach it varies: {_text(varying)}"
        reason = uneven(node, grid=stmt.scope is BarrierScope.GRID, alike=alike, same=same)
        if reason:
            return None, reason
        return BarrierSite(node, stmt.scope, split.threads, (*split.uniform, *split.varying), stmt.id), ""

    # -- named barriers -------------------------------------------------------------------------------------------------------------

    def _named(self, barriers: list[BarrierSite]) -> None:
        """Each id belongs to one group of threads, whose number is the count of every barrier with it."""
        threads = self.threads
        checked: list[BarrierSite] = []
        for m in barriers:
            stmt = m.node.stmt
            assert isinstance(stmt, Barrier)
            assert m.id is not None
            reason = self._group(m, m.id, stmt.threads)
            if not reason:
                for other in checked:
                    assert other.id is not None
                    if other.id is m.id and threads.same(other.participants, m.participants):
                        continue
                    if self._apart(m, other):
                        continue
                    reason = f"threads with {_text(other.participants)} use the same barrier for another purpose"
                    break
            if reason:
                self._fail(m.node, reason)
            else:
                checked.append(m)
                self._hold(m)

    def _group(self, m: BarrierSite, number: Expr, count: Expr) -> str:
        """Why the groups of a named barrier differ in size from its count; empty if they do not."""
        threads = self.threads
        if not isinstance(count, Const) or count.value % WARP:
            return f"a count of {count} is not whole warps"
        mask, values = threads.mask(m.participants), threads.values(number)
        if mask is not None and values is not None:
            for value in sorted(set(values[mask].tolist())):
                group = mask & (values == value)
                if not 1 <= value <= 15:
                    return f"barrier {value} does not exist"
                if int(group.sum()) != count.value:
                    return f"{int(group.sum())} threads reach barrier {value}, but {count} are expected"
                if not threads.whole_warps((*m.participants, eq(number, value))):
                    return f"the threads of barrier {value} are not whole warps"
            return ""
        lo, hi = m.node.context.ranges.of(number)
        if lo is None or hi is None or lo < 1 or hi > 15:
            return f"its id {number} is not known to be in 1..15"
        shared = threads.launch | BLOCKS | {n.stmt.var for n in m.node.loops if isinstance(n.stmt, For)}
        for value in (lo,) if number.free <= shared else range(lo, hi + 1):  # one number for all that come, whatever it is; or a part of them for each
            conditions = m.participants if number.free <= shared else (*m.participants, eq(number, value))
            found = threads.count(conditions)
            if found is not count:
                return f"{'an unknown number of' if found is None else found} threads reach barrier {value}, but {count} are expected"
            if not threads.whole_warps(conditions):
                return f"the threads of barrier {value} are not whole warps"
        return ""

    def _apart(self, a: BarrierSite, b: BarrierSite) -> bool:
        """True only if two barriers never have one id in one block."""
        assert a.id is not None
        assert b.id is not None
        ranges = self.threads.context.ranges.under_all(a.uniform)
        if any(ranges.refutes(c) for c in b.uniform if c.free <= BLOCKS | self.threads.launch):
            return True
        one, two = self.threads.values(a.id), self.threads.values(b.id)
        mine, theirs = self.threads.mask(a.participants), self.threads.mask(b.participants)
        if one is not None and two is not None and mine is not None and theirs is not None:
            return not set(one[mine].tolist()) & set(two[theirs].tolist())
        (lo, hi), (low, high) = a.node.context.ranges.of(a.id), b.node.context.ranges.of(b.id)
        if lo is None or hi is None or low is None or high is None:
            return False
        return hi < low or high < lo

    # -- grid barriers --------------------------------------------------------------------------------------------------------------

    def _grid(self, name: str, barriers: list[BarrierSite]) -> None:
        threads = self.threads
        first = barriers[0]
        for m in barriers:
            stmt = m.node.stmt
            assert isinstance(stmt, Barrier)
            blocks = tuple(c for c in m.uniform if not c.free.isdisjoint(BLOCKS))
            reason = ""
            if any(not c.free <= BLOCKS | threads.launch for c in m.uniform):
                reason = f"the set of blocks that reach it varies: {_text(m.uniform)}"
            elif not threads.same(m.participants, first.participants) or set(m.uniform) != set(first.uniform):
                reason = f"its counter {name} counts another number of threads elsewhere"
            else:
                count = threads.count(m.participants)
                number = self._blocks(blocks)
                if count is None or number is None or not prove(eq(count * number, stmt.threads), threads.context.facts):
                    reason = f"{stmt.threads} threads are expected, but {_product(count, number)} reach it"
            if reason:
                self._fail(m.node, reason)
            else:
                self._hold(m)

    def _blocks(self, conditions: Conditions) -> Expr | None:
        """The number of blocks that satisfy conditions on block indices."""
        return box_count(conditions, self.threads.grid, BLOCK_NAMES, self.threads.context)

    # -- arrival and wait ---------------------------------------------------------------------------------------------------------

    def _pairs(self) -> None:
        """mbarriers at which the same threads arrive and wait, one right after the other, each time; the parity is a cursor's, or a number.

        Those of one block have one slot. Where all blocks of a cluster meet there are two, which take turns: a thread that has passed a round arrives for the
        next one at mbarriers of which none counts arrivals of the round before, which other threads may be in the middle of; and when it comes back to
        the first slot, all have arrived for the round between, hence at all mbarriers of the first one.
        """
        names = {m.name: m.slots for m in self.tree.kernel.mbarriers}
        if not names:
            return
        uses: dict[str, list[Node]] = {name: [] for name in names}
        cursors: dict[str, list[Node]] = {}
        for node in self.tree.leaves():
            match node.stmt:
                case Arrive() | ArriveAsync() | Wait() | Expect() | TmaLoad() | InitBarrier():
                    uses[node.stmt.barrier.name].append(node)
                case Advance(cursor=c) | CursorInit(name=c):
                    cursors.setdefault(c, []).append(node)
                case _:
                    pass
        for name, nodes in uses.items():
            of_cluster = any(isinstance(n.stmt, Arrive) and n.stmt.across for n in nodes)
            if names[name] != (2 if of_cluster else 1):
                continue
            found = self._as_pairs([n for n in nodes if not isinstance(n.stmt, InitBarrier)], cursors, names[name])
            if not found:
                continue
            counts = [n.stmt.count for n in nodes if isinstance(n.stmt, InitBarrier)]
            self.mbarriers.add(name)
            first: BarrierSite | None = None
            for arrive in found:
                split = self.threads.split(arrive.conditions)
                reason = f"the set of threads that reach it varies: {_text(split.varying)}" if split.varying else uneven(arrive)
                stmt, blocks = arrive.stmt, const(1)
                assert isinstance(stmt, Arrive)
                if stmt.across:
                    reason, blocks = reason or self._apart_in_cluster(arrive, stmt), cluster_blocks(self.tree.kernel.cluster)
                site = BarrierSite(arrive, BarrierScope.CLUSTER if stmt.across else BarrierScope.BLOCK, split.threads, split.uniform)
                first = first or site
                if not reason and not self.threads.same(first.participants, split.threads):
                    reason = f"threads with {_text(first.participants)} synchronize at it, too"
                if not reason:
                    count = self.threads.count(split.threads)
                    count = None if count is None else count * blocks
                    other = next((c for c in counts if count is None or not prove(eq(count, c), self.threads.context.facts)), None)
                    if other is not None:
                        reason = f"{'an unknown number of' if count is None else count} threads arrive, but {other} are expected"
                if reason:
                    self._fail(arrive, reason)
                else:
                    self._hold(site)

    def _apart_in_cluster(self, arrive: Node, stmt: Arrive) -> str:
        """Why arrivals of several blocks and the waits for them do not bring all blocks of the cluster together; empty if they do."""
        extents = zip(CLUSTER_TYPES, self.tree.kernel.cluster, strict=True)
        if not {p for p, e in extents if e is not const(1)} <= {*stmt.across}:
            return "it does not reach all blocks of the cluster"
        (wait,) = (n.stmt for n in _behind(arrive, 1))
        assert isinstance(wait, Wait)
        if not stmt.scope is wait.scope is MbarrierScope.CLUSTER:
            return "an arrival or a wait at the scope of a block orders nothing that threads of other blocks store"
        return self._clusters.uneven(arrive, CLUSTER_TYPES)

    def _as_pairs(self, nodes: list[Node], cursors: dict[str, list[Node]], slots: int) -> list[Node]:
        """The arrivals, if arrival, wait and advance of one cursor always stand together; or arrival and wait, each executed once, and parities alternate."""
        return self._counted(nodes) or self._by_cursor(nodes, cursors, slots)

    def _counted(self, nodes: list[Node]) -> list[Node]:
        """Arrivals and waits outside loops and uniform conditions: the wait for phase k has the parity of k."""
        if len(nodes) % 2 or len(nodes) < 4:  # what completes once may be used in other forms, too
            return []
        for phase, (n, then) in enumerate(zip(nodes[::2], nodes[1::2], strict=True)):
            match n.stmt, then.stmt:
                case Arrive(across=(), barrier=one), Wait(parity=Const(value=parity), barrier=two) if one.slot is ZERO and two.slot is ZERO:
                    together = n.block is then.block and then.index == n.index + 1
                    if not together or parity != phase % 2 or n.loops or self.threads.split(n.conditions).uniform:
                        return []
                case _:
                    return []
        return nodes[::2]

    def _is_advanced_with(self, arrive: Node, advance: Node) -> bool:
        """True only if the threads that arrive advance a cursor each time: that others do, too, changes nothing."""
        return self.threads.split(arrive.conditions).uniform == self.threads.split(advance.conditions).uniform

    def _by_cursor(self, nodes: list[Node], cursors: dict[str, list[Node]], slots: int) -> list[Node]:
        arrivals: list[Node] = []
        cursor: str | None = None
        seen: set[Node] = set()
        for n in nodes:
            if n in seen:
                continue
            match n.stmt, _behind(n, 2):
                case Arrive(), [Node(stmt=Wait(barrier=slot, parity=parity)) as wait, Node(stmt=Advance(cursor=c, count=Const(value=1))) as advance] if (
                    slot == n.stmt.barrier
                    and slot.slot is (ZERO if slots == 1 else Cursor(c).slot)
                    and (parity is Cursor(c).parity and cursor in (None, c))
                    and wait.block is n.block
                    and self._is_advanced_with(n, advance)
                ):
                    cursor = c
                    seen |= {n, wait, advance}
                    arrivals.append(n)
                case _:
                    return []
        if cursor is None:
            return []
        others = [n for n in cursors[cursor] if n not in seen]
        match [n.stmt for n in others]:
            case [CursorInit(slots=number, slot=0, parity=0)] if number == slots and not others[0].loops:
                return arrivals
            case _:
                return []


def _behind(node: Node, count: int) -> list[Node]:
    """The next statements that the threads of a statement come to: behind the only arm of a branch, those after it."""
    found: list[Node] = []
    while len(found) < count:
        block, index = node.block, node.index + 1
        while index == len(block.nodes):
            owner = block.owner
            if owner is None or not isinstance(owner.stmt, If) or len(owner.blocks) > 1:
                return found
            block, index = owner.block, owner.index + 1
        node = block.nodes[index]
        found.append(node)
    return found


def never(_: Expr) -> bool:
    """True for no expression."""
    return False


def apart(conditions: Conditions, alike: frozenset[str], same: Callable[[Expr], bool] = never) -> Conditions:
    """The conditions on which threads may differ that agree on some thread indices, and on the expressions that are the ``same`` for them."""
    return tuple(c for c in conditions if not c.free & THREADS <= alike and not same(c))


def uneven(node: Node, *, grid: bool = False, alike: frozenset[str] = frozenset(), same: Callable[[Expr], bool] = never) -> str:
    """Why threads that agree on some thread indices may reach a place different numbers of times: loops that differ between them, or empty.

    Args:
        same: true only of further expressions that have one value for them.
    """
    for loop in node.loops:
        assert isinstance(loop.stmt, For)
        bounds = loop.stmt.start, loop.stmt.stop, loop.stmt.step
        names = frozenset[str]().union(*(e.free for e in bounds))
        if any(e.free & THREADS - alike and not same(e) for e in bounds):
            return f"the trip count of the loop over {loop.stmt.var} differs between threads"
        if any(Cursor.of(n) is not None for n in names):
            return f"the loop over {loop.stmt.var} depends on a cursor"
        if grid and names & BLOCKS:
            return f"the trip count of the loop over {loop.stmt.var} differs between blocks"
    if any(Cursor.of(n) is not None for c in node.conditions for n in c.free):
        return "a condition around it depends on a cursor"
    return ""


def _subject(node: Node) -> str:
    return node.text + (f" in {node.role}" if node.role else "")


def _text(conditions: Conditions) -> str:
    return " && ".join(map(str, conditions)) or "true"


def _product(a: Expr | None, b: Expr | None) -> str:
    return "an unknown number" if a is None or b is None else str(simplify(a * b))


def ordered_by(site: BarrierSite, shared: Conditions, equal: frozenset[str], pairs: Callable[[], Pairs | None], threads: Threads) -> bool:
    """True only if a barrier synchronizes two of its participants that satisfy ``shared`` and agree on some indices.

    Args:
        pairs: the possible pairs of threads, if known.
    """
    if site.scope is BarrierScope.GRID or (site.scope is BarrierScope.CLUSTER and SAME_CLUSTER in equal):
        return True
    if not equal >= BLOCKS:
        return False
    context = site.node.context
    match site.scope:
        case BarrierScope.NAMED:
            assert site.id is not None
            if site.id.free & THREADS <= equal | threads.fixed(context):
                return True
            found = pairs()
            return found is not None and found.agree(site.id)
        case BarrierScope.WARP:
            if SAME_WARP in equal:
                return True
            if threads.one_warp(tuple(dict.fromkeys((*site.participants, *shared))), context, frozenset(equal & THREADS)):
                return True
            found = pairs()
            return found is not None and found.one_warp(threads, equal)
        case _:
            return True
