"""The statements that every execution passes between two statements.

Between an execution of ``a`` and a later one of ``b``, in the same iteration of their common loops or across a common loop's back edge, control passes
certain statements in any case: those after ``a`` in the blocks around it, then those before ``b``. Arms are entered if thread indices alone select
their threads, or if their conditions are known to hold; loops, if they are known to have an iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from taskfuse.check.known import ORDERING
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementBlock, StatementTree
from taskfuse.ir.scalar import Expr, ge, lt, sym
from taskfuse.kir.nodes import For


class PathRegion(Enum):
    """The place of a passed statement: after the first one in a block around it, in the block where their paths diverge, before the second one."""

    AFTER = 0
    BETWEEN = 1
    BEFORE = 2


class PathStep(NamedTuple):
    """A statement that is passed.

    Attributes:
        given: conditions around it that hold because the iteration is not the first, or not the last one.
    """

    node: Node
    region: PathRegion
    given: frozenset[Expr] = frozenset()


class Paths:
    """Paths through one kernel, restricted to synchronizing statements."""

    def __init__(self, tree: StatementTree) -> None:
        self._constant = BLOCKS | {e.name for e in tree.kernel.extents} | {p.name for p in tree.kernel.params}
        self._inner: dict[StatementBlock, list[Node]] = {}
        self._holds: set[Node] = set()
        self._stays: dict[StatementBlock, frozenset[Expr]] = {}
        self._passed: dict[tuple[StatementBlock, PathRegion, frozenset[Expr], frozenset[Expr]], tuple[list[PathStep], list[int]]] = {}
        self._behind: dict[tuple[Node, int, frozenset[Expr]], list[PathStep]] = {}
        self._ahead: dict[tuple[Node, int, frozenset[Expr]], list[PathStep]] = {}
        self._turning: dict[Node, tuple[frozenset[Expr], frozenset[Expr]]] = {}
        for node in reversed(tree.nodes):
            if type(node.stmt) in ORDERING or any(n in self._holds for block in node.blocks for n in block.nodes):
                self._holds.add(node)
        for node in tree.nodes:
            if node in self._holds:
                self._inner.setdefault(node.block, []).append(node)

    def holds(self, node: Node) -> bool:
        """True if a statement synchronizes, or contains one that does."""
        return node in self._holds

    def _within(
        self, block: StatementBlock, low: int, high: int, region: PathRegion, known: frozenset[Expr], given: frozenset[Expr] = frozenset()
    ) -> list[PathStep]:
        """The steps through the statements of a block at positions ``low <= index < high``: a part of the steps through the whole block."""
        if block not in self._inner or low >= high:
            return []
        key = block, region, known, given
        found = self._passed.get(key)
        if found is None:
            steps: list[PathStep] = []
            ends = [0]  # for each position, how many steps there are in front of it
            for node in self._inner[block]:
                ends += [len(steps)] * (node.index + 1 - len(ends))
                steps += [PathStep(n, region, given) for n in self._inside(node, known)]
            found = self._passed[key] = steps, ends + [len(steps)] * (len(block.nodes) + 1 - len(ends))
        steps, ends = found
        return steps[ends[low] : ends[high]]

    def _inside(self, node: Node, known: frozenset[Expr]) -> Iterator[Node]:
        if not node.blocks:
            yield node
        elif not isinstance(node.stmt, For) or node.runs():
            for block in node.blocks:
                added = block.context.conditions[len(node.conditions) :]
                if all(c in known or (c.free <= THREADS | self._constant and not c.free.isdisjoint(THREADS)) for c in added):
                    for inner in self._inner.get(block, ()):
                        yield from self._inside(inner, known)

    def _known(self, node: Node) -> frozenset[Expr]:
        """Conditions around a node that hold throughout the kernel if they hold once."""
        found = self._stays.get(node.block)
        if found is None:
            found = self._stays[node.block] = frozenset([c for c in node.conditions if c.free <= self._constant])
        return found

    def forward(self, a: Node, b: Node) -> list[PathStep] | None:
        """From ``a`` to ``b`` in one iteration of their common loops; ``None`` if control never takes this path."""
        one, two = a.path, b.path
        depth = 0
        while depth < min(len(one), len(two)) and one[depth] is two[depth]:
            depth += 1
        if depth == len(one) or depth == len(two):
            return None
        first, second = one[depth], two[depth]
        if first.block is not second.block or first.index >= second.index:
            return None
        between = self._within(first.block, first.index + 1, second.index, PathRegion.BETWEEN, self._known(a) | self._known(b))
        return self._after(a, depth + 1) + between + self._before(b, depth + 1)

    def around(self, a: Node, b: Node, loop: Node, between: int = 0) -> list[PathStep]:
        """From ``a`` to ``b`` in a later iteration of a loop around both, with at least ``between`` whole iterations between the two."""
        depth = a.path.index(loop) + 1
        not_first, not_last = self._not_at_ends(loop)
        return self._after(a, depth, not_last) + between * self.body(loop) + self._before(b, depth, not_first)

    def _not_at_ends(self, loop: Node) -> tuple[frozenset[Expr], frozenset[Expr]]:
        """The conditions on a loop's variable in its body that hold in all iterations but the first, and those that hold in all but the last."""
        found = self._turning.get(loop)
        if found is None:
            stmt = loop.stmt
            assert isinstance(stmt, For)
            usable = self._constant | {stmt.var}
            asked = {c for c in self._conditions(loop.blocks[0]) if stmt.var in c.free and c.free <= usable}
            not_first = not_last = frozenset[Expr]()
            if asked:
                inside, at = loop.blocks[0].context.constraints, sym(stmt.var)
                later, earlier = inside.given(ge(at, stmt.start + stmt.step)), inside.given(lt(at + stmt.step, stmt.stop))
                not_first = frozenset(c for c in asked if later.ranges.implies(c) or later.proves(c))
                not_last = frozenset(c for c in asked if earlier.ranges.implies(c) or earlier.proves(c))
            found = self._turning[loop] = not_first, not_last
        return found

    def _conditions(self, block: StatementBlock) -> Iterator[Expr]:
        """The conditions of arms in a block around what is passed there."""
        for node in self._inner.get(block, ()):
            for inner in node.blocks:
                yield from inner.context.conditions[len(node.conditions) :]
                yield from self._conditions(inner)

    def again(self, a: Node, b: Node, block: StatementBlock, between: int) -> list[PathStep]:
        """From ``a`` to ``b`` in a later execution of a block around both, with at least ``between`` whole ones between the two."""
        whole = self._within(block, 0, len(block.nodes), PathRegion.BETWEEN, self._known(a) | self._known(b)) if between else []
        return self.rest(a, block) + between * whole + self.start(b, block)

    def rest(self, a: Node, block: StatementBlock) -> list[PathStep]:
        """From ``a`` to the end of a block around it."""
        return self._after(a, _depth(a, block))

    def start(self, b: Node, block: StatementBlock) -> list[PathStep]:
        """From the beginning of a block around ``b`` to ``b``."""
        return self._before(b, _depth(b, block))

    def passed(self, a: Node, b: Node, later: int) -> list[PathStep] | None:
        """From ``a`` to ``b``, some iterations of the innermost loop around ``b`` later; ``None`` if control never takes this path."""
        return self.around(a, b, b.loops[-1], later - 1) if later else self.forward(a, b)

    def body(self, loop: Node) -> list[PathStep]:
        """A whole iteration of a loop."""
        block = loop.blocks[0]
        return self._within(block, 0, len(block.nodes), PathRegion.BETWEEN, self._known(loop))

    def to_end(self, a: Node) -> list[PathStep]:
        """From ``a`` to the end of the kernel."""
        return self._after(a, 0)

    def from_start(self, b: Node) -> list[PathStep]:
        """From the start of the kernel to ``b``."""
        return self._before(b, 0)

    def _after(self, a: Node, depth: int, given: frozenset[Expr] = frozenset()) -> list[PathStep]:
        """From ``a`` to the end of the block around the node of its path at a depth; ``given``: what holds in this iteration."""
        key = a, depth, given
        found = self._behind.get(key)
        if found is None:
            known = self._known(a) | given
            found = self._behind[key] = []
            for node in reversed(a.path[depth:]):
                found += self._within(node.block, node.index + 1, len(node.block.nodes), PathRegion.AFTER, known, given)
        return found

    def _before(self, b: Node, depth: int, given: frozenset[Expr] = frozenset()) -> list[PathStep]:
        """From the start of the block around the node of its path at a depth to ``b``; ``given``: what holds in this iteration."""
        key = b, depth, given
        found = self._ahead.get(key)
        if found is None:
            known = self._known(b) | given
            found = self._ahead[key] = []
            for node in b.path[depth:]:
                found += self._within(node.block, 0, node.index, PathRegion.BEFORE, known, given)
        return found


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """A statement that threads pass together.

    Attributes:
        threads: conditions on the threads that pass it.
        alike: names of the symbols on which two of them must agree.
    """

    node: Node
    threads: frozenset[Expr]
    alike: frozenset[str]


class SyncPoints:
    """Statements that threads pass together, directly in the blocks around a place."""

    def __init__(self, sync_points: Iterable[SyncPoint]) -> None:
        self._sync_points: dict[StatementBlock, list[SyncPoint]] = {}
        for sync_point in sorted(sync_points, key=lambda c: c.node.number):
            self._sync_points.setdefault(sync_point.node.block, []).append(sync_point)

    def separate(self, a: Node, b: Node, equal: frozenset[str]) -> bool:
        """True only if two threads that agree on some symbols pass one between ``a`` and ``b``, in either order, whichever thread executes which."""
        if a.number > b.number:
            a, b = b, a
        depth = next((k for k, (x, y) in enumerate(zip(a.path, b.path, strict=False)) if x is not y), None)
        if depth is None or a.path[depth].block is not b.path[depth].block:
            return False
        both = frozenset(a.conditions).intersection(b.conditions)
        passed: dict[StatementBlock, list[int]] = {}
        for block in {n.block for n in (*a.path, *b.path)} & self._sync_points.keys():
            places = [c.node.index for c in self._sync_points[block] if c.threads <= both and c.alike <= equal]
            if places:
                passed[block] = places
        one, two = a.path[depth], b.path[depth]
        between = any(one.index < k < two.index for k in passed.get(one.block, ()))
        if not between and not _behind(a, depth + 1, passed) and not _ahead(b, depth + 1, passed):
            return False
        inner = (k + 1 for k, n in enumerate(a.path[:depth]) if isinstance(n.stmt, For))
        return all(_behind(x, k, passed) or _ahead(y, k, passed) for k in inner for x, y in ((a, b), (b, a)))


def _behind(a: Node, depth: int, passed: Mapping[StatementBlock, list[int]]) -> bool:
    return any(n.block in passed and passed[n.block][-1] > n.index for n in a.path[depth:])


def _ahead(b: Node, depth: int, passed: Mapping[StatementBlock, list[int]]) -> bool:
    return any(n.block in passed and passed[n.block][0] < n.index for n in b.path[depth:])


def _depth(a: Node, block: StatementBlock) -> int:
    """Which node of a path stands in a block."""
    return next(k for k, n in enumerate(a.path) if n.block is block)


def common_loops(a: Node, b: Node) -> list[Node]:
    """Loops around both, innermost first."""
    shared = [x for x, y in zip(a.loops, b.loops, strict=False) if x is y]
    return shared[::-1]
