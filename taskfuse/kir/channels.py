"""Recognizing the channels of a kernel from its statements: mbarriers or semaphores, buffers and roles (docs/channels.md).

A producer waits for an empty slot with a cursor whose parity starts at 1, which a fresh mbarrier lets pass, and with the same cursor fills the
slot and arrives at another mbarrier, or lets the copy engine do so. These two mbarriers are a channel; its consumers wait for the second one.
Between blocks semaphores are in their place: a producer waits for as many phases as its cursor has been around the ring.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from math import prod

from taskfuse.ir.scalar import Const, Expr, const, simplify
from taskfuse.ir.types import MemoryType
from taskfuse.kir.channel_table import ChannelRow, ChannelTable
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import If, Stmt, TmaLoad
from taskfuse.kir.synchronization import Acquire, Cursor, CursorInit, Expect, InitBarrier, Release, Wait
from taskfuse.kir.walk import accesses, barrier_slots, bodies, held


@dataclass(slots=True)
class _Cursor:
    """The uses of a cursor: the mbarriers waited at and arrived at with it, the nodes of the waits, the buffers indexed by its slot.

    ``fills``: it goes one phase ahead, as a producer's does.
    """

    fills: bool
    waits: dict[str, None] = field(default_factory=dict[str, None])
    arrivals: dict[str, None] = field(default_factory=dict[str, None])
    nodes: dict[str, None] = field(default_factory=dict[str, None])
    buffers: dict[str, None] = field(default_factory=dict[str, None])


def channels(kernel: Kernel) -> ChannelTable:
    """The channels of ``kernel``, in the order of its mbarriers and semaphores."""
    statements = list(_labelled(kernel.body, kernel.name))
    cursors = {s.name: _Cursor(s.parity == 1) for _, s in statements if isinstance(s, CursorInit)}
    counts = {s.name: s.count for s in kernel.semaphores}
    expected: dict[str, Expr] = {}
    for label, s in statements:
        match s:
            case InitBarrier():
                counts.setdefault(s.barrier.name, s.count)
            case Expect():
                expected.setdefault(s.barrier.name, s.bytes)
            case _:
                pass
        for name, cursor in cursors.items():
            _note(s, label, cursor, name)
    rings: dict[tuple[str, str], list[_Cursor]] = {}
    for cursor in cursors.values():
        for empty, full in product(cursor.waits, cursor.arrivals):
            if cursor.fills and empty != full:
                rings.setdefault((full, empty), []).append(cursor)
    arrays = {m.name: m.slots for m in kernel.mbarriers}
    arrays |= {s.name: s.shape[-1].value for s in kernel.semaphores if s.shape and isinstance(s.shape[-1], Const)}
    found = [(full, empty, producers) for (full, empty), producers in rings.items() if full in arrays]
    made = [_channel(kernel, full, arrays[full], empty, producers, list(cursors.values()), counts, expected) for full, empty, producers in found]
    order = list(arrays)
    members = {name for ch in made for name in (ch.full, ch.empty)}
    return ChannelTable(tuple(sorted(made, key=lambda ch: order.index(ch.full))), tuple(m for m in kernel.mbarriers if m.name not in members))


def carried(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """The data in the ring of each mbarrier array or semaphore: tensors, according to the witness; or buffers without one.

    The buffers of a ring are the destinations of copies that complete at its mbarrier, and those indexed by the slot of a cursor that waits or arrives there.
    """
    statements = [s for _, s in _labelled(kernel.body, kernel.name)]
    cursors = {s.name: _Cursor(s.parity == 1) for s in statements if isinstance(s, CursorInit)}
    rings: dict[str, dict[str, None]] = {}
    tensors: dict[str, dict[str, None]] = {}
    for stmt in statements:
        for name, cursor in cursors.items():
            _note(stmt, "", cursor, name)
        said = held(stmt)
        for access in accesses(stmt)[0]:
            if said is not None:
                tensors.setdefault(access.buffer, {})[said.tensor] = None
            if isinstance(stmt, TmaLoad):
                rings.setdefault(stmt.barrier.name, {})[access.buffer] = None
    for cursor in cursors.values():
        for name in (*cursor.waits, *cursor.arrivals):
            rings.setdefault(name, {}).update(cursor.buffers)
    stored = {b.name for b in kernel.buffers if b.memory is not MemoryType.Local}
    found = {name: dict.fromkeys(t for b in buffers if b in stored for t in tensors.get(b, (b,))) for name, buffers in rings.items()}
    return {name: tuple(sorted(carries)) for name, carries in found.items() if carries}


def ring_text(kernel: Kernel, stmt: Stmt) -> str:
    """For reports: the data in the ring of the mbarrier or semaphore for which a statement waits, if it does."""
    match stmt:
        case Wait(barrier=slot) | Acquire(semaphore=slot) if found := carried(kernel).get(slot.name):
            return f"; its ring carries {', '.join(found)}"
        case _:
            return ""


def _labelled(body: tuple[Stmt, ...], label: str) -> Iterator[tuple[str, Stmt]]:
    """The statements of ``body`` and all in them, each with the label of the innermost labelled branch around it."""
    for stmt in body:
        yield label, stmt
        labels = [b.label or label for b in stmt.branches] if isinstance(stmt, If) else [label]
        for inner, name in zip(bodies(stmt), labels, strict=False):
            yield from _labelled(inner, name)


def _note(stmt: Stmt, label: str, cursor: _Cursor, name: str) -> None:
    """Record how a statement, without its body, uses the symbols of a cursor."""
    slot = Cursor(name).slot.name
    match stmt:
        case Acquire(semaphore=semaphore, phases=phases) if any(slot in e.free for e in semaphore.index):
            cursor.fills = phases is Cursor(name).phase
            cursor.waits[semaphore.name] = None
            cursor.nodes[label] = None
        case Release(semaphore=semaphore) if any(slot in e.free for e in semaphore.index):
            cursor.arrivals[semaphore.name] = None
        case _:
            pass
    for barrier in barrier_slots(stmt):
        if slot in barrier.slot.free:
            if isinstance(stmt, Wait):
                cursor.waits[barrier.name] = None
                cursor.nodes[label] = None
            else:
                cursor.arrivals[barrier.name] = None
    written, read = accesses(stmt)
    for access in written + read:
        if any(slot in e.free for e in access.index):
            cursor.buffers[access.buffer] = None


def _channel(
    kernel: Kernel, full: str, slots: int, empty: str, producers: list[_Cursor], cursors: list[_Cursor], counts: dict[str, Expr], expected: dict[str, Expr]
) -> ChannelRow:
    consumers = [c for c in cursors if full in c.waits]
    touched = {name for c in (*producers, *consumers) for name in c.buffers}
    memory = MemoryType.Shared if any(m.name == full for m in kernel.mbarriers) else MemoryType.Global
    held = [b for b in kernel.buffers if b.memory is memory and b.name in touched]
    size = sum((const(b.dtype.itemsize) * prod(b.shape, start=const(1)) for b in held), const(0))
    prefix = full.rpartition(".")[0]
    return ChannelRow(
        name=prefix if prefix and prefix == empty.rpartition(".")[0] else full,
        full=full,
        empty=empty,
        slots=slots,
        buffers=tuple(b.name for b in held),
        slot_bytes=simplify(size // slots),
        filled=counts.get(full, const(0)),
        read=counts.get(empty, const(0)),
        transaction_bytes=expected.get(full),
        producers=tuple(dict.fromkeys(node for c in producers for node in c.nodes)),
        consumers=tuple(dict.fromkeys(node for c in consumers for node in c.nodes)),
    )
