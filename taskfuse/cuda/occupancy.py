"""How many blocks of a kernel a multiprocessor holds at once, without a GPU.

Limits: CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications per Compute Capability". Rules of allocation: those
of NVIDIA's occupancy calculator (``cuda_occupancy.h`` of the CUDA toolkit).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from taskfuse.cuda.resources import Resources
from taskfuse.errors import UnsupportedError
from taskfuse.kir.limits import MAX_THREADS, REGISTERS, WARP


@dataclass(frozen=True, slots=True)
class Limits:
    """What a multiprocessor holds.

    Attributes:
        blocks: resident blocks at most.
        warps: resident warps at most.
        shared: bytes of Shared memory. A block can have 1 KiB less: the system reserves that much in each.
    """

    blocks: int
    warps: int
    shared: int


_LIMITS: Final = {
    80: Limits(32, 64, 164 << 10),
    86: Limits(16, 48, 100 << 10),
    87: Limits(16, 48, 164 << 10),
    89: Limits(24, 48, 100 << 10),
    90: Limits(32, 64, 228 << 10),
    100: Limits(32, 64, 228 << 10),
    103: Limits(32, 64, 228 << 10),
    110: Limits(24, 48, 228 << 10),
    120: Limits(24, 48, 100 << 10),
    121: Limits(24, 48, 100 << 10),
}
_RESERVED_SHARED: Final = 1 << 10  # bytes of each block
_SHARED_UNIT: Final = 128  # bytes
_REGISTER_UNIT: Final = 256  # registers of a warp
_PARTITIONS: Final = 4  # of a multiprocessor, each with a fourth of the registers


def limits(arch: str) -> Limits:
    """What a multiprocessor of ``arch`` (``sm_80``, ``sm_90a``, ...) holds.

    Raises:
        UnsupportedError: no limits are known for ``arch``.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    found = None if match is None else _LIMITS.get(int(match[1]))
    if found is None:
        raise UnsupportedError(
            what=f"occupancy for {arch!r}", reason="its limits are not known", help=f"use one of {', '.join(f'sm_{number}' for number in _LIMITS)}"
        )
    return found


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
    machine = limits(arch)
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
    of_block = _ceil(bytes + _RESERVED_SHARED, _SHARED_UNIT) * _SHARED_UNIT
    return machine.shared // of_block


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
