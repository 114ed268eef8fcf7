"""Which write does a read see? In a kernel whose order is proved and that has no race: the last one before it in the sequential nest.

Conflicting accesses are ordered in every interleaving, and happens-before is part of one total order of all events (docs/proof.md, "Order"): program order
with the loops of a ring's ends superimposed. So a read sees the last write before it in that order. The search goes backwards from the read: in the same
iteration of the loops that both share; in the iteration before; before the loop. A read at a position of a ring sees the write at that position.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from taskfuse.check.constraints import Constraints
from taskfuse.check.multibuffers import MultiBuffer, MultiBuffers
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node
from taskfuse.check.tables import ValueTable
from taskfuse.check.traversals import Visit
from taskfuse.check.values.arms import in_other_arm
from taskfuse.check.values.claims import Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.last_write import LastWrite, Look, around
from taskfuse.check.values.questions import equal, inside, known_at, nonempty
from taskfuse.check.values.runs import stores
from taskfuse.check.values.solve import Open
from taskfuse.check.values.updates import Updates
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import cursors_of
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Const, Expr, Sym, const, eq, ge, substitute, sym
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.operands import Content
from taskfuse.kir.synchronization import Cursor

ROWS = 1 << 21
"""The most values of an index that are tried one by one."""


class ReachingWrites:
    """The writes that the reads of a kernel find."""

    def __init__(self, writes: Writes, rings: Rings, multibuffers: MultiBuffers, updates: Updates) -> None:
        self.writes = writes
        self._updates = updates
        self._multibuffers = multibuffers
        self._last = LastWrite(writes)
        self._consumers = {Cursor(e.cursor).slot.name: (r, e) for r in rings.rings for e in r.consumers}
        self._producers = {Cursor(r.producer.cursor).slot.name: r for r in rings.rings}
        self._whole: dict[str, bool] = {}

    def found(self, want: Place, given: Iterable[Expr] = (), *, past: bool = False) -> tuple[Place, ...]:
        """A read finds the elements that it must find.

        Returns:
            The writes that it may find.

        Args:
            given: further conditions under which the elements matter.
            past: also where they do not exist: it must find zeros there.

        Raises:
            Open: no proof was found.
        """
        self._last.hits = []
        given = tuple(given)
        if want.buffer in self._updates.tensors:
            if past:
                raise Open(f"{want.buffer}, which is updated, is read past its end", want.node)
            self._updates.read(want)
            return ()
        if past:
            self.writes.check_part(want, given)
        self._find(self.writes.whole(want, given), given, past=past)
        return tuple(self._last.hits)

    def _find(self, want: Place, given: Iterable[Expr], *, past: bool) -> None:
        if not past and self._is_plain(want):
            return
        shape = self.writes.shape(want.tensor, want.content)
        constraints = known_at(want).given(*given)
        if not past:
            constraints = constraints.given(*inside(want.element, shape))
        if constraints.empty:
            return
        if want.buffer in self.writes.inputs:
            self._argument(want, constraints, past=past)
            return
        skip = next((k for k, e in enumerate(want.index) if isinstance(e, Sym) and e.name in self._consumers), None)
        if skip is not None:
            self._ring(want, skip, constraints, past=past)
            return
        slots = [(k, found) for k, e in enumerate(want.index) if (found := self._multibuffers.slot(e)) is not None]
        self._last.spared(want, constraints, slots[0][0] if slots else None, past=past)
        if slots:
            self._own_ring(want, *slots[0], constraints, past=past)
            return
        self.writes.overlaid.clear(want)
        if not past and self._stored_before(want, constraints):
            return
        self._last.backwards(want, want.node, constraints, past=past)

    def _is_plain(self, want: Place) -> bool:
        """True if nothing needs a prover: an argument read at the index that is wanted, or what this thread has just written at this index in a register.

        That is the last write in the text before the read, in a block around it, so wherever the read is executed; and in the same iterations of all loops in
        which the register is written.
        """
        if want.buffer in self.writes.inputs:
            return want.tensor == want.buffer and want.index == want.element
        if not MEDIA[self.writes.storages[want.buffer].memory].is_private or want.offset is not None:
            return False
        last = max((c for c in self.writes.claims.get(want.buffer, []) if c.node.number < want.node.number), key=lambda c: c.node.number, default=None)
        if last is None or last.given or last.offset is not None or last.tensor != want.tensor or last.content is not want.content:
            return False
        if last.points or last.index != want.index or last.element != want.element or not any(n.block is last.node.block for n in want.node.path):
            return self._is_listed(last, want)
        again = [n for n in want.node.loops if n not in last.node.loops]
        if any(n in c.node.loops for c in self.writes.claims[want.buffer] for n in again):  # what stands behind the read is before it in the next iteration
            return False
        fixed = {n.stmt.var for n in last.node.loops if isinstance(n.stmt, For)} | THREADS | BLOCKS
        if any(not e.free <= fixed for e in last.index) or cursors_of(last.element):  # what moves in between: slots of cursors
            return False
        self.writes.overlaid.clear(want)
        self._last.hits.append(last)
        return True

    def _is_listed(self, last: Place, want: Place) -> bool:
        """True if what the last write in the text before the read leaves in a register is the wanted element, by its text.

        The write stands in loops of its own, or is an instruction of several elements: their symbols, each an axis of the index, are what the index of the
        read says. Nothing decides whether it is executed but what is around both, and these loops have constant bounds, so in each iteration of the loops
        around both it is executed for every index within them.
        """
        pair = next(((x, y) for x, y in zip(last.node.path, want.node.path, strict=False) if x is not y), None)
        if pair is None or pair[0].block is not pair[1].block or self.writes.overlaid.shared_with(want.buffer):
            return False
        common = pair[0].block.context
        loops = [n.stmt for n in last.node.loops[len(common.loops) :] if isinstance(n.stmt, For)]
        spans = {s.var: (s.start, s.stop) for s in loops if s.step is const(1)} | {name: (const(0), const(n)) for name, n in last.points}
        around = [n.stmt.var for n in want.node.loops if isinstance(n.stmt, For)]
        again = [n for n in want.node.loops if n not in common.loops]
        fixed = {n.stmt.var for n in common.loops if isinstance(n.stmt, For)} | THREADS | BLOCKS | {e.name for e in self.writes.tree.kernel.extents}
        if (
            last.node.conditions != common.conditions
            or len(spans) != len(loops) + len(last.points)
            or len(set(around)) != len(around)
            or not fixed.isdisjoint(spans)
            or any(n in c.node.loops for c in self.writes.claims[want.buffer] for n in again)
            or len(last.index) != len(want.index)
        ):
            return False
        at: dict[str, Expr] = {}
        for mine, theirs in zip(last.index, want.index, strict=True):
            if isinstance(mine, Sym) and mine.name in spans:
                if at.setdefault(mine.name, theirs) is not theirs:
                    return False
            elif mine is not theirs or not mine.free <= fixed:
                return False
        known = fixed | at.keys()
        if not all(e.free <= known and substitute(e, at) is wanted for e, wanted in zip(last.element, want.element, strict=True)):
            return False
        ranges = known_at(want).ranges
        for name, (start, stop) in spans.items():
            lo, hi = ranges.of(at.get(name, start))
            if not isinstance(start, Const) or not isinstance(stop, Const) or lo is None or hi is None or lo < start.value or hi >= stop.value:
                return False
        self._last.hits.append(last)
        return True

    def _argument(self, want: Place, constraints: Constraints, *, past: bool) -> None:
        if want.tensor != want.buffer:
            raise Open(f"it reads {want.buffer} where {want.tensor} is wanted", want.node)
        if past and not isinstance(want.node.stmt, TmaLoad):
            raise Open(f"it may read {want.buffer} past its end", want.node)
        for k, (e, wanted) in enumerate(zip(want.index, want.element, strict=True)):
            if not equal(constraints, e, wanted) and not self._equal_everywhere(want, e - wanted, constraints):
                raise Open(f"it reads index {e} of {want.buffer} on axis {k}, where {wanted} is wanted", want.node)

    @staticmethod
    def _equal_everywhere(want: Place, difference: Expr, constraints: Constraints) -> bool:
        """True if a difference of few values is 0 for all of them."""
        spans = {n: constraints.ranges.of(sym(n)) for n in difference.free}
        size = 1
        for lo, hi in spans.values():
            size *= ROWS + 1 if lo is None or hi is None else hi - lo + 1
        if size > ROWS:
            return False
        table = ValueTable([{n: np.arange(lo or 0, (hi or 0) + 1)} for n, (lo, hi) in spans.items()])
        return not np.any(table.grid(difference))

    def _stored_before(self, want: Place, constraints: Constraints) -> bool:
        """True if a workspace in Global memory that lies as its tensor does has been stored whole, once, by statements that are over."""
        claims = self.writes.claims.get(want.buffer, [])
        if MEDIA[self.writes.storages[want.buffer].memory].reach is not Reach.GRID or not claims or want.content is not Content.VALUE:
            return False
        if any(n in want.node.loops for c in claims for n in c.node.loops) or any(c.node.number > want.node.number for c in claims):
            return False
        if any(in_other_arm(c.node, want.node) for c in claims) or any(c.tensor != want.tensor or c.content is not Content.VALUE for c in claims):
            return False
        shape = self.writes.shape(want.tensor)
        axes = [k for k, n in enumerate(shape) if n is not const(1)]  # of an axis with one element storage knows nothing
        if len(axes) != len(self.writes.storages[want.buffer].shape):
            axes = list(range(len(shape)))
        if any(len(p.index) != len(axes) for p in (want, *claims)):  # it lies in another way
            return False
        if not all(equal(constraints, e, want.element[k]) for e, k in zip(want.index, axes, strict=True)):
            return False
        if want.buffer not in self._whole:
            try:
                same = all(equal(known_at(c), e, c.element[k]) for c in claims for e, k in zip(c.index, axes, strict=True))
                self._whole[want.buffer] = same
                if same:
                    known = self.writes.tree.root.context.constraints
                    covered([stores(self.writes.tree, c, shape) for c in claims], shape, known.given(*nonempty(shape, known.ranges)))
            except Open:
                self._whole[want.buffer] = False
        return self._whole[want.buffer]

    # -- rings ----------------------------------------------------------------------------------------------------------------------

    def _ring(self, want: Place, skip: int, constraints: Constraints, *, past: bool) -> None:
        """What is read at a position of a ring is what its producer wrote at that position."""
        slot = want.index[skip]
        assert isinstance(slot, Sym)
        ring, consumer = self._consumers[slot.name]
        here = [v for v in consumer.visits() if _encloses(v, want.node)]
        fills = [u for u, v in ring.pairs if any(v is h for h in here)]
        if len(here) != 1 or len(fills) != 1:
            raise Open("the position of a ring that it reads is not known", want.node)
        if self.writes.overlaid.shared_with(want.buffer):
            raise Open(f"{want.buffer}, a ring, lies on other storage", want.node)
        loops = around(want.node)
        for x, y in ring.loops:
            if y in want.node.loops and isinstance(y.stmt, For):
                loops[x] = sym(y.stmt.var)
        for x, y, behind in ring.later:
            if y in want.node.loops and isinstance(y.stmt, For):
                loops[x] = sym(y.stmt.var) - behind
        for loop, pingpong in ring.pingpong:
            if isinstance(loop.stmt, For) and consumer.pingpong is pingpong:
                loops[loop] = pingpong.index + loop.stmt.start
        claims: list[Place] = []
        for c in self.writes.claims.get(want.buffer, []):
            mine = next((e for e in c.index if isinstance(e, Sym) and e.name in self._producers and self._producers[e.name] is ring), None)
            if mine is None or len(c.index) <= skip or c.index[skip] is not mine:
                raise Open(f"{want.buffer} is written elsewhere than at slots of its ring", c.node)
            if _encloses(fills[0], c.node):
                claims.append(c)
        if not self._last.scan(want, [Look(tuple(reversed(claims)), loops, skip)], constraints, past=past):
            raise Open(f"its producer is not known to write it at every position of {ring.full}", want.node)

    def _own_ring(self, want: Place, skip: int, slot: tuple[MultiBuffer, int], constraints: Constraints, *, past: bool) -> None:
        """What is read at a position that a role fills for itself is what was written at that position, in this execution of the block or an earlier one.

        Other code of the role may write the same storage, but not between a write and a read of one execution of the block. Where a slot is filled ahead, in
        front of the loop or in an iteration before, other buffers may lie on the ring's storage if they are used before all or after all of its
        accesses, and in none of the loops around these: so never between a fill and the read that it is for.
        """
        self.writes.overlaid.clear(want)
        for n in want.node.loops:
            self.writes.overlaid.keeps(want, n)
        ring, ahead = slot
        at = ring.position(want.node, ahead)
        if at is None or not at.inside:
            raise Open("the position of a ring that it reads is not known", want.node)
        moves = len(ring.moves)
        loop = ring.loop
        front: list[tuple[int, Place]] = []
        within: list[tuple[int, Place]] = []
        elsewhere: list[Place] = []
        for c in self.writes.claims.get(want.buffer, []):
            mine = self._multibuffers.slot(c.index[skip])
            place = None if mine is None or mine[0] is not ring else ring.position(c.node, mine[1])
            if place is None:
                elsewhere.append(c)
                continue
            if not place.inside:
                front.append((place.count - at.count, c))
                continue
            behind = c.node.number > want.node.number
            again = behind and any(n in want.node.loops for n in c.node.loops if not ring.counts(n))  # and before it in the next iteration, of one position
            later = place.count - at.count - (moves if behind and not again else 0)
            if later >= ring.slots or (again and later == 0):
                raise Open("a slot is written again before it is read", c.node, want.node)
            within.append((place.count - at.count, c))
        current = [c for d, c in within if d == 0 and c.node.number < want.node.number]
        common = around(want.node)
        for c in elsewhere:
            if not current or in_other_arm(c.node, want.node) or not _is_apart(c.node, [*(x.node for x in current), want.node], ring):
                raise Open(f"{want.buffer} is written at a position that is not known", c.node)
        if current and self._last.scan(want, [Look(tuple(reversed(current)), common, skip)], constraints, past=past):
            return
        if elsewhere:
            raise Open(f"{want.buffer} is written at a position that is not known", elsewhere[0].node)
        for n in {n for _, c in (*front, *within) for n in c.node.loops}:
            self.writes.overlaid.keeps(want, n)
        if loop is None:
            raise Open(f"no write of {want.buffer} is known to come before it in every case", want.node)
        stmt = loop.stmt
        assert isinstance(stmt, For)
        if stmt.step is not const(1):
            raise Open("a ring is filled ahead in a loop with another step than 1", loop)
        var = sym(stmt.var)
        distances = sorted({d for d, _ in within if d > 0})
        if any(d % moves for d in distances):
            raise Open("a ring is not filled ahead by whole executions of a block", want.node)
        trips = distances[0] // moves if distances else max((d for d, _ in front), default=-1) // moves + 1
        if len(distances) > 1:
            raise Open("a ring is filled ahead at several distances", want.node)
        ahead_claims = tuple(c for d, c in reversed(within) if d > 0)
        rest = constraints.given(ge(var, stmt.start + trips))
        if not rest.empty and not self._last.scan(want, [Look(ahead_claims, {**common, loop: var - trips}, skip)], rest, past=past):
            raise Open(f"no write of {want.buffer} is known at its position", want.node)
        for p in range(trips):
            first = constraints.given(eq(var, stmt.start + p))
            mine = tuple(c for d, c in reversed(front) if d == p * moves)
            if not first.empty and not self._last.scan(want, [Look(mine, common, skip)], first, past=past):
                raise Open(f"no write of {want.buffer} is known at its first positions", want.node)


def _is_apart(node: Node, uses: list[Node], ring: MultiBuffer) -> bool:
    """True if a statement never runs between others of one execution of the block of a ring: it stands outside, before all of them or after all of them."""
    places = [next((n.index for n in x.path if n.block is ring.block), None) for x in (node, *uses)]
    mine, *theirs = places
    if mine is None:
        return True
    return all(t is not None and t > mine for t in theirs) or all(t is not None and t < mine for t in theirs)


def _encloses(visit: Visit, node: Node) -> bool:
    """True if a statement stands between the wait and the advance of a position, and is executed only if these are."""
    move = visit.advance
    if visit.wait is None or node.loops[: len(move.loops)] != move.loops or not set(move.conditions) <= set(node.conditions):
        return False
    return visit.wait.number < node.number < move.number
