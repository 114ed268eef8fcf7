"""Rings inside one role: slots of a buffer that threads use in turns, numbered by a cursor without mbarriers.

All advances by one of such a cursor stand in one block, ``m`` of them, and all threads that come there come equally often. A use that stands in this
block behind ``j < m`` of them is at position ``m*I + j``, where ``I`` counts the executions of the block, in whatever loops stand around it. Two uses
of one slot are at positions whose difference is a multiple of the number of slots ``S``: at the same one, or ``S`` or more apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from math import lcm

from taskfuse.check.accesses import Use
from taskfuse.check.meetings import uneven
from taskfuse.check.paths import Paths, Step
from taskfuse.check.program import Block, Node, Program
from taskfuse.check.threads import Threads
from taskfuse.ir.scalar import const, sym
from taskfuse.kir.nodes import Advance, CursorInit


@dataclass(frozen=True, slots=True, eq=False)
class PrivateRing:
    """A cursor that counts positions.

    Attributes:
        moves: its advances, in the order of the text.
        block: where they stand.
    """

    cursor: str
    slots: int
    moves: tuple[Node, ...]
    block: Block

    def position(self, u: Use) -> int | None:
        """How many advances of its iteration stand before a use; ``None`` outside of the block, or behind the last one."""
        place = next((n for n in u.node.path if n.block is self.block), None)
        if place is None or place.index > self.moves[-1].index:
            return None
        return sum(move.index < place.index for move in self.moves)

    def counts(self, loop: Node) -> bool:
        """True if different iterations of a loop are different positions."""
        return loop in self.block.context.loops


@dataclass(frozen=True, slots=True, eq=False)
class PrivatePair:
    """Two uses of one slot, behind ``at`` advances each.

    Attributes:
        same: they may be at one position: then they are in one iteration.
    """

    ring: PrivateRing
    uses: tuple[Use, Use]
    at: tuple[int, int]
    paths: Paths

    @property
    def same(self) -> bool:
        """True if both may be at one position: they are in one execution of the block then."""
        return self.at[0] == self.at[1]

    def later(self) -> Iterator[tuple[Use, Use, list[Step]]]:
        """The earlier use, the later one, and what is passed between two different positions in any case.

        What lies between positions that are further apart has all of that in it, in the same order.
        """
        (a, b), (i, j) = self.uses, self.at
        for x, y, gap in ((a, b, j - i), (b, a, i - j)):
            if gap > 0 and gap % self.ring.slots == 0:
                yield x, y, self.paths.forward(x.node, y.node) or []
            rounds = self._rounds(gap)
            if rounds is not None and self.ring.block.context.loops:
                yield x, y, self.paths.again(x.node, y.node, self.ring.block, rounds - 1)
            if a is b:
                break

    def _rounds(self, gap: int) -> int | None:
        """The least ``k >= 1`` with ``m*k + gap`` a positive multiple of the slots, if there is one."""
        m, slots = len(self.ring.moves), self.ring.slots
        period = lcm(m, slots) // m
        return next((k for k in range(1, period + 1) if (m * k + gap) % slots == 0), None)


class PrivateRings:
    """The rings inside one role of a program."""

    def __init__(self, program: Program, threads: Threads, paths: Paths, others: Container[str]) -> None:
        """``others``: slot symbols of cursors with mbarriers."""
        self._paths = paths
        self._rings: dict[str, PrivateRing] = {}
        starts: dict[str, list[Node]] = {}
        moves: dict[str, list[Node]] = {}
        for n in program.leaves():
            match n.stmt:
                case CursorInit(name=name):
                    starts.setdefault(name, []).append(n)
                case Advance(cursor=name):
                    moves.setdefault(name, []).append(n)
                case _:
                    pass
        for name, nodes in moves.items():
            block = nodes[0].block
            match starts.get(name, []):
                case [Node(stmt=CursorInit(slots=slots)) as start] if f"{name}.slot" not in others and not start.loops:
                    pass
                case _:
                    continue
            if any(n.block is not block or not (isinstance(n.stmt, Advance) and n.stmt.count is const(1)) for n in nodes):
                continue
            if uneven(nodes[0]) or threads.split(nodes[0].conditions).varying:
                continue
            self._rings[f"{name}.slot"] = PrivateRing(name, slots, tuple(nodes), block)

    def pair(self, a: Use, b: Use) -> PrivatePair | None:
        """Two uses of one buffer whose slot is that of one cursor; ``None`` if they are none."""
        if a.buffer != b.buffer:
            return None
        for x, y in zip(a.index, b.index, strict=True):
            ring = self._rings.get(str(x)) if x is not None and x is y else None
            if ring is not None and x is sym(f"{ring.cursor}.slot"):
                at = ring.position(a), ring.position(b)
                if at[0] is not None and at[1] is not None:
                    return PrivatePair(ring, (a, b), (at[0], at[1]), self._paths)
        return None
