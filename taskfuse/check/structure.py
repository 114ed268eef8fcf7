"""The structure layer over one tree: its barriers and its rings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from taskfuse.check.barriers import Barriers
from taskfuse.check.multibuffers import MultiBuffers
from taskfuse.check.paths import Paths
from taskfuse.check.rings import Rings
from taskfuse.check.semaphores import BlockRings
from taskfuse.check.statement_tree import StatementTree
from taskfuse.check.threads import Threads
from taskfuse.kir.synchronization import Cursor


@dataclass(frozen=True, eq=False)
class Structure:
    """The barriers and rings of a tree; its obligations are theirs."""

    tree: StatementTree
    threads: Threads
    paths: Paths
    barriers: Barriers
    rings: Rings
    multibuffers: MultiBuffers

    @staticmethod
    def of(tree: StatementTree) -> Structure:
        """The structure of a tree."""
        threads, paths = Threads(tree), Paths(tree)
        barriers = Barriers(tree, threads)
        rings = Rings(tree, threads, barriers, paths)
        if tree.kernel.semaphores:
            BlockRings(tree, threads, rings)
        others = {Cursor(e.cursor).slot.name for ring in rings.rings for e in ring.endpoints}
        return Structure(tree, threads, paths, barriers, rings, MultiBuffers(tree, threads, paths, others))

    @cached_property
    def copied_out(self) -> Structure:
        """The structure of the tree in which loops with asynchronous operations are copied out."""
        return Structure.of(self.tree.copied_out())
