"""Debug builds: every wait is bounded and reports instead of hanging.

The kernel takes the address of a report of :data:`REPORT_BYTES` bytes in host memory that the device can write. The first thread whose wait
exceeds the limit writes it, then a trap ends the launch; the context is lost, the report is not.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from taskfuse.location import Location

# claimed, point, slot, parity, block[3], thread[3], limit in nanoseconds: struct Report of taskfuse/cuda/instructions.py
REPORT = struct.Struct("<10iQ")
REPORT_BYTES = REPORT.size


class WaitPoint(NamedTuple):
    """A wait in the text of a kernel.

    Attributes:
        path: labels of the tasks and groups around it, outermost first.
        barrier: name of the mbarrier array, of the semaphore, or of the counter of a barrier across blocks.
        awaits: the meaning of the number in the report: the parity of a phase, or a phase.
        location: the user's line that it comes from.
        carries: the data in the ring of the mbarrier or semaphore.
    """

    path: tuple[str, ...]
    barrier: str
    awaits: str = "phase parity"
    location: Location | None = None
    carries: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """The task or group that waits."""
        return " > ".join(self.path) or "the kernel"


class Timeout(NamedTuple):
    """A wait that exceeded its limit, as a report describes it."""

    point: WaitPoint
    slot: int
    parity: int
    block: tuple[int, int, int]
    thread: tuple[int, int, int]

    def __str__(self) -> str:
        ring = f", whose ring carries {', '.join(self.point.carries)}," if self.point.carries else ""
        place = f"{self.point.barrier}[{self.slot}]{ring}"
        return f"{self.point.where}: block {self.block}, thread {self.thread} waits at {place} for the end of {self.point.awaits} {self.parity}"


def empty_report(limit_ms: int) -> bytes:
    """An empty report, with the limit of a wait in milliseconds."""
    return REPORT.pack(0, -1, 0, 0, 0, 0, 0, 0, 0, 0, limit_ms * 1_000_000)


def read_report(content: bytes, points: tuple[WaitPoint, ...]) -> Timeout | None:
    """The content of the report; ``None`` if no wait exceeded its limit."""
    words: tuple[int, ...] = REPORT.unpack(content[:REPORT_BYTES])
    claimed, point, slot, parity, bx, by, bz, tx, ty, tz, _ = words
    return Timeout(points[point], slot, parity, (bx, by, bz), (tx, ty, tz)) if claimed else None
