"""Overlaid storage: a write to an overlapping buffer destroys the elements of a buffer."""

from __future__ import annotations

from itertools import product

from taskfuse.check.accesses import overlapping
from taskfuse.check.statement_tree import BLOCKS, THREADS, Node, StatementTree
from taskfuse.check.values.arms import in_concurrent_arm
from taskfuse.check.values.claims import Place
from taskfuse.check.values.solve import Open
from taskfuse.ir.types import MemoryType


class OverlaidStorage:
    """The buffers of a kernel that share bytes, and the statements that use them."""

    def __init__(self, tree: StatementTree) -> None:
        self._tree = tree
        self._nodes: dict[str, list[Node]] = {}
        self._overlaps: dict[str, list[str]] = {}
        for a, b in overlapping(tree):
            self._overlaps.setdefault(a, []).append(b)
            self._overlaps.setdefault(b, []).append(a)

    def clear(self, want: Place) -> None:
        """No other buffer is written in the storage of a buffer between its first access and its last one, in the order of the text."""
        others = self.shared_with(want.buffer)
        if not others:
            return
        mine = self._accesses(want.buffer)
        for other in others:
            theirs = self._accesses(other)
            if theirs and mine and not (theirs[-1].number < mine[0].number or mine[-1].number < theirs[0].number):
                raise Open(f"{other} lies on the storage of {want.buffer}, and is used between", theirs[0])
            self._apart(want.buffer, other)

    def _apart(self, buffer: str, other: str) -> None:
        """No thread uses one of two buffers in an arm while another one uses the other in another arm. Raises :class:`Open`."""
        mine, theirs = ({n.block: n for n in self._accesses(name)}.values() for name in (buffer, other))
        for a, b in product(mine, theirs):
            if in_concurrent_arm(a, b, MemoryType.Shared):
                raise Open(f"{other} lies on the storage of {buffer}, and is used in another arm, in no known order", b, a)

    def keeps(self, want: Place, loop: Node) -> None:
        """An iteration of a loop preserves a buffer's previous content: no other buffer is written in its storage there."""
        for other in self.shared_with(want.buffer):
            used = next((n for n in self._accesses(other) if loop in n.path), None)
            if used is not None:
                raise Open(f"{other} lies on the storage of {want.buffer}, and is used in an iteration between", used)

    def alone(self, buffer: str) -> None:
        """No other buffer is written in the storage of a buffer in one iteration of the loops around its accesses, between the first one and the last."""
        mine = self._accesses(buffer)
        if not mine:
            return
        inner = {n for a in mine for n in a.loops if any(n not in b.loops for b in mine)}
        for other in self.shared_with(buffer):
            for n in self._accesses(other):
                if mine[0].number < n.number < mine[-1].number or not inner.isdisjoint(n.loops):
                    raise Open(f"{other} lies on the storage of {buffer}, and is used between", n)
            self._apart(buffer, other)

    def shared_with(self, buffer: str) -> list[str]:
        """The buffers that share a buffer's storage in one block: not those of blocks that take another arm."""
        return [o for o in self._overlaps.get(buffer, []) if not all(_in_other_blocks(a, b) for a in self._accesses(buffer) for b in self._accesses(o))]

    def _accesses(self, buffer: str) -> list[Node]:
        if not self._nodes:
            for n in self._tree.leaves():
                for name in dict.fromkeys(a.buffer for side in n.accesses for a in side):
                    self._nodes.setdefault(name, []).append(n)
        return self._nodes.get(buffer, [])


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
