"""The properties of memory types, one row each. Other code looks properties up here instead of matching on memory types."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from taskfuse.ir.types import BLOCK_TYPES, CLUSTER_TYPES, INDEX_TYPES, THREAD_TYPES, MemoryType, ParallelType
from taskfuse.target import Target, launch_registers


class Reach(Enum):
    """The threads that share one copy of a memory. The value is the index types that distinguish these threads."""

    THREAD = ()
    BLOCK = THREAD_TYPES
    CLUSTER = (*CLUSTER_TYPES, *THREAD_TYPES)
    GRID = (*BLOCK_TYPES, *CLUSTER_TYPES, *THREAD_TYPES)


THREAD = Reach.THREAD  # looked up once: Python 3.11 takes long to find a member in its class


@dataclass(frozen=True, slots=True)
class Medium:
    """The properties of a memory type.

    Attributes:
        keyword: keyword of its declarations in the text of a kernel.
        reach: threads that share one copy. A barrier of these threads orders all accesses to it.
        has_addresses: elements have addresses, and any index. Otherwise they are registers, and indices are constants.
        is_placed: its buffers share the bytes of one array, at offsets that a kernel declares.
        is_by_rank: a buffer is a part of the Shared memory of each block of a cluster, at one offset; its first axis is the rank of the block
            (``%cluster_ctarank``), and any block of the cluster accesses all of it.
        fence: the name in text of a fence between proxies for it; ``None``: the asynchronous proxy does not access it.
        capacity: the most bytes of one copy on a GPU; for a buffer by rank, of its part in one block; ``None``: limited only by the device.
    """

    keyword: str
    reach: Reach
    has_addresses: bool
    is_placed: bool
    is_by_rank: bool
    fence: str | None
    capacity: Callable[[Target], int | None]

    @property
    def is_private(self) -> bool:
        """True if only one thread accesses a copy, so that no access needs ordering."""
        return self.reach is THREAD

    @property
    def shared_along(self) -> tuple[ParallelType, ...]:
        """The index types along which all indices share one copy."""
        return self.reach.value

    def is_private_to(self, ptype: ParallelType) -> bool:
        """True if each index of ``ptype`` has its own copy."""
        return ptype not in self.reach.value


MEDIA: Final = {
    MemoryType.Local: Medium("LOCAL", Reach.THREAD, False, False, False, None, lambda target: 4 * launch_registers(1)),
    MemoryType.Shared: Medium("SHARED", Reach.BLOCK, True, True, False, "proxy.async", lambda target: target.limits.block_shared),
    MemoryType.Cluster: Medium("CLUSTER", Reach.CLUSTER, True, True, True, None, lambda target: target.limits.block_shared),
    MemoryType.Global: Medium("GLOBAL", Reach.GRID, True, False, False, "proxy.async.global", lambda target: None),
}
"""By memory type, the nearest to a thread first."""


def nearest(ptype: ParallelType) -> MemoryType:
    """The nearest memory that all indices of ``ptype`` share."""
    assert ptype in INDEX_TYPES
    return next(memory for memory, medium in MEDIA.items() if not medium.is_private_to(ptype))
