"""Rings: two arrays of mbarriers, ``full`` and ``empty``, that hand slots from a producer to consumers and back.

An endpoint's cursor counts *positions*: position ``n`` is slot ``n % S`` in phase ``n // S``. A ring is *disciplined* if

1. every thread of an endpoint visits the positions in order; at each it waits once, then arrives once (or synchronizes with another thread of its
   warp or barrier that arrives for it), then advances by one;
2. producer and consumers visit equally many: their loops around the ring are equal, one by one;
3. ``full`` counts the producer's arrivals of one position, ``empty`` those of all consumers; consumers start in phase 0, producers one ahead.

docs/proof.md shows that then no wait can pass early or miss its phase, for any trip counts, and that all accesses of a slot between wait and arrival
are ordered.
"""

from __future__ import annotations

from taskfuse.check.aligned_traversals import AlignedTraversals, match_trailing
from taskfuse.check.arrivals import Arrivals
from taskfuse.check.barriers import Barriers, uneven
from taskfuse.check.clusters import Clusters
from taskfuse.check.endpoints import Endpoint, Ring
from taskfuse.check.paths import Paths
from taskfuse.check.pingpong import distributed, trailing, turn
from taskfuse.check.remote import joined
from taskfuse.check.slot_release import SlotRelease
from taskfuse.check.statement_tree import THREADS, Conditions, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import CursorTree, NotRing, PingpongTurn, parse, skeleton, visits
from taskfuse.ir.scalar import Const, Expr, Sym, const, eq, prove
from taskfuse.kir.clusters import reached
from taskfuse.kir.nodes import TmaLoad
from taskfuse.kir.synchronization import Advance, Arrive, ArriveAsync, Cursor, CursorInit, Expect, InitBarrier, Wait
from taskfuse.reports.certificate import Layer, Obligation, Verdict

Shot = tuple[str, int]
"""An mbarrier that completes once: its array and its index."""


NEITHER = "it is neither a ring, nor a barrier of a fixed set of threads, nor used once"
"""Of an mbarrier that has no known form."""


class Rings:
    """The rings of a kernel.

    Attributes:
        rings: the disciplined ones.
        turns: those that instances take which share no ring.
        once: the statements that use an mbarrier that completes once, with this mbarrier.
        obligations: the obligations about them.
        slot_release, arrivals: the rules for threads and their arrivals, and for arrival counts.
        refilled: mbarriers of loads that a waiting thread starts ahead.
    """

    def __init__(self, tree: StatementTree, threads: Threads, barriers: Barriers, paths: Paths) -> None:
        self.tree = tree
        self.threads = threads
        self.barriers = barriers
        self.paths = paths
        self.rings: list[Ring] = []
        self.turns: list[PingpongTurn] = []
        self.obligations: list[Obligation] = []
        self.once: dict[Node, Shot] = {}
        self.refilled: list[str] = []
        self._ops: dict[str, list[Node]] = {}
        self._inits: dict[str, list[Node]] = {}
        self._counts: dict[str, list[Expr]] = {}
        self._slot_counts: dict[str, list[tuple[int | None, Expr]]] = {}
        self._waits: dict[str, dict[str, list[Node]]] = {}
        self._arrivals: dict[str, dict[str, list[Node]]] = {}
        self.order_waits: dict[str, list[Node]] = {}
        self.order_arrivals: dict[str, list[Node]] = {}
        self._single: dict[str, int] = {}  # cursors over one slot, with their first parities
        self._advances: list[Node] = []
        self._only_waits: dict[str, list[Wait]] = {}
        self.clusters = Clusters(tree)
        self.slots = {m.name: m.slots for m in tree.kernel.mbarriers}
        if self.slots or tree.kernel.semaphores:  # others have no rings
            self._collect()
        self.slot_release = SlotRelease(threads, barriers, paths)
        self.arrivals = Arrivals(tree.kernel, threads, self._counts)
        self._find()

    # -- what there is --------------------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        for node in self.tree.leaves():
            match node.stmt:
                case CursorInit(name=name, slots=1, parity=parity):
                    self._single[name] = parity
                case Advance():
                    self._advances.append(node)
                case Wait(barrier=slot) if self.slots[slot.name] == 1:
                    self._only_waits.setdefault(slot.name, []).append(node.stmt)
                case _:
                    pass
        for node in self.tree.leaves():
            stmt = node.stmt
            match stmt:
                case CursorInit(name=name):
                    self._inits.setdefault(name, []).append(node)
                case Advance(cursor=name):
                    self._ops.setdefault(name, []).append(node)
                case InitBarrier(barrier=slot, count=count):
                    self._counts.setdefault(slot.name, []).append(count)
                    self._slot_counts.setdefault(slot.name, []).append((slot.slot.value if isinstance(slot.slot, Const) else None, count))
                case Wait() | Arrive() | ArriveAsync() | Expect() | TmaLoad():
                    name = stmt.barrier.name
                    if name in self.barriers.mbarriers:
                        continue
                    cursor = self._cursor(stmt.barrier.slot) or self._only_slot(node, stmt)
                    if cursor is None or (isinstance(stmt, Wait) and stmt.parity is not Cursor(cursor).parity):
                        if isinstance(stmt, Wait):
                            self.order_waits.setdefault(name, []).append(node)
                        else:
                            self.order_arrivals.setdefault(name, []).append(node)
                        continue
                    self._ops.setdefault(cursor, []).append(node)
                    side = self._waits if isinstance(stmt, Wait) else self._arrivals
                    side.setdefault(name, {}).setdefault(cursor, []).append(node)
                case _:
                    pass

    @staticmethod
    def _cursor(slot: Expr) -> str | None:
        found = Cursor.at(slot)
        return None if found is None else found.name

    def _only_slot(self, node: Node, stmt: Wait | Arrive | ArriveAsync | Expect | TmaLoad) -> str | None:
        """The cursor of a use of the only mbarrier of an array by the constant 0: that of the parity, or the one that then advances.

        Every cursor over one slot is at slot 0, so any of them would do; the positions of its uses are checked later.
        """
        name = stmt.barrier.name
        if self.slots[name] != 1 or stmt.barrier.slot is not const(0):
            return None
        if isinstance(stmt, Wait):
            found = [c for c in self._single if stmt.parity is Cursor(c).parity]
            return found[0] if found else None
        parities = {self._single[c] for c in self._single if any(w.parity is Cursor(c).parity for w in self._only_waits.get(name, []))}
        for n in self._advances:
            assert isinstance(n.stmt, Advance)
            behind = n.number > node.number and n.loops == node.loops and any(n.block is x.block for x in node.path)
            if behind and self._single.get(n.stmt.cursor, -1) in {1 - p for p in parities}:
                return n.stmt.cursor
        return None

    def _find(self) -> None:
        names = [m.name for m in self.tree.kernel.mbarriers if m.name not in self.barriers.mbarriers]
        done: set[str] = set()
        pingpong: set[str] = set()
        for name in names:
            if name in done or not self._is_full(name):
                continue
            try:
                ring = self._ring(name)
            except NotRing as e:
                self._fail(name, e)
                done |= {name, *(c for c in names if self._shares(name, c))}
                continue
            self.rings.append(ring)
            done |= {ring.full, ring.empty}
            pingpong |= {c.pingpong.barrier for c in ring.consumers if c.pingpong is not None}
            self.obligations.append(
                Obligation(
                    Layer.STRUCTURE,
                    f"ring {ring.full}/{ring.empty}",
                    Verdict.PROVED,
                    f"{ring.slots} slots, {len(ring.consumers)} consumer{'s' if len(ring.consumers) > 1 else ''}: equal trips, counts and phases",
                )
            )
        for name in names:
            if name in done or name in pingpong:
                continue
            if not self.uses(name):
                continue
            if self._is_refilled(name):
                self.refilled.append(name)
                continue
            try:
                if any(isinstance(n.stmt, Wait) and not isinstance(n.stmt.parity, Const) for n in self.order_waits.get(name, [])):
                    self._turn(name)
                else:
                    self._one_shot(name)
            except NotRing as e:
                self._fail(name, e)

    def _turn(self, name: str) -> None:
        """Turns of instances that share no ring."""
        try:
            found = turn(self, name)
        except NotRing as e:
            raise NotRing(f"{NEITHER}; and no turn: {e.reason}", *e.nodes) from e
        self.turns.append(found)
        text = f"{found.count} instances take turns, each once in an iteration"
        self.obligations.append(Obligation(Layer.STRUCTURE, f"turn {name}", Verdict.PROVED, text))

    def _shares(self, one: str, other: str) -> bool:
        cursors = {*self._waits.get(one, {}), *self._arrivals.get(one, {})}
        return bool(cursors & {*self._waits.get(other, {}), *self._arrivals.get(other, {})})

    def _fail(self, name: str, error: NotRing) -> None:
        notes = tuple(n.text + (f" in {n.role}" if n.role else "") for n in error.nodes)
        self.obligations.append(Obligation(Layer.STRUCTURE, f"mbarrier {name}", Verdict.OUTSIDE, error.reason, notes))

    def _is_full(self, name: str) -> bool:
        """True if threads wait here from phase 0 on, and those that arrive wait elsewhere for the slots to become empty."""
        waits = self._waits.get(name, {})
        return bool(waits) and all(self._start(c)[1] == 0 for c in waits) and bool(self._arrivals.get(name))

    def _is_refilled(self, name: str) -> bool:
        """True for what is waited for at the slots of a cursor, and filled at others by bulk loads: see :mod:`taskfuse.check.tma_prefetch`."""
        gives = self.order_arrivals.get(name, [])
        return len(self._waits.get(name, {})) == 1 and name not in self._arrivals and any(isinstance(n.stmt, TmaLoad) for n in gives)

    def _start(self, cursor: str) -> tuple[int, int]:
        """Slots and first parity of a cursor."""
        match [n.stmt for n in self._inits.get(cursor, [])]:
            case [CursorInit(slots=slots, parity=parity)]:
                return slots, parity
            case _:
                return 0, -1

    # -- one ring -------------------------------------------------------------------------------------------------------------------

    def _ring(self, full: str) -> Ring:
        arrivals = self._arrivals[full]
        if len(arrivals) != 1 or full in self.order_arrivals or full in self.order_waits:
            raise NotRing("it is not the full side of a ring with one producer", *(nodes[0] for nodes in arrivals.values()))
        (p,) = arrivals
        empties = [name for name, waits in self._waits.items() if p in waits and name != full]
        if len(empties) != 1:
            first = arrivals[p][0]
            raise NotRing("the thread that arrives does not wait for the slot to be empty" if not empties else "its producer waits for several barriers", first)
        empty = empties[0]
        if set(self._waits[empty]) != {p} or empty in self.order_arrivals or empty in self.order_waits:
            raise NotRing(f"threads outside its producer wait for {empty}", self._waits[empty][p][0])
        slots = self.slots[full]
        for cursor in (p, *self._waits[full], *self._arrivals.get(empty, {})):
            self._check_cursor(cursor, slots, 1 if cursor == p else 0, full, empty)
        producer = self._endpoint(p, p, empty, full)
        releases = list(self._arrivals.get(empty, {}))
        if not releases:
            raise NotRing(f"no thread arrives at {empty}", self._waits[empty][p][0])
        consumers: list[Endpoint] = []
        for a in self._waits[full]:
            consumers.append(self._endpoint(a, self._release(a, releases, full), full, empty))
        if {c.release for c in consumers} != set(releases):
            raise NotRing(f"a thread arrives at {empty} without waiting for {full}", self._arrivals[empty][releases[-1]][0])
        if len(consumers) > len(releases):
            raise NotRing("one cursor releases for several that wait", self._arrivals[empty][releases[0]][0])
        ring = Ring(full, empty, slots, producer, consumers)
        releases_of = [v for c in consumers for v in visits(c.releases)]
        ring.across = joined(self.clusters, full, list(producer.visits()), releases_of, [v for c in consumers for v in c.visits()])
        for c in consumers:
            behind = c.lag + self._lay(ring, c)
            if ring.slots <= behind:
                raise NotRing(f"a release {behind} positions behind needs more than {ring.slots} slots")
        self.arrivals.counted(full, [(producer, producer.traversal)])
        self.arrivals.counted(empty, [(c, c.releases) for c in consumers], reached(self.tree.kernel.cluster, ring.across))
        self._check_loads(producer)
        for e in consumers:
            for visit in visits(e.releases):
                for n in visit.releases:
                    if not isinstance(n.stmt, Arrive):  # nobody waits for the last arrivals of consumers
                        raise NotRing("a consumer arrives by ARRIVE.async: its last copies may be in flight at exit", n)
        for e in ring.endpoints:
            self.slot_release.check(e)
        return ring

    def _lay(self, ring: Ring, consumer: Endpoint) -> int:
        """Producer and consumer visit the same positions, in loops that can be laid on top of each other.

        Returns:
            How many iterations later the consumer visits one, at most.
        """
        match = AlignedTraversals()
        match.align(ring.producer.traversal, consumer.traversal, {})
        ring.loops += match.loops
        ring.later += match.later
        ring.pairs += match.pairs
        if consumer.pingpong is not None:
            ring.pingpong += [(loop, consumer.pingpong) for loop in match.shared]
        return match.behind

    def _check_cursor(self, cursor: str, slots: int, parity: int, full: str, empty: str) -> None:
        inits = self._inits.get(cursor, [])
        if len(inits) != 1:
            raise NotRing(f"cursor {cursor} is initialized {len(inits)} times", *inits)
        node = inits[0]
        stmt = node.stmt
        assert isinstance(stmt, CursorInit)
        if node.loops:
            raise NotRing(f"cursor {cursor} starts anew in every iteration, but the barriers' phases continue", node)
        if (stmt.slots, stmt.slot) != (slots, 0) or self.slots[empty] != slots:
            raise NotRing(f"cursor {cursor} runs over {stmt.slots} slots from slot {stmt.slot}; {full} has {slots}, {empty} {self.slots[empty]}", node)
        if stmt.parity != parity:
            raise NotRing(
                f"cursor {cursor} starts with parity {stmt.parity}; {'the phase before the first' if parity else 'the first phase'} has {parity}", node
            )

    def _release(self, a: str, releases: list[str], full: str) -> str:
        if a in releases:
            return a
        alike = self._alike(a)
        mine = self._threads_of(self._waits[full][a], alike)
        found = [
            r
            for r in releases
            if r not in self._waits[full] and self.threads.same(mine, self._threads_of([n for n in self._ops[r] if isinstance(n.stmt, Advance)], alike))
        ]
        if len(found) != 1:
            raise NotRing("a consumer never arrives", self._waits[full][a][0])
        return found[0]

    def _alike(self, cursor: str) -> frozenset[str]:
        """Thread indices that the trips of loops around a cursor's moves may depend on: where it takes turns, see :mod:`taskfuse.check.pingpong`."""
        shared = any(isinstance(n.stmt, Advance) and n.stmt.count is not const(1) for n in self._ops[cursor])
        return THREADS if shared else frozenset()

    def _threads_of(self, nodes: list[Node], alike: frozenset[str] = frozenset()) -> Conditions:
        """The conditions that select the threads of some nodes, the same for all. ``alike``: thread indices that trips of loops may depend on."""
        found: Conditions | None = None
        for n in nodes:
            split = self.threads.split(n.conditions)
            reason = uneven(n, alike=alike)
            if split.varying or reason:
                raise NotRing(reason or "the set of threads that execute it varies", n)
            if found is None:
                found = split.threads
            elif not self.threads.same(found, split.threads):
                raise NotRing("these are not the threads that use the cursor elsewhere", nodes[0], n)
        return found or ()

    def _endpoint(self, cursor: str, release: str, waits_on: str, arrives_at: str) -> Endpoint:
        nodes = self._ops[cursor]
        for n in nodes:
            match n.stmt:
                case Wait(barrier=slot) if slot.name == waits_on:
                    pass
                case Arrive(barrier=slot) | ArriveAsync(barrier=slot) | Expect(barrier=slot) | TmaLoad(barrier=slot) if slot.name == arrives_at:
                    pass
                case Advance():
                    pass
                case _:
                    raise NotRing(f"cursor {cursor} is used for another barrier, too", n)
        alike = self._alike(cursor)
        who = self._threads_of([n for n in nodes if isinstance(n.stmt, Wait)], alike)
        moves = [n for n in nodes if isinstance(n.stmt, Advance)]
        carried = self._threads_of(moves, alike)  # threads that only carry the cursor may advance it, too
        if not self.threads.implies(who, carried):
            raise NotRing("the threads that advance its cursor are not those that wait with it", *moves[:1])
        pingpong = None
        if alike:
            if not self.threads.same(who, carried):
                raise NotRing("the threads that advance its cursor are not those that wait with it, and it takes turns", *moves[:1])
            traversal, pingpong = distributed(self, cursor, who, arrives=release == cursor)
        else:
            traversal = parse(self.skeleton(set(nodes)), trailing=False, waits=True, arrives=release == cursor)
        endpoint = Endpoint(cursor, release, who, traversal, pingpong=pingpong)
        if release == cursor:
            endpoint.releases = traversal
            return endpoint
        for n in self._ops[release]:
            if not isinstance(n.stmt, Advance) and not (isinstance(n.stmt, (Arrive, ArriveAsync, Expect, TmaLoad)) and n.stmt.barrier.name == arrives_at):
                raise NotRing(f"cursor {release} is used for another barrier, too", n)
        if pingpong is None:
            endpoint.releases = parse(self.skeleton(set(self._ops[release])), trailing=True, waits=False, arrives=True)
        else:
            endpoint.releases, endpoint.pingpong = trailing(self, release, pingpong)
        self._trail(endpoint)
        return endpoint

    def ops(self, cursor: str) -> list[Node]:
        """Waits, arrivals and advances with a cursor."""
        return self._ops.get(cursor, [])

    def uses(self, name: str) -> list[Node]:
        """All waits and arrivals at an mbarrier, at slots of cursors and elsewhere, in the order of the text."""
        at_cursors = (n for side in (self._waits, self._arrivals) for nodes in side.get(name, {}).values() for n in nodes)
        return sorted((*at_cursors, *self.order_waits.get(name, ()), *self.order_arrivals.get(name, ())), key=lambda n: n.number)

    def waits(self, name: str) -> list[Node]:
        """The waits at an mbarrier, at slots of cursors."""
        return [n for nodes in self._waits.get(name, {}).values() for n in nodes]

    def inits(self, cursor: str) -> list[Node]:
        """Where a cursor starts."""
        return self._inits.get(cursor, [])

    def counts(self, name: str) -> list[Expr]:
        """The counts with which an mbarrier is initialized."""
        return self._counts.get(name, [])

    # -- the traversal of an endpoint -------------------------------------------------------------------------------------------------

    def skeleton(self, ops: set[Node]) -> list[CursorTree]:
        """The nodes in ``ops`` with the loops and uniform conditions around them."""
        return skeleton(self.tree.root, ops, self.paths)

    def _trail(self, e: Endpoint) -> None:
        """The release cursor makes the moves of the other one, some positions later, in the same loops."""
        e.lag = max(match_trailing(e.traversal, e.releases), *(v.lag for v in visits(e.releases)))

    def _check_loads(self, producer: Endpoint) -> None:
        """The loads of a position bring the bytes that are expected at it, and are issued by those that wait for its slot."""
        for visit in producer.visits():
            self.arrivals.balanced(visit.arrivals, visit.advance.loops)
            if any(isinstance(n.stmt, TmaLoad) for n in visit.arrivals):
                for n in visit.arrivals:
                    if isinstance(n.stmt, (Expect, TmaLoad)) and not self.slot_release.has_waited(n, producer):
                        raise NotRing("a load is issued by a thread that does not wait for its slot", n)

    # -- one shot ---------------------------------------------------------------------------------------------------------------------

    def _one_shot(self, name: str) -> None:
        """Barriers that complete once: waits for phase 0 and arrivals at constant slots, outside loops; each slot by itself."""
        nodes = [*self.order_waits.get(name, []), *self.order_arrivals.get(name, [])]
        moving = [n for side in (self._waits, self._arrivals) for uses in side.get(name, {}).values() for n in uses]
        found = {n: self._shot(n) for n in sorted((*nodes, *moving), key=lambda n: n.number)}
        strange = [n for n, slot in found.items() if slot is None]
        given = [n for n in found if not isinstance(n.stmt, Wait)]
        if not given or (strange and (moving or self.slots[name] != 1)):
            raise NotRing(NEITHER, *(strange or list(found))[:1])
        if strange:
            raise NotRing("it is used more than once, but not as a ring", *strange[:1])
        for k in sorted({slot for slot in found.values() if slot is not None}):
            self._completes_once(name, k, [n for n, slot in found.items() if slot == k])
        self.once |= {n: (name, slot) for n, slot in found.items() if slot is not None}
        self.obligations.append(Obligation(Layer.STRUCTURE, f"mbarrier {name}", Verdict.PROVED, "completes once"))

    def _completes_once(self, name: str, slot: int, nodes: list[Node]) -> None:
        """As many threads arrive at a slot as it counts, with the bytes that they expect, and some thread waits for these."""
        arrivals = [n for n in nodes if not isinstance(n.stmt, Wait)]
        total: Expr = const(0)
        for n in nodes:
            split = self.threads.split(n.conditions)
            if split.varying or split.uniform:
                raise NotRing("the set of threads that use it depends on more than thread indices", n)
            if isinstance(n.stmt, (Arrive, ArriveAsync, Expect)):
                count = self.threads.count(split.threads)
                if count is None:
                    raise NotRing("the number of threads that arrive is unknown", n)
                total = total + count
        for at, count in self._slot_counts.get(name, []):
            if at in (slot, None) and not prove(eq(count, total), self.threads.context.facts):
                raise NotRing(f"it counts {count} arrivals, but gets {total}", *(arrivals or nodes)[:1])
        self.arrivals.balanced(arrivals)
        loads = [n for n in arrivals if isinstance(n.stmt, TmaLoad)]
        if loads and not any(self._is_executed(n) for n in nodes if isinstance(n.stmt, Wait)):
            raise NotRing("no thread is known to wait for the bytes that the copy engine completes", *loads)

    def _shot(self, node: Node) -> int | None:
        """The slot that a statement uses in its first phase, if it stands outside loops; ``None``: not known to be one."""
        stmt = node.stmt
        assert isinstance(stmt, (Wait, Arrive, ArriveAsync, Expect, TmaLoad))
        slot = self._at_start(stmt.barrier.slot, node)
        if node.loops or not isinstance(slot, Const) or (isinstance(stmt, Wait) and self._at_start(stmt.parity, node) is not const(0)):
            return None
        return slot.value

    def _at_start(self, e: Expr, node: Node) -> Expr:
        """The slot or parity of a cursor that has not moved yet, as a constant, at a statement outside loops."""
        if not isinstance(e, Sym) or "." not in e.name:
            return e
        cursor, _, part = e.name.rpartition(".")
        moved = any(isinstance(n.stmt, Advance) and n.number < node.number for n in self._ops.get(cursor, ()))
        match [n.stmt for n in self._inits.get(cursor, [])]:
            case [CursorInit(slot=slot, parity=parity)] if not moved and part in ("slot", "parity"):
                return const(slot if part == "slot" else parity)
            case _:
                return e

    def _is_executed(self, node: Node) -> bool:
        """A statement outside loops is executed by at least one thread."""
        return self.threads.at_least_one(self.threads.split(node.conditions).threads)
