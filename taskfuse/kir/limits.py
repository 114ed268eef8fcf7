"""Limits of the hardware that kernels are for (CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA for the named barriers)."""

from __future__ import annotations

from taskfuse.target import LIMITS

WARP = 32
"""Threads of a warp."""

WARPGROUP = 128
"""Threads of a warpgroup: four warps with consecutive linear ids, the first a multiple of four."""

MAX_THREADS = 1024
"""Threads of a block."""

MAX_BLOCK = (MAX_THREADS, MAX_THREADS, 64)
"""Threads of a block along x, y and z."""

MAX_GRID: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
"""Blocks of a grid (x, y, z): CUDA C++ Programming Guide, "Compute Capabilities"."""

MAX_CLUSTER = max(limits.cluster for limits in LIMITS.values())
"""Blocks of a cluster, on any GPU; more than 8 need the opt-in ``cudaFuncAttributeNonPortableClusterSizeAllowed``
(CUDA C++ Programming Guide, "Thread Block Clusters")."""

SHARED_BYTES = max(limits.block_shared for limits in LIMITS.values())
"""Shared memory of a block on any GPU, in bytes; lowering keeps the limit of its target."""

REGISTERS = 64 * 1024
"""Registers of a multiprocessor (sm_80 and newer)."""

MAX_NAMED = 15
"""The last named barrier of a block; 0 is that of the whole block."""


def launch_registers(threads: int) -> int:
    """Registers that a launch gives each of ``threads`` threads of a multiprocessor: steps of 8, 255 at most."""
    return min(REGISTERS // max(threads, 1) // 8 * 8, 255)
