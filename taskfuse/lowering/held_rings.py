"""Rings in registers whose slots asynchronous reads hold: a warpgroup computes the next factor of a product while tensor cores read the last one.

``wgmma`` reads the registers of its first factor until its batch is complete (PTX ISA, "wgmma.wait_group"). In a ring of ``stages`` slots each iteration
of the loop around it fills the next slot, issues a batch that reads it, and waits until at most ``in_flight`` younger batches are unfinished::

    for i in 0..T unrolled:  fill slot i % S;  wgmma from slot i % S;  commit;  wait for all but the last n batches

The fill of iteration ``i`` overwrites what the batch of iteration ``i - S`` reads. At most ``n`` batches before it are unfinished: ``n < S`` is enough.
The ring begins at slot 0 whenever its loop is entered, while batches of the last entry may be unfinished: their number of trips is a multiple of ``S``, so
slots follow one another as if it were one loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from taskfuse.ir.scalar import Const, Facts, simplify, sym
from taskfuse.ir.storage import storage_uses
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import MemoryType
from taskfuse.kir.operands import Queue
from taskfuse.lowering.completion import close_batch, issues_to, queue_of, wait_for_reads
from taskfuse.lowering.domains import refused
from taskfuse.lowering.plan import PBind, PLoop, PNode, PSync, statements
from taskfuse.lowering.prefetch import own_ring, rename
from taskfuse.lowering.statements import Statements


@dataclass(frozen=True, slots=True, eq=False)
class HeldRing:
    """A ring in registers that is filled where it is used.

    Attributes:
        tensor: its slots hold elements of this tensor.
        loop: the loop of the plan whose trips take the slots in turn; its trips are a constant.
        reader: what reads a slot asynchronously.
    """

    tensor: TensorView
    loop: PLoop
    reader: TensorView

    @property
    def stages(self) -> int:
        """Its slots."""
        return self.tensor.schedule.stages

    @property
    def slot(self) -> str:
        """The symbol of its slot, until the loop is unrolled."""
        return own_ring(self.tensor).slot.name


def is_held(tv: TensorView, st: Statements) -> bool:
    """Whether a tensor in registers is read asynchronously: a ring of it cannot be filled ahead, since reads hold its slots."""
    return st.indexer.memory[tv] is MemoryType.Local and bool(_readers(tv, st))


def held_rings(rings: Mapping[TensorView, PLoop], st: Statements, facts: Facts) -> list[HeldRing]:
    """Close a batch in each trip of the loops around such rings, and wait in it for those that hold the next slot. ``rings``: tensors, and their loops.

    Raises:
        LoweringError: a slot may be written while a batch holds it.
    """
    found: list[HeldRing] = []
    for tv, loop in rings.items():
        reader, *others = _readers(tv, st)
        if others:
            raise refused(tv, f"{reader.name} and {others[0].name} read its ring in registers asynchronously", "let one tensor read it")
        trips, stages, pending = simplify(loop.extent, facts), tv.schedule.stages, reader.schedule.in_flight
        if not isinstance(trips, Const) or trips.value % stages:
            reason = f"its ring of {stages} slots in registers holds what {reader.name} reads asynchronously, in a loop of {trips} trips"
            raise refused(tv, reason, f"share a loop whose trips are a multiple of {stages} with {reader.name}, such as one split off its reduced axis")
        if pending >= stages:
            reason = f"{pending} unfinished batches of {reader.name} hold all {stages} slots of its ring in registers"
            raise refused(tv, reason, f"circular_buffer({pending + 1}), or {reader.name}.in_flight({stages - 1})")
        loop.extent = trips
        found.append(HeldRing(tv, loop, reader))
        _wait(loop.body, reader, pending)
    return found


def unroll_held(rings: list[HeldRing]) -> None:
    """Unroll the loops of such rings: each copy of the body has a slot that is a constant."""
    for ring in rings:
        ring.loop.unroll = True
        for s in statements(ring.loop.body):
            rename(s, {ring.slot: sym(ring.loop.var) % ring.stages})


def batches_in(nodes: list[PNode], rings: Sequence[HeldRing], queue: Queue) -> int:
    """The least number of batches that one pass of some nodes closes for a queue: those of the trips of such rings, or one."""
    return max(1, *(_passes(nodes, ring.loop) for ring in rings)) if queue is Queue.WGMMA and rings else 1


def _passes(nodes: list[PNode], loop: PLoop) -> int:
    """How often the body of a loop surely runs in one pass of some nodes."""
    for n in nodes:
        match n:
            case PLoop(extent=Const(value=trips), body=body):
                inside = trips if n is loop else trips * _passes(body, loop)
            case PBind(body=body):
                inside = _passes(body, loop)
            case _:
                continue
        if inside:
            return inside
    return 0


def _readers(tv: TensorView, st: Statements) -> list[TensorView]:
    """What reads a tensor asynchronously."""
    return [use.output for use in storage_uses(st.fusion, tv) if queue_of(use.output) is not None]


def _wait(body: list[PNode], reader: TensorView, pending: int) -> None:
    """Close the batch of one trip behind its last instruction, and wait."""
    queue = Queue.WGMMA
    last = max(k for k, n in enumerate(body) if any(s.tv is reader and issues_to(s) is queue for s in statements([n])))
    body.insert(close_batch(body, last, queue, reader), PSync((wait_for_reads(queue, pending),), reader))
