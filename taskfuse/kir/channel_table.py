"""The channels of a kernel, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.ir.scalar import Expr
from taskfuse.kir.declarations import Mbarrier


@dataclass(frozen=True, slots=True)
class ChannelRow:
    """A ring of slots between roles, in Shared memory; between blocks, in Global memory.

    Attributes:
        name: the common prefix of the names of its mbarriers, or the name of ``full``.
        full, empty: the mbarrier arrays, or semaphores, for filled and for released slots.
        slots: length of the ring.
        slot_bytes: bytes of a slot, summed over all ``buffers``, and over all rings if blocks have separate ones.
        filled, read: arrivals per phase at ``full`` and at ``empty``.
        transaction_bytes: bytes per phase that the copy engine writes; ``None``: threads fill the slots.
        producers, consumers: the nodes whose threads wait at ``empty`` and at ``full``, by the labels of the branches around them.
    """

    name: str
    full: str
    empty: str
    slots: int
    buffers: tuple[str, ...]
    slot_bytes: Expr
    filled: Expr
    read: Expr
    transaction_bytes: Expr | None
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChannelTable:
    """The channels of a kernel; ``others`` are the mbarrier arrays outside channels. ``str`` returns a table."""

    channels: tuple[ChannelRow, ...]
    others: tuple[Mbarrier, ...]

    def __str__(self) -> str:
        rows = [("channel", "slots", "bytes/slot", "buffers", "full", "empty", "producer", "consumer")] if self.channels else []
        for ch in self.channels:
            full = f"{ch.full} count {ch.filled}" + ("" if ch.transaction_bytes is None else f", {ch.transaction_bytes} bytes")
            ends = " ".join(ch.producers) or "-", " ".join(ch.consumers) or "-"
            rows.append((ch.name, str(ch.slots), str(ch.slot_bytes), " ".join(ch.buffers) or "-", full, f"{ch.empty} count {ch.read}", *ends))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        if self.others:
            lines.append("mbarriers of no channel: " + ", ".join(f"{m.name}[{m.slots}]" for m in self.others))
        return "\n".join(lines or ["no channels"])
