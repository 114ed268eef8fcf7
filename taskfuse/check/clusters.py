"""Clusters: which loops and conditions are the same in all blocks of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from taskfuse.check.statement_tree import BLOCK_NAMES, Node, StatementTree
from taskfuse.ir.scalar import Expr, Facts, Sym, const, is_multiple, private, simplify, substitute, sym
from taskfuse.ir.types import CLUSTER_TYPES, ParallelType
from taskfuse.kir.clusters import constant_shape
from taskfuse.kir.nodes import For
from taskfuse.reports.certificate import Layer, Obligation, Verdict

Types = tuple[ParallelType, ...]


def place(block: str) -> Sym:
    """A block's place in its cluster along a block index."""
    return private(f"{block}.place")


def whole_clusters(tree: StatementTree) -> Iterator[Obligation]:
    """Whether the grid consists of whole clusters along each axis, as a launch requires."""
    kernel, facts = tree.kernel, tree.declared.facts
    for block, blocks, size in zip(BLOCK_NAMES, kernel.grid, kernel.cluster, strict=True):
        if size is not const(1) and not is_multiple(blocks, size, facts):
            yield Obligation(Layer.STRUCTURE, "clusters", Verdict.OUTSIDE, f"nothing shows that {blocks} blocks along {block} are whole clusters of {size}")


class Clusters:
    """Questions about the blocks of one kernel's clusters; a block's index in its cluster is a remainder of its index in the grid.

    Attributes:
        shape: extents (x, y, z); ``None`` if they are not constant.
        grid: blocks of the grid.
    """

    def __init__(self, tree: StatementTree) -> None:
        self.shape = constant_shape(tree.kernel.cluster)
        self.grid = tree.kernel.grid
        self._known: dict[Types, Facts] = {}

    def _named(self, across: Types) -> dict[str, Expr]:
        """Block indices on some types, written as a cluster's index times its extent plus the block's place in it."""
        assert self.shape is not None
        return {
            b: (private(f"{b}.cluster") * n if g is not const(n) else const(0)) + place(b)
            for b, n, g, p in zip(BLOCK_NAMES, self.shape, self.grid, CLUSTER_TYPES, strict=True)
            if p in across
        }

    def _facts(self, across: Types) -> Facts:
        assert self.shape is not None
        facts = self._known.get(across)
        if facts is None:
            facts = Facts()
            for b, n, p in zip(BLOCK_NAMES, self.shape, CLUSTER_TYPES, strict=True):
                if p in across:
                    facts = facts.with_range(private(f"{b}.cluster").name, 0, None).with_range(place(b).name, 0, n - 1)
            self._known[across] = facts
        return facts

    def placed(self, e: Expr, across: Types) -> Expr:
        """An expression in terms of a block's place in its cluster."""
        return simplify(substitute(e, self._named(across)), self._facts(across))

    def alike(self, e: Expr, across: Types) -> bool:
        """True only if an expression has one value in all blocks that some cluster types join (its other symbols being equal)."""
        if e.free.isdisjoint(BLOCK_NAMES):
            return True
        return self.shape is not None and self.placed(e, across).free.isdisjoint(place(b).name for b in BLOCK_NAMES)

    def is_own(self, rank: Expr, facts: Facts) -> bool:
        """True only if a rank is that of the block that names it."""
        if self.shape is None:
            return False
        own: Expr = const(0)
        for b, n, g in reversed(list(zip(BLOCK_NAMES, self.shape, self.grid, strict=True))):
            own = own * n + (sym(b) if g is const(n) else sym(b) % n if n > 1 else const(0))
        return simplify(rank - own, facts) is const(0)

    def uneven(self, node: Node, across: Types) -> str:
        """Why blocks may reach a place different numbers of times; empty if they do not."""
        for loop in node.loops:
            assert isinstance(loop.stmt, For)
            if not all(self.alike(e, across) for e in (loop.stmt.start, loop.stmt.stop, loop.stmt.step)):
                return f"the trip count of the loop over {loop.stmt.var} differs between blocks of the cluster"
        if not all(self.alike(c, across) for c in node.conditions):
            return "blocks of the cluster may differ in whether they reach it"
        return ""
