"""Rings inside one role: slots of a buffer that threads use in turn, numbered by a cursor without mbarriers.

All ``m`` advances of such a cursor stand in one block of statements, which all its threads execute equally often. A use in this block, after ``j < m`` of
them, at a slot ``k`` further than the cursor's, is at position ``m*I + j + k``, where ``I`` counts the executions of the block, through all loops around
it. A use before the loop whose body the block is has ``j = 0`` and ``I`` earlier executions. Two uses of one slot are at positions that differ by a
multiple of the number of slots ``S``. This gives the least number of executions of the block between them, and so a set of statements that are passed in any
case: more executions only add to it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass
from math import lcm

from taskfuse.check.accesses import Use
from taskfuse.check.barriers import uneven
from taskfuse.check.paths import Paths, PathStep
from taskfuse.check.ranges import terms_of
from taskfuse.check.statement_tree import Node, StatementBlock, StatementTree
from taskfuse.check.threads import Threads
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import Const, Expr, Mod, Sym, const
from taskfuse.kir.nodes import For
from taskfuse.kir.synchronization import Advance, Cursor, CursorInit


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """The position of a statement: ``count`` after the cursor at the start of the block's execution, ``inside`` the block, or before the loop."""

    node: Node
    count: int
    inside: bool


@dataclass(frozen=True, slots=True, eq=False)
class MultiBuffer:
    """A cursor that counts positions.

    Attributes:
        moves: its advances, in the order of the text.
        block: their block.
    """

    cursor: str
    slots: int
    moves: tuple[Node, ...]
    block: StatementBlock
    paths: Paths

    @property
    def loop(self) -> Node | None:
        """The loop whose body the block is."""
        owner = self.block.owner
        return owner if owner is not None and isinstance(owner.stmt, For) else None

    def position(self, node: Node, ahead: int) -> Position | None:
        """The position of a use at a slot with an offset from the cursor; ``None`` if it is outside the block, or after the last advance."""
        place = next((n for n in node.path if n.block is self.block), None)
        if place is not None:
            return None if place.index > self.moves[-1].index else Position(node, sum(move.index < place.index for move in self.moves) + ahead, True)
        loop = self.loop
        front = None if loop is None else next((n for n in node.path if n.block is loop.block), None)
        return Position(node, ahead, False) if loop is not None and front is not None and front.index < loop.index else None

    def counts(self, loop: Node) -> bool:
        """True if different iterations of a loop are different positions."""
        return loop in self.block.context.loops

    def passed(self, x: Position, y: Position) -> Iterator[tuple[list[PathStep], int]]:
        """The statements passed in any case from ``x`` to a later ``y`` at the same slot, and the distance in positions.

        One position without an execution of the block between them is excluded. The least of several distances stands for all.
        """
        gap = y.count - x.count
        if x.inside == y.inside and gap and gap % self.slots == 0:
            steps = self.paths.forward(x.node, y.node)
            if steps is not None:
                yield steps, gap
        rounds = self._rounds(gap, 1 if x.inside else 0)
        steps = None if rounds is None else self._steps(x, y, rounds)
        if steps is not None and rounds is not None:
            yield steps, len(self.moves) * rounds + gap

    def _steps(self, x: Position, y: Position, rounds: int) -> list[PathStep] | None:
        """From ``x`` to a later ``y``, some executions of the block further; ``None`` if control never goes there."""
        if x.inside and y.inside:
            return self.paths.again(x.node, y.node, self.block, rounds - 1) if self.block.context.loops else None
        loop = self.loop
        assert loop is not None
        if x.inside:
            begin, whole = self.paths.rest(x.node, self.block), rounds - 1
        else:
            front = self.paths.forward(x.node, loop)
            assert front is not None
            begin, whole = front, rounds
        middle = begin + whole * self.paths.body(loop)
        if y.inside:
            return middle + self.paths.start(y.node, self.block)
        outer = next((n for n in reversed(loop.loops) if n in y.node.loops), None)
        return None if outer is None else middle + self.paths.around(loop, y.node, outer)

    def _rounds(self, gap: int, least: int) -> int | None:
        """The least ``k >= least`` with ``m*k + gap`` a multiple of the slots, if there is one."""
        m, slots = len(self.moves), self.slots
        period = lcm(m, slots) // m
        return next((k for k in range(least, least + period) if (m * k + gap) % slots == 0), None)


@dataclass(frozen=True, slots=True, eq=False)
class PrivatePair:
    """Two uses of one slot."""

    ring: MultiBuffer
    uses: tuple[Use, Use]
    at: tuple[Position, Position]

    @property
    def same(self) -> bool:
        """True if both may be at one position with no execution of the block between them."""
        one, two = self.at
        return one.count == two.count and one.inside == two.inside

    def later(self) -> Iterator[tuple[Use, Use, list[PathStep], int]]:
        """The earlier use, the later one, the statements passed between them in any case, and the distance in positions, unless they are the :attr:`same`."""
        (a, b), (one, two) = self.uses, self.at
        for (first, x), (second, y) in (((a, one), (b, two)), ((b, two), (a, one))):
            for steps, apart in self.ring.passed(x, y):
                yield first, second, steps, apart
            if a is b:
                break


class MultiBuffers:
    """The rings inside one role of a kernel."""

    def __init__(self, tree: StatementTree, threads: Threads, paths: Paths, others: Container[str]) -> None:
        """``others``: slot symbols of cursors with mbarriers."""
        self._rings: dict[str, MultiBuffer] = {}
        starts: dict[str, list[Node]] = {}
        moves: dict[str, list[Node]] = {}
        for n in tree.leaves():
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
                case [Node(stmt=CursorInit(slots=slots)) as start] if Cursor(name).slot.name not in others and not start.loops:
                    pass
                case _:
                    continue
            if any(n.block is not block or not (isinstance(n.stmt, Advance) and n.stmt.count is const(1)) for n in nodes):
                continue
            if uneven(nodes[0]) or threads.split(nodes[0].conditions).varying:
                continue
            self._rings[Cursor(name).slot.name] = MultiBuffer(name, slots, tuple(nodes), block, paths)

    def pair(self, a: Use, b: Use) -> PrivatePair | None:
        """Two uses of one buffer whose slots are those of one cursor, or at a fixed distance; otherwise ``None``."""
        if a.buffer != b.buffer or MEDIA[a.memory].is_by_rank:  # the cursors of other blocks are others
            return None
        for x, y in zip(a.index, b.index, strict=True):
            one, two = self.slot(x), self.slot(y)
            if one is not None and two is not None and one[0] is two[0]:
                first, second = one[0].position(a.node, one[1]), two[0].position(b.node, two[1])
                if first is not None and second is not None:
                    return PrivatePair(one[0], (a, b), (first, second))
        return None

    def slot(self, e: Expr | None) -> tuple[MultiBuffer, int] | None:
        """The ring of a slot, and the slot's offset from its cursor."""
        match e:
            case Sym(name=name) if name in self._rings:
                return self._rings[name], 0
            case Mod(a, Const(slots)):
                terms, constant = terms_of(a)
                match terms:
                    case ((Sym(name=name), 1),) if name in self._rings and slots == self._rings[name].slots:
                        return self._rings[name], constant
                    case _:
                        return None
            case _:
                return None
