"""Rings between blocks: semaphores in Global memory in place of mbarriers (docs/proof.md, "Rings between blocks").

Phases of a semaphore are numbered, so a wait can neither pass early nor miss its phase. Of the obligations of a ring only (A) remains: a
release counted in phase ``k`` comes after completion of phase ``k - 1``. It follows by the induction of :mod:`taskfuse.check.rings`, if

1. in every block of an endpoint, some threads acquire at every position, then release it, or synchronize with one that does, then advance by one; all that
   acquire or release advance their cursor;
2. an endpoint is a box of blocks. Along some block types each of its blocks uses the ring whose index is its own minus a constant; along the
   others all of its blocks share one. All endpoints have the same rings;
3. blocks that share a ring visit equally many positions: their loops are equal, one by one;
4. a phase takes the releases of all blocks that share the ring.

Barriers extend an acquire to other threads of the block: what one thread has acquired holds for those that synchronize with it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from taskfuse.check.aligned_traversals import AlignedTraversals
from taskfuse.check.barriers import uneven
from taskfuse.check.endpoints import Endpoint, Ring
from taskfuse.check.index_bounds import bounds_of, box_count
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCK_NAMES, BLOCKS, Conditions, Node, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.check.traversals import Choice, CursorTree, Either, NotRing, Part, Repeat, Visit, parse, visits
from taskfuse.ir.scalar import Const, Expr, const, eq, ge, le, prove, simplify, sym
from taskfuse.kir.declarations import Semaphore
from taskfuse.kir.nodes import For
from taskfuse.kir.operands import SemaphoreSlot
from taskfuse.kir.synchronization import Acquire, Advance, Cursor, CursorInit, Release
from taskfuse.reports.certificate import Layer, Obligation, Verdict


@dataclass(frozen=True, slots=True, eq=False)
class _End:
    """An endpoint and its blocks.

    Attributes:
        blocks: the conditions that select them.
        along: per axis of the rings, the block index that selects a ring, and what is taken off it.
        spans: per axis, the first ring and the last one.
    """

    endpoint: Endpoint
    blocks: Conditions
    along: tuple[tuple[str, Expr], ...]
    spans: tuple[tuple[Expr, Expr], ...]


class BlockRings:
    """Finds the rings between blocks of a kernel, and adds them to its other rings."""

    def __init__(self, tree: StatementTree, threads: Threads, rings: Rings) -> None:
        self.tree = tree
        self.threads = threads
        self.rings = rings
        self._semaphores = {s.name: s for s in tree.kernel.semaphores}
        self._ops: dict[str, list[Node]] = {}  # acquires and releases, by cursor
        self._stray: dict[str, Node] = {}
        self._users: dict[str, dict[str, None]] = {name: {} for name in self._semaphores}
        self._collect()
        done: set[str] = set()
        for name in self._semaphores:
            if name in done or not self._users[name]:
                continue
            try:
                ring = self._ring(name)
            except NotRing as e:
                self._fail(name, e)
                done |= {name, *self._partners(name)}
                continue
            done |= {ring.full, ring.empty}
            rings.rings.append(ring)
            consumers = f"{len(ring.consumers)} consumer{'s' if len(ring.consumers) > 1 else ''}"
            reason = f"{ring.slots} slots, {consumers}: equal trips and counts in all blocks"
            rings.obligations.append(Obligation(Layer.STRUCTURE, f"ring {ring.full}/{ring.empty}", Verdict.PROVED, reason))

    def _fail(self, name: str, error: NotRing) -> None:
        notes = tuple(n.text + (f" in {n.role}" if n.role else "") for n in error.nodes)
        self.rings.obligations.append(Obligation(Layer.STRUCTURE, f"semaphore {name}", Verdict.OUTSIDE, error.reason, notes))

    def _collect(self) -> None:
        for node in self.tree.leaves():
            if not isinstance(node.stmt, (Acquire, Release)):
                continue
            slot = node.stmt.semaphore
            cursor = self._cursor(slot)
            if cursor is None:
                self._stray[slot.name] = node
                self._users[slot.name].setdefault("")
            else:
                self._ops.setdefault(cursor, []).append(node)
                self._users[slot.name].setdefault(cursor)

    @staticmethod
    def _cursor(slot: SemaphoreSlot) -> str | None:
        last = slot.index[-1] if slot.index else None
        found = None if last is None else Cursor.at(last)
        return None if found is None else found.name

    def _partners(self, name: str) -> set[str]:
        """The semaphores that the same cursors are used for."""
        return {n.stmt.semaphore.name for c in self._users[name] for n in self._ops.get(c, []) if isinstance(n.stmt, (Acquire, Release))}

    # -- one ring -------------------------------------------------------------------------------------------------------------------

    def _ring(self, name: str) -> Ring:
        names = {name, *self._partners(name)}
        for n in names:
            if n in self._stray:
                raise NotRing("its slot is not that of a cursor", self._stray[n])
        if len(names) != 2:
            raise NotRing(f"its cursors are used for {len(names)} semaphores: the full and the empty side of a ring are two")
        producers: list[tuple[str, str]] = []
        consumers: list[str] = []
        for cursor in dict.fromkeys(c for n in sorted(names) for c in self._users[n]):
            waits = [n for n in self._ops[cursor] if isinstance(n.stmt, Acquire)]
            phases = {n.stmt.phases for n in waits if isinstance(n.stmt, Acquire)}
            phase = Cursor(cursor).phase
            if phases == {phase}:
                assert isinstance(waits[0].stmt, Acquire)
                producers.append((cursor, waits[0].stmt.semaphore.name))
            elif phases == {simplify(phase + 1)}:
                consumers.append(cursor)
            else:
                raise NotRing("it does not wait for the phases before its own (producer), or for its own too (consumer)", *(waits or self._ops[cursor])[:1])
        if len(producers) != 1 or not consumers:
            raise NotRing(f"a ring has one producer and consumers; {len(producers)} and {len(consumers)} are here")
        (p, empty), full = producers[0], next(n for n in names if n != producers[0][1])
        slots = self._slots(full, empty)
        one = self._end(p, slots, empty, full)
        others = [self._end(c, slots, full, empty) for c in consumers]
        ring = Ring(full, empty, slots, one.endpoint, [c.endpoint for c in others])
        for c in others:
            self._lay(ring, one, c)
        self._check_count(full, [one])
        self._check_count(empty, others)
        return ring

    def _slots(self, full: str, empty: str) -> int:
        one, two = self._semaphores[full].shape, self._semaphores[empty].shape
        if one != two or not isinstance(one[-1], Const):
            raise NotRing(f"{full} and {empty} differ in shape, or their number of slots is not constant")
        return one[-1].value

    # -- an endpoint ----------------------------------------------------------------------------------------------------------------

    def _end(self, cursor: str, slots: int, waits_on: str, arrives_at: str) -> _End:
        ops = self._ops[cursor]
        moves = [n for n in self.rings.ops(cursor) if isinstance(n.stmt, Advance)]
        if len(moves) != len(self.rings.ops(cursor)):
            raise NotRing(f"cursor {cursor} is used for an mbarrier, too", *ops[:1])
        for n in (*ops, *moves):
            reason = "the set of threads that execute it varies" if self.threads.split(n.conditions).varying else uneven(n)
            if reason:
                raise NotRing(reason, n)
        for n in ops:
            match n.stmt:
                case Acquire(semaphore=slot) if slot.name == waits_on:
                    pass
                case Release(semaphore=slot) if slot.name == arrives_at:
                    pass
                case _:
                    raise NotRing(f"cursor {cursor} is used for another semaphore, too", n)
        self._check_cursor(cursor, slots)
        blocks = self._blocks((*ops, *moves))
        along = self._along(ops, blocks)
        who = self._movers(moves)
        for n in ops:
            if not self.threads.implies(self.threads.split(n.conditions).threads, who):
                raise NotRing(f"it uses cursor {cursor}, which its threads do not advance", n)
        traversal = parse(_inside(self.rings.skeleton({*ops, *moves}), blocks), trailing=False, waits=True, arrives=True)
        own = tuple(simplify(sym(name) - shift) for name, shift in along)
        endpoint = Endpoint(cursor, cursor, who, traversal, releases=traversal, ring_index=own)
        for visit in visits(traversal):
            assert visit.wait is not None
            if not self.threads.at_least_one(self.threads.split(visit.wait.conditions).threads):
                raise NotRing("no thread is known to acquire", visit.wait)
            for a in visit.arrivals:
                if not self.rings.slot_release.acquired(visit.wait, a, endpoint):
                    raise NotRing("it releases without synchronizing with the thread that acquires", visit.wait, a)
        _check_blocks_alike(traversal, {name for name, _ in along})
        return _End(endpoint, blocks, along, self._spans(ops[0], blocks, along, self._semaphores[waits_on]))

    def _check_cursor(self, cursor: str, slots: int) -> None:
        inits = self.rings.inits(cursor)
        if len(inits) != 1:
            raise NotRing(f"cursor {cursor} is initialized {len(inits)} times", *inits)
        (node,) = inits
        assert isinstance(node.stmt, CursorInit)
        if node.loops:
            raise NotRing(f"cursor {cursor} starts anew in every iteration, but the semaphores' phases continue", node)
        if (node.stmt.slots, node.stmt.slot) != (slots, 0):
            raise NotRing(f"cursor {cursor} runs over {node.stmt.slots} slots from slot {node.stmt.slot}; the ring has {slots}", node)

    def _movers(self, moves: list[Node]) -> Conditions:
        """The conditions that select the threads of an endpoint in its blocks."""
        found = [self.threads.split(n.conditions) for n in moves]
        for n, split in zip(moves, found, strict=True):
            if split.varying or not self.threads.same(split.threads, found[0].threads):
                raise NotRing("the set of threads that advance the cursor varies", n)
        if not found:
            raise NotRing("its cursor never moves")
        return found[0].threads

    def _blocks(self, nodes: Iterable[Node]) -> Conditions:
        """The conditions that select the blocks of an endpoint."""
        found: tuple[Conditions, Node] | None = None
        for n in nodes:
            mine = tuple(c for c in n.conditions if not c.free.isdisjoint(BLOCKS) and c.free <= BLOCKS | self.threads.launch)
            if found is not None and set(mine) != set(found[0]):
                raise NotRing("these are not the blocks that use the cursor elsewhere", found[1], n)
            found = mine, n
        return () if found is None else found[0]

    def _along(self, ops: list[Node], blocks: Conditions) -> tuple[tuple[str, Expr], ...]:
        """The block indices that select a ring, and what is taken off each."""
        facts = self.threads.context.constraints.given(*blocks).facts
        indices = {n.stmt.semaphore.index[:-1] for n in ops if isinstance(n.stmt, (Acquire, Release))}
        if len(indices) != 1:
            raise NotRing("it uses several rings", *ops)
        found: list[tuple[str, Expr]] = []
        for e in indices.pop():
            one = self._shifted(e) or self._shifted(simplify(e, facts))  # blockIdx.x % 2 of the blocks 4 and 5 is blockIdx.x - 4
            if one is None or one[0] in {n for n, _ in found}:
                raise NotRing(f"its ring {e} is not a block index less a constant, another one on each axis", ops[0])
            found.append(one)
        return tuple(found)

    def _shifted(self, e: Expr) -> tuple[str, Expr] | None:
        """The block index that an expression is, less a constant: both; ``None`` if it is something else."""
        names = [n for n in BLOCK_NAMES if n in e.free]
        shift = simplify(sym(names[0]) - e) if len(names) == 1 else e
        return (names[0], shift) if len(names) == 1 and shift.free <= self.threads.launch else None

    def _spans(self, node: Node, blocks: Conditions, along: tuple[tuple[str, Expr], ...], semaphore: Semaphore) -> tuple[tuple[Expr, Expr], ...]:
        """The rings that an endpoint's blocks use, which exist."""
        facts = node.context.facts
        found: list[tuple[Expr, Expr]] = []
        for (name, shift), extent in zip(along, semaphore.shape, strict=False):
            if any(name in c.free and not c.free.isdisjoint(BLOCKS - {name}) for c in blocks):
                raise NotRing("its blocks are not a box", node)
            bounds = bounds_of(name, node.context, lambda e: e.free <= self.threads.launch)
            if bounds is None:
                raise NotRing(f"its blocks along {name} are unknown", node)
            count = box_count(tuple(c for c in blocks if name in c.free), {name: self.threads.grid[name]}, (name,), self.threads.context)
            if count is None or not prove(eq(count, bounds[1] - bounds[0] + 1), facts):
                raise NotRing(f"its blocks along {name} are not a range", node)
            first, last = simplify(bounds[0] - shift, facts), simplify(bounds[1] - shift, facts)
            if not (prove(ge(first, 0), facts) and prove(le(last, extent - 1), facts)):
                raise NotRing(f"its rings {first} to {last} are not known to be among {extent}", node)
            found.append((first, last))
        return tuple(found)

    # -- ends together --------------------------------------------------------------------------------------------------------------

    def _lay(self, ring: Ring, one: _End, two: _End) -> None:
        """Producer and consumer have the same rings, and visit the same positions of each."""
        facts = self.threads.context.facts
        if len(one.along) != len(two.along) or any(a != b for (a, _), (b, _) in zip(one.along, two.along, strict=True)):
            raise NotRing("its ends have their own rings along different block types")
        for mine, theirs in zip(one.spans, two.spans, strict=True):
            if any(e is not f and not prove(eq(e, f), facts) for e, f in zip(mine, theirs, strict=True)):
                raise NotRing(f"one end has the rings {mine[0]} to {mine[1]}, the other {theirs[0]} to {theirs[1]}")
        names = {name: simplify(sym(name) - shift + other) for (name, shift), (_, other) in zip(one.along, two.along, strict=True)}
        match = AlignedTraversals()
        match.align(one.endpoint.traversal, two.endpoint.traversal, {n: e for n, e in names.items() if e is not sym(n)})
        if match.behind:
            raise NotRing("a consumer visits positions in later iterations than its producer", *(b for _, b, _ in match.later[:1]))
        ring.loops += match.loops
        ring.pairs += match.pairs

    def _check_count(self, name: str, ends: list[_End]) -> None:
        """The releases of one position, by all blocks of all ends that share a ring, are what a phase takes."""
        context = self.threads.context
        total: Expr = const(0)
        for end in ends:
            shared = tuple(n for n in BLOCK_NAMES if n not in {name for name, _ in end.along})
            conditions = tuple(c for c in end.blocks if not c.free.isdisjoint(shared))
            blocks = box_count(conditions, {n: self.threads.grid[n] for n in shared}, shared, context)
            one: Expr | None = None
            for visit in visits(end.endpoint.traversal):
                count = const(0)
                for a in visit.arrivals:
                    split = self.threads.split(a.conditions)
                    mine = None if split.varying else self.threads.count(split.threads)
                    if mine is None or blocks is None:
                        raise NotRing("the number of threads that release is unknown", a)
                    count = count + mine * blocks
                if one is not None and not prove(eq(one, count), context.facts):
                    raise NotRing("positions have different numbers of releases", visit.arrivals[0])
                one = count
            total = total if one is None else total + one
        expected = self._semaphores[name].count
        if not prove(eq(expected, total), context.facts):
            raise NotRing(f"a phase of {name} takes {expected} releases, but gets {simplify(total, context.facts)}")


def _inside(trees: list[CursorTree], blocks: Conditions) -> list[CursorTree]:
    """A skeleton without the conditions that select an endpoint's blocks."""
    found: list[CursorTree] = []
    for tree in trees:
        if isinstance(tree, Node):
            found.append(tree)
            continue
        key, inner = tree
        if not isinstance(key, Node):
            key = tuple(c for c in key if c not in blocks)
        if isinstance(key, Node) or key:
            found.append((key, _inside(inner, blocks)))
        else:
            found += _inside(inner, blocks)
    return found


def _check_blocks_alike(traversal: tuple[Part, ...], own: set[str]) -> None:
    """Blocks that share a ring visit the same positions. ``own``: block indices that select a ring."""
    for part in traversal:
        match part:
            case Repeat(node=Node(stmt=For() as loop) as node):
                used = loop.start.free | loop.stop.free | loop.step.free
                if used & (BLOCKS - own):
                    raise NotRing(f"the trip count of the loop over {loop.var} differs between blocks of one ring", node)
                _check_blocks_alike(part.inner, own)
            case Choice(conditions=conditions, inner=inner) | Either(conditions=conditions, inner=inner):
                if any(c.free & (BLOCKS - own) for c in conditions):
                    raise NotRing("some blocks of one ring visit positions that others do not", *(v.advance for v in visits(inner)))
                _check_blocks_alike(inner, own)
            case Visit() | Repeat():
                pass
