"""The last write before a read, in the order of the text: searched for backwards from the read.

In the same iteration of the loops that both share; in the iteration before; before the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from taskfuse.check.constraints import Constraints
from taskfuse.check.statement_tree import Node
from taskfuse.check.tables import ValueTable
from taskfuse.check.values.arms import in_concurrent_arm, in_other_arm
from taskfuse.check.values.claims import Place
from taskfuse.check.values.match import where_found
from taskfuse.check.values.questions import inside, proves
from taskfuse.check.values.solve import Open
from taskfuse.check.values.write_and_read import Found, WriteAndRead
from taskfuse.check.values.writes import Writes
from taskfuse.check.values.written import Writing, written_symbol
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Expr, and_, const, eq, ge, lt, not_, substitute, sym
from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, MemoryType
from taskfuse.kir.nodes import For, TmaLoad
from taskfuse.kir.operands import Content

TRIPS = 9
"""The number of iterations that are searched backwards for a write, minus one."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Writes to try, the last one first; the enclosing loops at the read; and the axis of the slot."""

    claims: tuple[Place, ...]
    loops: Mapping[Node, Expr]
    skip: int | None = None


class LastWrite:
    """The search for the writes that one read may find.

    Attributes:
        hits: the writes found so far.
    """

    def __init__(self, writes: Writes) -> None:
        self.writes = writes
        self.hits: list[Place] = []
        self._writings: dict[tuple[object, ...], Writing] = {}

    def backwards(self, want: Place, at: Node, constraints: Constraints, *, past: bool) -> None:
        """The last write before a node: in the same iteration of the loops around it, in an earlier one, or before the innermost loop."""
        loop = at.loops[-1] if at.loops else None
        claims = [c for c in self.writes.claims.get(want.buffer, []) if loop is None or loop in c.node.path]
        here = around(at)
        earlier = Look(tuple(c for c in reversed(claims) if c.node.number < at.number and at not in c.node.path), here)
        if self.scan(want, [earlier], constraints, past=past):
            return
        if loop is None:
            raise Open(f"no write of {want.buffer} is known to come before it in every case", want.node)
        self.writes.overlaid.keeps(want, loop)
        outside = {n: e for n, e in here.items() if n is not loop}
        if not self.scan(want, [Look(tuple(reversed(claims)), outside)], constraints, past=past, may=True):
            self.backwards(want, loop, constraints, past=past)
            return
        stmt = loop.stmt
        assert isinstance(stmt, For)
        var, looks = sym(stmt.var), [earlier]
        for distance in range(1, TRIPS):
            first = constraints.given(eq(var, stmt.start + stmt.step * (distance - 1)))
            if not first.empty:
                self.backwards(want, loop, first, past=past)
            constraints = constraints.given(ge(var, stmt.start + stmt.step * distance))
            if constraints.empty:
                return
            looks.append(Look(tuple(reversed(claims)), {**outside, loop: var - stmt.step * distance}))
            if self.scan(want, looks, constraints, past=past):
                return
        raise Open(f"no write of {want.buffer} is known to come before it in every case", want.node)

    def spared(self, want: Place, constraints: Constraints, skip: int | None = None, *, past: bool) -> None:
        """What is read is not overwritten in another arm that other threads take in the same iteration: nothing orders the two, but waits may.

        Raises:
            Open: no proof was found.
        """
        storage = self.writes.storages[want.buffer]
        for claim in self.writes.claims.get(want.buffer, []):
            if not in_concurrent_arm(claim.node, want.node, storage.memory):
                continue
            shape = () if claim.content is Content.ZERO else self.writes.shape(claim.tensor, claim.content)
            writing = Writing(claim, storage.memory, self._symbols(claim, Look((), {})))
            found = where_found(WriteAndRead(writing, want, storage, shape, skip, constraints, None, past=past))
            if found is not None and (claim.tensor != want.tensor or claim.content is not want.content):
                raise Open("it is written in another arm, in no known order", claim.node)

    def _symbols(self, claim: Place, look: Look) -> dict[str, Expr]:
        """What symbols of a write are at the read: of loops, and of blocks where those of a cluster write for each other."""
        same = {n.stmt.var: look.loops[n] for n in claim.node.loops if isinstance(n.stmt, For) and n in look.loops}
        stmt = claim.node.stmt
        if isinstance(stmt, TmaLoad) and stmt.across and self.writes.storages[claim.buffer].memory is MemoryType.Shared:
            for block, cluster, extent in zip(BLOCK_TYPES, CLUSTER_TYPES, self.writes.tree.kernel.cluster, strict=True):
                if cluster in stmt.across:
                    b = sym(block.index_name)
                    same[block.index_name] = b // extent * extent + written_symbol(f"{b}.issuer")
        return same

    def scan(self, want: Place, looks: list[Look], constraints: Constraints, *, past: bool, among: ValueTable | None = None, may: bool = False) -> bool:
        """True if the read finds one of some writes in every case, tried from the last one on. All that it may find have the same element.

        Args:
            may: true if any of them may be found at all.
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

    def _last(self, claim: Place, want: Place, look: Look, constraints: Constraints, among: ValueTable | None, error: Open, *, past: bool) -> Found:
        """What the last iterations of loops that are over have left, if they write all of it."""
        loops = dict(look.loops)
        for n in claim.node.loops:
            s = n.stmt
            if n in loops or not isinstance(s, For) or s.step is not const(1):
                continue
            values = {m.stmt.var: e for m, e in loops.items() if isinstance(m.stmt, For)}
            start, stop = substitute(s.start, values), substitute(s.stop, values)
            if not proves(constraints, lt(start, stop)):  # it may have no iteration
                break
            loops[n] = stop - 1
            try:
                found = self._match(claim, want, Look((), loops, look.skip), constraints, among, past=past)
            except Open:
                continue
            if found is not None and not found.under and found.rest is None:
                return found
        raise error.again()

    def _match(self, claim: Place, want: Place, look: Look, constraints: Constraints, among: ValueTable | None, *, past: bool) -> Found | None:
        shape = () if claim.content is Content.ZERO else self.writes.shape(claim.tensor, claim.content)
        storage = self.writes.storages[want.buffer]
        same = self._symbols(claim, look)
        key = claim, *same.items()
        writing = self._writings.get(key)
        if writing is None:
            writing = self._writings[key] = Writing(claim, storage.memory, same)
        found = where_found(WriteAndRead(writing, want, storage, shape, look.skip, constraints, among, past=past))
        if found is None:
            return None
        if look.skip is None and not MEDIA[self.writes.storages[want.buffer].memory].is_private and in_other_arm(claim.node, want.node):
            raise Open("it is written in another arm, in no known order", claim.node)
        for n in claim.node.loops:
            if n not in look.loops:  # of any iteration, so later ones leave it
                self.writes.overlaid.keeps(want, n)
        if claim.content is Content.ZERO:
            if past and any(proves(constraints, not_(c)) for c in inside(want.element, self.writes.shape(want.tensor, want.content))):
                return found
            raise Open(f"it may find a zero in the place of {want.tensor}", claim.node)
        self.hits.append(claim)
        if claim.tensor != want.tensor or claim.content is not want.content:
            raise Open(f"it may find {claim.tensor} where {want.tensor} is wanted", claim.node)
        return found


def around(node: Node) -> dict[Node, Expr]:
    """The loops around a statement, in the same iteration."""
    return {n: sym(n.stmt.var) for n in node.loops if isinstance(n.stmt, For)}
