"""Rings inside one role: a circular buffer whose writer and readers are the same threads' code.

Each iteration of the innermost loop around the tensor uses the next of ``stages`` slots, so that a slot is written again only ``stages``
iterations later: the barrier that orders the data orders the reuse of the slot, too, and the sync pass needs no second one.
"""

from __future__ import annotations

from taskfuse.ir.scalar import Expr, const, sym
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.nodes import Advance, CursorInit
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.domains import refused
from taskfuse.lowering.indexing import Indexer
from taskfuse.lowering.plan import PLoop, PNode, PSync, children, statements
from taskfuse.schedule.joins import Loop


class Rings:
    """The rings inside roles, and the slots of all rings.

    Attributes:
        loops: tensor name -> the loop whose iterations take its slots in turn, and their number.
    """

    def __init__(self, indexer: Indexer, channels: Channels) -> None:
        self._channels = channels
        self._ring: dict[TensorView, Loop] = {}
        for tv in indexer.tree.place:
            if tv.schedule.stages == 1 or channels.channel(tv) is not None:
                continue
            if indexer.memory[tv] is MemoryType.Local:
                raise refused(tv, f"it would be a circular buffer of {tv.schedule.stages} slots in registers", "set_memory_type(Shared), or circular_buffer(1)")
            around = zip(indexer.joins.path[tv], tv.loop[: tv.schedule.inline], strict=False)
            loops = [loop for loop, a in around if tv.schedule.ptype(a).is_loop]
            if loops:
                self._ring[tv] = loops[-1]
        self.loops = {tv.name: (loop, tv.schedule.stages) for tv, loop in self._ring.items()}

    def slots(self, tv: TensorView) -> int:
        """The depth of the ring that the storage of ``tv`` has; 0 if it has none."""
        channel = self._channels.channel(tv)
        if channel is not None:
            return channel.stages
        return tv.schedule.stages if tv in self._ring else 0

    def slot(self, tv: TensorView, task: Task) -> Expr | None:
        """The slot that code of ``task`` uses; ``None`` if ``tv`` has no ring."""
        return sym(f"{tv.name}.ring.slot") if tv in self._ring else self._channels.slot(tv, task)

    def insert(self, plan: list[PNode]) -> None:
        """Put the cursors into the plan: they start with the kernel and advance at the end of each iteration."""
        for tv, loop in self._ring.items():
            cursor = f"{tv.name}.ring"
            _advance(plan, loop, tv, PSync((Advance(cursor, const(1)),)))
            plan.insert(0, PSync((CursorInit(cursor, tv.schedule.stages, 0, 0),)))


def _advance(nodes: list[PNode], loop: Loop, tv: TensorView, step: PSync) -> None:
    for n in nodes:
        if isinstance(n, PLoop) and n.loop is loop:
            if any(s.tv is tv for s in statements(n.body)):
                n.body.append(step)
        else:
            for block in children(n):
                _advance(block, loop, tv, step)
