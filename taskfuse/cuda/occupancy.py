"""How many blocks of a kernel a multiprocessor holds at once, without a GPU.

Limits: :mod:`taskfuse.target`. Rules of allocation: those of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit).
"""

from __future__ import annotations

from typing import Final

from taskfuse.cuda.resources import Resources
from taskfuse.kir.limits import MAX_THREADS, REGISTERS, WARP
from taskfuse.target import LIMITS, RESERVED_SHARED, Limits, capability

_SHARED_UNIT: Final = 128  # bytes
_REGISTER_UNIT: Final = 256  # registers of a warp
_PARTITIONS: Final = 4  # of a multiprocessor, each with a fourth of the registers


def occupancy(resources: Resources, threads: int, shared: int, arch: str) -> int:
    """Blocks that are resident on one multiprocessor at once; 0 if not even one fits.

    Args:
        resources: of the compiled kernel.
        threads: threads of a block.
        shared: bytes of dynamic Shared memory of a block.
        arch: architecture: ``sm_90a``.

    Raises:
        UnsupportedError: no limits are known for ``arch``.
    """
    machine = LIMITS[capability(arch)]
    if not 0 < threads <= MAX_THREADS:
        return 0
    warps = _ceil(threads, WARP)
    return min(machine.blocks, machine.warps // warps, _by_registers(resources.registers, warps), _by_shared(resources.static_shared + shared, machine))


def _by_registers(registers: int, warps: int) -> int:
    """Registers are given to warps, each in one partition. Whether a block fits at all is decided as if all partitions had equally many."""
    of_warp = _ceil(max(registers, 1) * WARP, _REGISTER_UNIT) * _REGISTER_UNIT
    if of_warp * _ceil(warps, _PARTITIONS) * _PARTITIONS > REGISTERS:
        return 0
    return REGISTERS // _PARTITIONS // of_warp * _PARTITIONS // warps


def _by_shared(bytes: int, machine: Limits) -> int:
    of_block = _ceil(bytes + RESERVED_SHARED, _SHARED_UNIT) * _SHARED_UNIT
    return machine.shared // of_block


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
