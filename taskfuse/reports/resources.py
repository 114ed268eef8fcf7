"""The resources of a compiled kernel and its launch: registers, Shared memory, blocks, threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from taskfuse.ir.scalar import Expr

Shape3 = tuple[int, int, int]


class LaunchShape(NamedTuple):
    """The shape of a launch.

    Attributes:
        grid: blocks in x, y and z.
        block: threads of a block.
        cluster: blocks of a cluster.
        shared_bytes: dynamic Shared memory of a block, in bytes.
    """

    grid: Shape3
    block: Shape3
    cluster: Shape3
    shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        x, y, z = self.block
        return x * y * z

    def __str__(self) -> str:
        cluster = "" if self.cluster == (1, 1, 1) else f"  cluster {self.cluster}"
        return f"grid {self.grid}  block {self.block}{cluster}  shared {self.shared_bytes} bytes"


class Resources(NamedTuple):
    """The report of ptxas on one kernel.

    Attributes:
        registers: 32-bit registers of a thread.
        static_shared: bytes of Shared memory of a block that its text declares, without those added by a launch.
        stack: bytes of local memory of a thread, spilled registers included.
        spill_stores: bytes of spilled registers that a thread's code stores to local memory.
        spill_loads: bytes that it loads back.
        barriers: hardware barriers of a block (``bar.sync 0`` to the highest in use), at most 16.
        local_arrays: bytes of local memory of a thread that are arrays, at the least: those of ``stack`` that neither spilled registers nor arguments of
            called functions take. An array is there if the compiler finds no constant for an index of it, for instance in a loop that it does not unroll.
    """

    registers: int
    static_shared: int
    stack: int
    spill_stores: int
    spill_loads: int
    barriers: int
    local_arrays: int = 0


@dataclass(frozen=True, slots=True)
class KernelResources:
    """The resources of a kernel on one architecture.

    Attributes:
        arch: the architecture.
        compiled: the compiler's report: registers, spills, arrays in local memory, barriers.
        threads: threads of a block, an expression over the extents.
        shared_bytes: Shared memory of a block in bytes, static and dynamic.
        blocks_per_multiprocessor: resident blocks of a multiprocessor; ``None`` if it depends on extents that are not given, or if
            the limits of ``arch`` are unknown.
    """

    arch: str
    compiled: Resources
    threads: Expr
    shared_bytes: Expr
    blocks_per_multiprocessor: int | None

    def __str__(self) -> str:
        r = self.compiled
        blocks = self.blocks_per_multiprocessor
        why = "depends on the extents" if self.threads.free or self.shared_bytes.free else f"the limits of {self.arch} are not known"
        rows = {
            "registers": f"{r.registers} per thread",
            "spills": f"{r.spill_stores} bytes stored, {r.spill_loads} bytes loaded per thread",
            "stack": f"{r.stack} bytes per thread, {r.local_arrays} of them in arrays",
            "barriers": f"{r.barriers} per block",
            "threads": f"{self.threads} per block",
            "shared": f"{self.shared_bytes} bytes per block",
            "occupancy": why if blocks is None else f"{blocks} block{'' if blocks == 1 else 's'} per multiprocessor",
        }
        return "\n".join([f"{self.arch}:", *(f"  {name:10} {value}" for name, value in rows.items())])
