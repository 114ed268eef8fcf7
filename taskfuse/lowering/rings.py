"""Rings inside one role: a circular buffer whose writer and readers are the same threads' code.

Each iteration of the innermost loop around the tensor uses the next of ``stages`` slots. The role fills them ahead where it can
(:mod:`taskfuse.lowering.prefetch`). Where it cannot, a slot is written again only ``stages`` iterations later: the barrier that orders the data orders the
reuse of the slot, too, and the sync pass needs no second one.
"""

from __future__ import annotations

from collections.abc import Mapping

from taskfuse.ir.scalar import Expr, const, sym
from taskfuse.ir.tasks import Task
from taskfuse.ir.tensor import TensorView
from taskfuse.kir.synchronization import Advance, CursorInit
from taskfuse.lowering.channels import Channels
from taskfuse.lowering.plan import PLoop, PNode, PSync, children, statements
from taskfuse.lowering.prefetch import Prefetch, prefetch
from taskfuse.lowering.statements import Statements
from taskfuse.schedule.joins import Loop


class Rings:
    """The rings inside roles, and the slots of all rings.

    Attributes:
        loops: tensor name -> the loop whose iterations take its slots in turn, and their number.
    """

    def __init__(self, ring: dict[TensorView, Loop], channels: Channels) -> None:
        self._channels = channels
        self._ring = ring
        self.prefetches: list[Prefetch] = []

    @staticmethod
    def of(channels: Channels, paths: Mapping[TensorView, tuple[Loop, ...]]) -> Rings:
        """Those of all circular buffers that are no boundary of a channel. ``paths``: the loops of the nest around each tensor."""
        ring: dict[TensorView, Loop] = {}
        for tv in channels.tree.place:
            if tv.schedule.stages == 1 or channels.channel(tv) is not None:
                continue
            around = zip(paths[tv], tv.loop[: tv.schedule.inline], strict=False)
            loops = [loop for loop, a in around if tv.schedule.ptype(a).is_loop]
            if loops:
                ring[tv] = loops[-1]
        return Rings(ring, channels)

    @property
    def loops(self) -> dict[str, tuple[Loop, int]]:
        """The rings whose slots are filled where they are used: their loops, and how many slots they have."""
        ahead = {tv for a in self.prefetches for tv in a.tensors}
        return {tv.name: (loop, tv.schedule.stages) for tv, loop in self._ring.items() if tv not in ahead}

    def prefetch(self, plan: list[PNode], statements: Statements) -> None:
        """Let all rings that can be filled ahead be so. Raises :class:`LoweringError` (see :func:`prefetch`)."""
        self.prefetches = prefetch(plan, self._ring, statements, self._channels)

    def slots(self, tv: TensorView) -> int:
        """The depth of the ring that the storage of ``tv`` has; 0 if it has none."""
        channel = self._channels.channel(tv)
        if channel is not None:
            return channel.stages
        shared = next((a.stages for a in self.prefetches if tv in a.tensors), tv.schedule.stages)
        return shared if tv in self._ring else 0

    def slot(self, tv: TensorView, task: Task) -> Expr | None:
        """The slot that code of ``task`` uses; ``None`` if ``tv`` has no ring."""
        return sym(f"{tv.name}.ring.slot") if tv in self._ring else self._channels.slot(tv, task)

    def full(self, tv: TensorView) -> str | None:
        """The mbarriers at which a fill of the ring of ``tv`` is complete, until rings share them."""
        return f"{tv.name}.ring.full" if tv in self._ring else self._channels.full(tv)

    def barriers(self) -> list[tuple[str, int, Expr]]:
        """The mbarrier arrays: name, slots, arrivals per phase: that of the thread which starts the copies."""
        return [(a.full, a.stages, const(1)) for a in self.prefetches if a.full is not None]

    def insert(self, plan: list[PNode]) -> None:
        """Put the cursors into the plan: they start with the kernel and advance at the end of each iteration."""
        for ahead in self.prefetches:
            if not ahead.in_registers:
                ahead.loop.body.append(PSync((Advance(ahead.cursor, const(1)),), ahead.tensors[0]))
                plan.insert(0, PSync((CursorInit(ahead.cursor, ahead.stages, 0, 0),), ahead.tensors[0]))
        ahead = {tv for a in self.prefetches for tv in a.tensors}
        for tv, loop in self._ring.items():
            if tv not in ahead:
                cursor = f"{tv.name}.ring"
                _advance(plan, loop, tv, PSync((Advance(cursor, const(1)),), tv))
                plan.insert(0, PSync((CursorInit(cursor, tv.schedule.stages, 0, 0),), tv))


def _advance(nodes: list[PNode], loop: Loop, tv: TensorView, step: PSync) -> None:
    for n in nodes:
        if isinstance(n, PLoop) and n.loop is loop:
            if any(s.tv is tv for s in statements(n.body)):
                n.body.append(step)
        else:
            for block in children(n):
                _advance(block, loop, tv, step)
