"""A thread block: its memory, its barriers and its asynchronous queues."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from taskfuse.sim.barriers import MbarrierCell, Meeting
from taskfuse.sim.engines import Engines
from taskfuse.sim.memory import Memory

if TYPE_CHECKING:
    from taskfuse.sim.machine import Machine


class Block:
    """A thread block.

    Attributes:
        number: linear block id; ``index``: (x, y, z).
        meeting: the block-wide barrier.
        named: the hardware barriers, by id.
        warps: barriers inside warps at which somebody waits, by (statement, warp).
        exited: threads that have left the kernel.
    """

    __slots__ = ("engines", "exited", "index", "machine", "mbarriers", "meeting", "memory", "named", "number", "threads", "warps")

    def __init__(self, machine: Machine, number: int, index: tuple[int, int, int], threads: int, memory: Memory, mbarriers: dict[str, int]) -> None:
        self.machine = machine
        self.number = number
        self.index = index
        self.threads = threads
        self.memory = memory
        self.mbarriers = {name: [MbarrierCell(f"{name}[{slot}]") for slot in range(slots)] for name, slots in mbarriers.items()}
        self.meeting = Meeting("block barrier")
        self.named: defaultdict[int, Meeting] = defaultdict(lambda: Meeting("named barrier"))
        self.warps: dict[tuple[int, int], Meeting] = {}
        self.exited = 0
        self.engines = Engines(self)
