"""Notes: what the kernel text says about the synchronization before and after a dispatch."""

from __future__ import annotations

from taskfuse.ir.storage import has_code, producers, storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.plan import PDispatch, PNode, PSync, children
from taskfuse.schedule.order import is_vertical


class Notes:
    """Writes the note of every dispatch of a plan, after barriers and channels are in."""

    def __init__(self, indexer: Indexer, channels: Channels) -> None:
        self.indexer = indexer
        self.channels = channels

    def write(self, nodes: list[PNode], before: bool = False, after: bool = False) -> None:
        """Set the notes below ``nodes``. ``before``, ``after``: a barrier stands there in a block around them."""
        for k, n in enumerate(nodes):
            earlier = before or any(self._barrier(m) for m in nodes[:k])
            later = after or any(self._barrier(m) for m in nodes[k + 1 :])
            if isinstance(n, PDispatch):
                inside = set(self.indexer.ranges.tensors(n.group))
                kind = "vertical" if is_vertical(n.group) else "horizontal"
                entering = self._say(self._entering(inside), earlier, "enters")
                leaving = self._say(self._leaving(inside), later, "leaves")
                ptype = n.group.ptype.value if n.group.ptype is not None else ""
                n.note = f"{n.group.name}: {kind} on {ptype}; {entering}; {leaving}"
            for block in children(n):
                self.write(block, earlier, later)

    def _barrier(self, n: PNode) -> bool:
        return isinstance(n, PSync) and n.is_barrier

    def _entering(self, inside: set[TensorView]) -> list[TensorView]:
        found: dict[TensorView, None] = {}
        for tv in sorted(inside, key=lambda t: t.id):
            found.update((p, None) for p in producers(self.indexer.fusion, tv) if p not in inside and not p.is_input)
        return list(found)

    def _leaving(self, inside: set[TensorView]) -> list[TensorView]:
        fusion = self.indexer.fusion
        return [t for t in sorted(inside, key=lambda t: t.id) if any(has_code(fusion, u) and u.output not in inside for u in storage_uses(fusion, t))]

    def _say(self, data: list[TensorView], has_barrier: bool, verb: str) -> str:
        if not data:
            return f"no data {verb}"
        names = dict.fromkeys(ch.name for tv in data if (ch := self.channels.channel(tv)) is not None)
        if names and all(self.channels.channel(tv) is not None for tv in data):
            return f"{', '.join(names)} orders what {verb}"
        return f"a barrier orders what {verb}" if has_barrier else f"what {verb} stays with its thread"
