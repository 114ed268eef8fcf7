"""Endpoints of rings between blocks: semaphores in Global memory (docs/channels.md).

One thread of an endpoint acts for its block. After a barrier of the endpoint's threads it releases; after it acquires, another barrier makes that
hold for all of them (causality order is transitive: PTX ISA, "Memory Consistency Model"). The cursor's
phase is the number of phases that must be complete, so a wait can neither pass early nor miss its phase. Semaphores are zero when a launch begins:
they lie in workspace that belongs to the launch.
"""

from __future__ import annotations

from taskfuse.ir.scalar import Expr, and_, const, eq, simplify
from taskfuse.ir.types import GRID_TYPES, THREAD_TYPES
from taskfuse.kir.declarations import Semaphore
from taskfuse.kir.nodes import Branch, If, Stmt
from taskfuse.kir.operands import SemaphoreSlot
from taskfuse.kir.synchronization import Acquire, Cursor, Release
from taskfuse.lowering.channels import Channel, ChannelEndpoint, Channels
from taskfuse.lowering.plan import PSync
from taskfuse.lowering.thread_ranges import ThreadRanges, hardware_index


def semaphores(channels: Channels) -> list[Semaphore]:
    """The semaphores of all rings between blocks, indexed by the block types along which blocks have separate rings, then by the slot."""
    found: list[Semaphore] = []
    ranges = channels.ranges
    for ch in channels.channels:
        if not ch.is_between_blocks:
            continue
        shape = (*(ranges.range(ch.producer.node, p).extent for p in ch.instances), const(ch.stages))
        read = const(0)
        for end in ch.consumers:
            read = read + _blocks(ranges, ch, end)
        found.append(Semaphore(f"{ch.name}.full", shape, _blocks(ranges, ch, ch.producer)))
        found.append(Semaphore(f"{ch.name}.empty", shape, simplify(read, ranges.facts)))
    return found


def _blocks(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint) -> Expr:
    """The blocks of an endpoint that share one ring."""
    return ranges.count(end.node, tuple(p for p in GRID_TYPES if p not in ch.instances))


def acquire(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint) -> list[PSync]:
    """Wait until the slot of the endpoint's cursor is empty (producer) or full (consumer)."""
    phase = Cursor(end.cursor).phase
    name, phases = (f"{ch.name}.empty", phase) if end is ch.producer else (f"{ch.name}.full", phase + 1)
    acquired = _elected(ranges, ch, end, Acquire(_slot(ranges, ch, end, name), phases))
    return [acquired, *_barrier_in_block(ranges, ch, end, "what one thread has acquired, all have")]


def release(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint) -> list[PSync]:
    """Release the slot of the endpoint's cursor to the consumer, or back to the producer."""
    name = f"{ch.name}.full" if end is ch.producer else f"{ch.name}.empty"
    return [*_barrier_in_block(ranges, ch, end, "before one thread releases for the block"), _elected(ranges, ch, end, Release(_slot(ranges, ch, end, name)))]


def _slot(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint, name: str) -> SemaphoreSlot:
    own = (simplify(hardware_index(p) - ranges.range(end.node, p).start, ranges.facts) for p in ch.instances)
    return SemaphoreSlot(name, (*own, Cursor(end.cursor).slot))


def _elected(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint, stmt: Stmt) -> PSync:
    """A statement of the first thread of an endpoint's thread range."""
    first = [eq(hardware_index(p), ranges.range(end.node, p).start) for p in THREAD_TYPES if ranges.range(end.node, p).extent is not const(1)]
    return PSync((If((Branch(and_(*first), (stmt,)),)),) if first else (stmt,), ch.tensors[0])


def _barrier_in_block(ranges: ThreadRanges, ch: Channel, end: ChannelEndpoint, note: str) -> list[PSync]:
    """All threads of an endpoint's thread range in one block wait for each other; the sync pass chooses how."""
    return [] if ranges.count(end.node) is const(1) else [PSync((), ch.tensors[0], True, frozenset(THREAD_TYPES), end.node, note)]
