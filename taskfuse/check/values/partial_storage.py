"""Storage of partial results: accumulators, totals of scans, states of folds and workspaces. Each belongs to one tensor and has no other use.

A statement that sets or adds to partial results is no write of an element, so readers of elements do not look for it, nor do the readers of another
tensor's partial results. What takes terms is a register: the rules about terms are those of one thread.
"""

from __future__ import annotations

from taskfuse.check.statement_tree import Node
from taskfuse.check.values.solve import Open
from taskfuse.check.values.writes import Writes
from taskfuse.ir.medium import MEDIA
from taskfuse.kir.operands import Content, Holds


class PartialStorage:
    """The buffers of a kernel that hold partial results."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._tensors: dict[str, dict[str, Node]] = {}
        self._taking: dict[str, Node] = {}

    def enter(self, node: Node, holds: Holds) -> None:
        """Add a statement that starts, adds to, multiplies or joins partial results."""
        for access in node.accesses[0]:
            self._tensors.setdefault(access.buffer, {}).setdefault(holds.tensor, node)
            if holds.content is Content.TERM:
                self._taking.setdefault(access.buffer, node)

    def check(self) -> None:
        """Each buffer belongs to one tensor, has no other use, and is a register if it takes terms. Raises :class:`Open`."""
        for buffer, tensors in self._tensors.items():
            for claim in self._writes.claims.get(buffer, []):
                raise Open(f"{buffer} holds partial results of {next(iter(tensors))}, and {claim.content.value}s of {claim.tensor}", claim.node)
            self._writes.overlaid.alone(buffer)
            if len(tensors) > 1:
                raise Open(f"{buffer} holds partial results of {' and of '.join(sorted(tensors))}", *tensors.values())
        for buffer, node in self._taking.items():
            if not MEDIA[self._writes.storages[buffer].memory].is_private:
                raise Open(f"{buffer} takes terms, and is no register", node)
