"""Which write does a read see? In a kernel whose order is proved and that has no race: the last one before it in the sequential nest.

Conflicting accesses are ordered in every interleaving, and happens-before is part of one total order of all events (docs/proof.md, "Order"): program order
with the loops of a ring's ends superimposed. So a read sees the last write before it in that order. The search goes backwards from the read: in the same
iteration of the loops that both share; in the iteration before; before the loop. A read at a position of a ring sees the write at that position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from taskfuse.check.accesses import overlapping
from taskfuse.check.constraints import Constraints
from taskfuse.check.multibuffers import MultiBuffer, MultiBuffers
from taskfuse.check.rings import Rings
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementTree
from taskfuse.check.tables import Table
from taskfuse.check.traversals import Visit
from taskfuse.check.values.claims import Instructions, Place
from taskfuse.check.values.cover import covered
from taskfuse.check.values.match import Found, Match, Storage, W, Writing
from taskfuse.check.values.questions import equal, inside, known_at, nonempty, proves
from taskfuse.check.values.runs import stores
from taskfuse.check.values.solve import Open
from taskfuse.ir.medium import MEDIA, Reach
from taskfuse.ir.scalar import Const, Expr, Sym, and_, const, eq, ge, not_, substitute, sym
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, MemoryType
from taskfuse.kir import accesses
from taskfuse.kir.declarations import TensorParam
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.operands import Content, Holds
from taskfuse.kir.witness import Definition, Whole

ROWS = 1 << 21
TRIPS = 9
"""How many iterations back a write is looked for, less one."""


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Writes to look at, the last one first; what loops around them are at the read; and the axis that says a slot."""

    claims: tuple[Place, ...]
    loops: Mapping[Node, Expr]
    skip: int | None = None


class ReachingWrites:
    """The writes of a kernel that say what they hold.

    Attributes:
        claims: buffer -> the writes of elements and bodies, in the order of the text.
        storages: how buffers and arguments lie.
        definitions: what the tensors are.
    """

    def __init__(self, tree: StatementTree, instructions: Instructions, rings: Rings, multibuffers: MultiBuffers) -> None:
        kernel = tree.kernel
        self.tree = tree
        self.instructions = instructions
        self.multibuffers = multibuffers
        self.claims: dict[str, list[Place]] = {}
        self.definitions: dict[str, Definition] = {d.tensor: d for d in kernel.definitions}
        self.inputs = {p.name: p for p in kernel.params if isinstance(p, TensorParam) and not p.is_output}
        self.storages = {b.name: Storage(b.memory, b.shape, b.dtype.itemsize) for b in kernel.buffers}
        self.storages |= {p.name: Storage(MemoryType.Global, p.shape, p.dtype.itemsize) for p in kernel.params if isinstance(p, TensorParam)}
        self.wholes = {
            part: (d.tensor, place) for d in kernel.definitions if isinstance(d.rule, Whole) for part, place in zip(d.rule.parts, d.rule.places, strict=True)
        }
        self.rings = {e.cursor + ".slot": (r, e) for r in rings.rings for e in r.consumers}
        self.producers = {r.producer.cursor + ".slot": r for r in rings.rings}
        self.hits: list[Place] = []
        self._whole: dict[str, bool] = {}
        self._writings: dict[tuple[object, ...], Writing] = {}
        self._nodes: dict[str, list[Node]] = {}
        self._overlaps: dict[str, list[str]] = {}
        for a, b in overlapping(tree):
            self._overlaps.setdefault(a, []).append(b)
            self._overlaps.setdefault(b, []).append(a)

    def claim(self, node: Node, holds: Holds) -> Place:
        """A write, entered."""
        place = self.instructions.written(node, holds)
        self._in_its_part(place, ())
        place = self.whole(place)
        stmt = node.stmt
        if isinstance(stmt, TmaLoad) and stmt.across:
            types = zip(BLOCK_TYPES, CLUSTER_TYPES, self.tree.kernel.cluster, strict=True)
            issuers = ((f"{b.index_name}.issuer", c.value) for b, t, c in types if t in stmt.across and isinstance(c, Const))
            place = replace(place, points=(*place.points, *issuers))
        if holds.content in (Content.VALUE, Content.BODY, Content.ZERO):
            self.claims.setdefault(place.buffer, []).append(place)
        return place

    def whole(self, place: Place) -> Place:
        """The same elements as those of the outermost tensor that theirs is a part of."""
        while place.content is Content.VALUE and place.tensor in self.wholes:
            place = self._outer(place)
        return place

    def _outer(self, place: Place) -> Place:
        """The same elements as those of what their tensor is a part of."""
        tensor, at = self.wholes[place.tensor]
        point = {f"i{k}": e for k, e in enumerate(place.element)}
        return replace(place, tensor=tensor, element=tuple(substitute(e, point) for e in at))

    def _in_its_part(self, place: Place, given: Iterable[Expr]) -> None:
        """Behind the end of a part its whole has no element, which would be another part's. Raises :class:`Open`."""
        while place.content is Content.VALUE and place.tensor in self.wholes:
            whole = self._outer(place)
            around = known_at(place).given(*given)
            others = inside(whole.element, self.shape(whole.tensor))
            for c in inside(place.element, self.shape(place.tensor)):
                behind = around.given(not_(c)) if not proves(around, c) else None
                if behind is not None and not behind.empty and not any(proves(behind, not_(o)) for o in others):
                    raise Open(f"it may be past the end of {place.tensor}, where {whole.tensor} has elements of another part", place.node)
            place = whole

    def shape(self, tensor: str, content: Content = Content.VALUE) -> tuple[Expr, ...]:
        """The extents of a tensor, or of its iteration space."""
        if tensor in self.inputs:
            return self.inputs[tensor].shape
        d = self.definitions[tensor]
        return d.space if content is Content.BODY else d.shape

    # -- one read -------------------------------------------------------------------------------------------------------------------

    def found(self, want: Place, given: Iterable[Expr] = (), *, past: bool = False) -> tuple[Place, ...]:
        """A read finds the elements that it must find.

        Returns:
            The writes that it may find.

        Args:
            given: what else holds where they matter.
            past: also where they do not exist: there it must find zeros.

        Raises:
            Open: it is not known to.
        """
        self.hits = []
        if past:
            self._in_its_part(want, given := tuple(given))
        self._find(self.whole(want), given, past=past)
        return tuple(self.hits)

    def _find(self, want: Place, given: Iterable[Expr], *, past: bool) -> None:
        if not past and self._is_plain(want):
            return
        shape = self.shape(want.tensor, want.content)
        constraints = known_at(want).given(*given)
        if not past:
            constraints = constraints.given(*inside(want.element, shape))
        if constraints.empty:
            return
        if want.buffer in self.inputs:
            self._argument(want, constraints, past=past)
            return
        skip = next((k for k, e in enumerate(want.index) if isinstance(e, Sym) and e.name in self.rings), None)
        if skip is not None:
            self._ring(want, skip, constraints, past=past)
            return
        slots = [(k, found) for k, e in enumerate(want.index) if (found := self.multibuffers.slot(e)) is not None]
        if slots:
            self._multibuffers(want, *slots[0], constraints, past=past)
            return
        self._clear(want)
        if not past and self._stored_before(want, constraints):
            return
        self._backwards(want, want.node, constraints, past=past)

    def _is_plain(self, want: Place) -> bool:
        """True if nothing needs a prover: an argument read at the index that is wanted, or what this thread has just written at this index in a register.

        That is the last write in the text before the read, in a block around it, so in the same iterations and wherever the read is executed.
        """
        if want.buffer in self.inputs:
            return want.tensor == want.buffer and want.index == want.element
        if not MEDIA[self.storages[want.buffer].memory].is_private or want.offset is not None:
            return False
        last = max((c for c in self.claims.get(want.buffer, []) if c.node.number < want.node.number), key=lambda c: c.node.number, default=None)
        if last is None or last.points or last.given or last.offset is not None or last.index != want.index or last.element != want.element:
            return False
        if last.tensor != want.tensor or last.content is not want.content or not any(n.block is last.node.block for n in want.node.path):
            return False
        fixed = {n.stmt.var for n in last.node.loops if isinstance(n.stmt, For)} | THREADS | BLOCKS
        if any(not e.free <= fixed for e in last.index):  # what moves in between: slots of cursors
            return False
        self._clear(want)
        self.hits.append(last)
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
        table = Table([{n: np.arange(lo or 0, (hi or 0) + 1)} for n, (lo, hi) in spans.items()])
        return not np.any(table.grid(difference))

    def _stored_before(self, want: Place, constraints: Constraints) -> bool:
        """True if a workspace in Global memory that lies as its tensor does has been stored whole, once, by statements that are over."""
        claims = self.claims.get(want.buffer, [])
        if MEDIA[self.storages[want.buffer].memory].reach is not Reach.GRID or not claims or want.content is not Content.VALUE:
            return False
        if any(n in want.node.loops for c in claims for n in c.node.loops) or any(c.node.number > want.node.number for c in claims):
            return False
        if any(_in_other_arm(c.node, want.node) for c in claims) or any(c.tensor != want.tensor or c.content is not Content.VALUE for c in claims):
            return False
        shape = self.shape(want.tensor)
        axes = [k for k, n in enumerate(shape) if n is not const(1)]  # of an axis with one element storage knows nothing
        if len(axes) != len(self.storages[want.buffer].shape):
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
                    known = self.tree.root.context.constraints
                    covered([stores(self.tree, c, shape) for c in claims], shape, known.given(*nonempty(shape, known.ranges)))
            except Open:
                self._whole[want.buffer] = False
        return self._whole[want.buffer]

    # -- where a write may stand ----------------------------------------------------------------------------------------------------

    def _backwards(self, want: Place, at: Node, constraints: Constraints, *, past: bool) -> None:
        """The last write before a node: in the same iteration of the loops around it, in one of those before, or in front of the innermost loop."""
        loop = at.loops[-1] if at.loops else None
        claims = [c for c in self.claims.get(want.buffer, []) if loop is None or loop in c.node.path]
        around = _around(at)
        earlier = _Look(tuple(c for c in reversed(claims) if c.node.number < at.number and at not in c.node.path), around)
        if self._scan(want, [earlier], constraints, past=past):
            return
        if loop is None:
            raise Open(f"no write of {want.buffer} is known to come before it in every case", want.node)
        self._keeps(want, loop)
        outside = {n: e for n, e in around.items() if n is not loop}
        if not self._scan(want, [_Look(tuple(reversed(claims)), outside)], constraints, past=past, may=True):
            self._backwards(want, loop, constraints, past=past)
            return
        stmt = loop.stmt
        assert isinstance(stmt, For)
        var, looks = sym(stmt.var), [earlier]
        for distance in range(1, TRIPS):
            first = constraints.given(eq(var, stmt.start + stmt.step * (distance - 1)))
            if not first.empty:
                self._backwards(want, loop, first, past=past)
            constraints = constraints.given(ge(var, stmt.start + stmt.step * distance))
            if constraints.empty:
                return
            looks.append(_Look(tuple(reversed(claims)), {**outside, loop: var - stmt.step * distance}))
            if self._scan(want, looks, constraints, past=past):
                return
        raise Open(f"no write of {want.buffer} is known to come before it in every case", want.node)

    def _look(self, claim: Place, look: _Look) -> dict[str, Expr]:
        """What symbols of a write are at the read: of loops, and of blocks where those of a cluster write for each other."""
        same = {n.stmt.var: look.loops[n] for n in claim.node.loops if isinstance(n.stmt, For) and n in look.loops}
        stmt = claim.node.stmt
        if isinstance(stmt, TmaLoad) and stmt.across and self.storages[claim.buffer].memory is MemoryType.Shared:
            for block, cluster, extent in zip(BLOCK_TYPES, CLUSTER_TYPES, self.tree.kernel.cluster, strict=True):
                if cluster in stmt.across:
                    b = sym(block.index_name)
                    same[block.index_name] = b // extent * extent + sym(f"{W}{b}.issuer")
        return same

    def _scan(self, want: Place, looks: list[_Look], constraints: Constraints, *, past: bool, among: Table | None = None, may: bool = False) -> bool:
        """True if the read finds one of some writes in every case, tried from the last one on. All that it may find hold the same element.

        Args:
            may: true if one may be found at all, whatever it is.
        """
        for look in looks:
            for claim in look.claims:
                try:
                    outcome = self._match(claim, want, look, constraints, among, past=past)
                except Open as error:
                    if may:
                        return True
                    outcome = self._last(claim, want, look, constraints, among, error, past=past)
                if outcome is None:
                    continue
                if may:
                    return True
                if outcome.rest is not None:
                    among = outcome.rest
                    continue
                if not outcome.under:
                    return True
                constraints = constraints.given(not_(and_(*outcome.under)))
                if constraints.empty:
                    return True
        return False

    def _last(self, claim: Place, want: Place, look: _Look, constraints: Constraints, among: Table | None, error: Open, *, past: bool) -> Found:
        """What the last iterations of loops that are over have left, if they write all of it."""
        loops = dict(look.loops)
        for n in claim.node.loops:
            s = n.stmt
            if n in loops or not isinstance(s, For) or s.step is not const(1):
                continue
            around = {m.stmt.var: e for m, e in loops.items() if isinstance(m.stmt, For)}
            loops[n] = substitute(s.stop, around) - 1
            try:
                found = self._match(claim, want, _Look((), loops, look.skip), constraints, among, past=past)
            except Open:
                continue
            if found is not None and not found.under and found.rest is None:
                return found
        raise error

    def _match(self, claim: Place, want: Place, look: _Look, constraints: Constraints, among: Table | None, *, past: bool) -> Found | None:
        shape = () if claim.content is Content.ZERO else self.shape(claim.tensor, claim.content)
        storage = self.storages[want.buffer]
        same = self._look(claim, look)
        key = claim, *same.items()
        writing = self._writings.get(key)
        if writing is None:
            writing = self._writings[key] = Writing(claim, storage.memory, same)
        found = Match(writing, want, storage, shape, look.skip, constraints, among, past=past).found()
        if found is None:
            return None
        if look.skip is None and not MEDIA[self.storages[want.buffer].memory].is_private and _in_other_arm(claim.node, want.node):
            raise Open("it is written in another arm, in no known order", claim.node)
        for n in claim.node.loops:
            if n not in look.loops:  # of any iteration, so those behind it leave it
                self._keeps(want, n)
        if claim.content is Content.ZERO:
            if past and any(proves(constraints, not_(c)) for c in inside(want.element, self.shape(want.tensor, want.content))):
                return found
            raise Open(f"it may find a zero in the place of {want.tensor}", claim.node)
        self.hits.append(claim)
        if claim.tensor != want.tensor or claim.content is not want.content:
            raise Open(f"it may find {claim.tensor} where {want.tensor} is wanted", claim.node)
        return found

    # -- rings ----------------------------------------------------------------------------------------------------------------------

    def _ring(self, want: Place, skip: int, constraints: Constraints, *, past: bool) -> None:
        """What is read at a position of a ring is what its producer wrote at that position."""
        slot = want.index[skip]
        assert isinstance(slot, Sym)
        ring, consumer = self.rings[slot.name]
        here = [v for v in consumer.visits() if _encloses(v, want.node)]
        fills = [u for u, v in ring.pairs if any(v is h for h in here)]
        if len(here) != 1 or len(fills) != 1:
            raise Open("the position of a ring that it reads is not known", want.node)
        if self._shared_with(want.buffer):
            raise Open(f"{want.buffer}, a ring, lies on other storage", want.node)
        loops = _around(want.node)
        for x, y in ring.loops:
            if y in want.node.loops and isinstance(y.stmt, For):
                loops[x] = sym(y.stmt.var)
        for loop, pingpong in ring.pingpong:
            if isinstance(loop.stmt, For) and consumer.pingpong is pingpong:
                loops[loop] = pingpong.index + loop.stmt.start
        claims: list[Place] = []
        for c in self.claims.get(want.buffer, []):
            mine = next((e for e in c.index if isinstance(e, Sym) and e.name in self.producers and self.producers[e.name] is ring), None)
            if mine is None or c.index[skip] is not mine:
                raise Open(f"{want.buffer} is written elsewhere than at slots of its ring", c.node)
            if _encloses(fills[0], c.node):
                claims.append(c)
        if not self._scan(want, [_Look(tuple(reversed(claims)), loops, skip)], constraints, past=past):
            raise Open(f"its producer is not known to write it at every position of {ring.full}", want.node)

    def _multibuffers(self, want: Place, skip: int, slot: tuple[MultiBuffer, int], constraints: Constraints, *, past: bool) -> None:
        """What is read at a position that a role fills for itself is what was written at that position, in this execution of the block or an earlier one."""
        self._clear(want)
        for n in want.node.loops:
            self._keeps(want, n)
        ring, ahead = slot
        at = ring.position(want.node, ahead)
        if at is None or not at.inside:
            raise Open("the position of a ring that it reads is not known", want.node)
        moves = len(ring.moves)
        loop = ring.loop
        front: list[tuple[int, Place]] = []
        within: list[tuple[int, Place]] = []
        for c in self.claims.get(want.buffer, []):
            mine = self.multibuffers.slot(c.index[skip])
            place = None if mine is None or mine[0] is not ring else ring.position(c.node, mine[1])
            if place is None:
                raise Open(f"{want.buffer} is written at a position that is not known", c.node)
            if not place.inside:
                front.append((place.count - at.count, c))
                continue
            later = place.count - at.count - (moves if c.node.number > want.node.number else 0)
            if later >= ring.slots:
                raise Open("a slot is written again before it is read", c.node, want.node)
            within.append((place.count - at.count, c))
        current = [c for d, c in within if d == 0 and c.node.number < want.node.number]
        common = _around(want.node)
        if current and self._scan(want, [_Look(tuple(reversed(current)), common, skip)], constraints, past=past):
            return
        if loop is None or self._shared_with(want.buffer):
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
        if not rest.empty and not self._scan(want, [_Look(ahead_claims, {**common, loop: var - trips}, skip)], rest, past=past):
            raise Open(f"no write of {want.buffer} is known at its position", want.node)
        for p in range(trips):
            first = constraints.given(eq(var, stmt.start + p))
            mine = tuple(c for d, c in reversed(front) if d == p * moves)
            if not first.empty and not self._scan(want, [_Look(mine, common, skip)], first, past=past):
                raise Open(f"no write of {want.buffer} is known at its first positions", want.node)

    # -- storage that lies on other storage -------------------------------------------------------------------------------------------

    def _clear(self, want: Place) -> None:
        """Nothing else is written into the storage of a buffer between its first access and its last one, in the order of the text."""
        others = self._shared_with(want.buffer)
        if not others:
            return
        mine = self._accesses(want.buffer)
        for other in others:
            theirs = self._accesses(other)
            if theirs and mine and not (theirs[-1].number < mine[0].number or mine[-1].number < theirs[0].number):
                raise Open(f"{other} lies on the storage of {want.buffer}, and is used between", theirs[0])

    def _keeps(self, want: Place, loop: Node) -> None:
        """An iteration of a loop leaves what was in a buffer before it: no other buffer is written into its storage there."""
        for other in self._shared_with(want.buffer):
            used = next((n for n in self._accesses(other) if loop in n.path), None)
            if used is not None:
                raise Open(f"{other} lies on the storage of {want.buffer}, and is used in an iteration between", used)

    def alone(self, buffer: str) -> None:
        """Nothing else is written into the storage of a buffer in one iteration of the loops around its accesses, between the first one and the last."""
        mine = self._accesses(buffer)
        if not mine:
            return
        inner = {n for a in mine for n in a.loops if any(n not in b.loops for b in mine)}
        for other in self._shared_with(buffer):
            for n in self._accesses(other):
                if mine[0].number < n.number < mine[-1].number or not inner.isdisjoint(n.loops):
                    raise Open(f"{other} lies on the storage of {buffer}, and is used between", n)

    def _shared_with(self, buffer: str) -> list[str]:
        """The buffers that lie on a buffer's storage in one block: not those of blocks that take another arm."""
        return [o for o in self._overlaps.get(buffer, []) if not all(_in_other_blocks(a, b) for a in self._accesses(buffer) for b in self._accesses(o))]

    def _accesses(self, buffer: str) -> list[Node]:
        if not self._nodes:
            for n in self.tree.leaves():
                for name in dict.fromkeys(a.buffer for side in accesses(n.stmt) for a in side):
                    self._nodes.setdefault(name, []).append(n)
        return self._nodes.get(buffer, [])


def _around(node: Node) -> dict[Node, Expr]:
    """The loops around a statement, in the same iteration."""
    return {n: sym(n.stmt.var) for n in node.loops if isinstance(n.stmt, For)}


def _in_other_arm(a: Node, b: Node) -> bool:
    """True if two statements stand in different arms of one chain."""
    for x, y in zip(a.path, b.path, strict=False):
        if x.block is not y.block:
            return True
        if x is not y:
            return False
    return False


def _in_other_blocks(a: Node, b: Node) -> bool:
    """True if two statements stand in different arms of a chain that the block index alone decides."""
    for x, y in zip(a.path, b.path, strict=False):
        if x.block is not y.block:
            chain = x.block.owner
            if chain is None or x.block.owner is not y.block.owner:
                return False
            around = len(chain.context.conditions)
            return all(c.free.isdisjoint(THREADS) and not c.free.isdisjoint(BLOCKS) for n in (x, y) for c in n.block.context.conditions[around:])
        if x is not y:
            return False
    return False


def _encloses(visit: Visit, node: Node) -> bool:
    """True if a statement stands between the wait and the advance of a position."""
    if visit.wait is None:
        return False
    place = next((n for n in node.path if n.block is visit.advance.block), None)
    return place is not None and visit.wait.number < node.number < visit.advance.number
