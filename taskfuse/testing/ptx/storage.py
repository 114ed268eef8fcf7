"""The memory of a run, in bytes: Global memory by allocation, Shared memory by block, private memory by thread.

An address selects its allocation; an access outside of it, or one that is not aligned to its size, is an error. What nothing wrote holds :data:`POISON`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from taskfuse.testing.ptx.events import RANK
from taskfuse.testing.ptx.launch import SHARED_AT
from taskfuse.testing.ptx.nodes import PtxError
from taskfuse.testing.ptx.unknown import LOCAL, SHARED

POISON = 0xFB
"""A byte of memory that nothing wrote: in every type a value that results show."""
ALLOCATION = 32
"""Allocations begin at multiples of 2 to the power of this."""


class Storage:
    """What a thread sees.

    Attributes:
        allocations: Global memory, parameters and constant data, by the first bits of their addresses.
        shared: Shared memory of the own block; ``cluster``: of each block of the cluster, by rank.
        private: memory of the thread alone.
    """

    __slots__ = ("allocations", "cluster", "private", "shared")

    def __init__(self, allocations: Mapping[int, bytearray], shared: bytearray, cluster: Sequence[bytearray], private: bytearray) -> None:
        self.allocations = allocations
        self.shared = shared
        self.cluster = cluster
        self.private = private

    def place(self, line: int, space: str, address: int, size: int) -> tuple[bytearray, int]:
        """Where an access of ``size`` bytes lies: the memory and the offset.

        Raises:
            PtxError: outside of everything, or not aligned.
        """
        if space == "generic" or space == "param":
            if address >= LOCAL:
                space, address = "local", address - LOCAL
            elif address >= SHARED:
                space, address = "shared", address - SHARED
        if space == "shared":
            memory = self.shared
            if address >= RANK:
                rank, address = address // RANK - 1, address % RANK
                memory = self.cluster[rank] if rank < len(self.cluster) else b""
            first = SHARED_AT
        elif space == "local":
            memory, first = self.private, 0
        else:
            memory, first = self.allocations.get(address >> ALLOCATION, b""), 0
            address &= (1 << ALLOCATION) - 1
        if not first <= address <= len(memory) - size or not isinstance(memory, bytearray):
            raise PtxError(line, f"an access of {size} bytes at {address:#x} of {space} memory, of which there are {len(memory) - first}")
        return memory, address

    def load(self, line: int, space: str, address: int, size: int, used: int | None = None) -> int:
        """The bytes at an address, as an integer; with ``used``, those of its bits: the others are arbitrary, and may lie outside of everything."""
        if used is not None:
            if address % size:
                raise PtxError(line, f"a load of {size} bytes at {address:#x}, which is not aligned")
            return sum(self.load(line, space, address + k, 1) << 8 * k if used >> k & 1 else POISON << 8 * k for k in range(size))
        memory, at = self.place(line, space, address, size)
        if at % size:
            raise PtxError(line, f"a load of {size} bytes at {address:#x}, which is not aligned")
        return int.from_bytes(memory[at : at + size], "little")

    def store(self, line: int, space: str, address: int, size: int, value: int) -> None:
        """Write the bytes of an integer."""
        memory, at = self.place(line, space, address, size)
        if at % size:
            raise PtxError(line, f"a store of {size} bytes at {address:#x}, which is not aligned")
        memory[at : at + size] = value.to_bytes(size, "little")

    def read(self, line: int, space: str, address: int, size: int) -> bytes:
        """Any number of bytes."""
        memory, at = self.place(line, space, address, size)
        return bytes(memory[at : at + size])

    def write(self, line: int, space: str, address: int, content: bytes) -> None:
        """Write any number of bytes."""
        memory, at = self.place(line, space, address, len(content))
        memory[at : at + len(content)] = content
