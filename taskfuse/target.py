"""Targets: the GPUs that kernels are for, what fits on them, and how fast they were measured to be.

Cost models, occupancy, the verifier and the default of ``arch`` look machines up here, and nowhere else. What every CUDA GPU has in common, such as the
threads of a warp, comes last (CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA for the named barriers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from taskfuse.errors import UnsupportedError


@dataclass(frozen=True, slots=True)
class Limits:
    """What a multiprocessor of one compute capability holds (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").

    Attributes:
        blocks: resident blocks at most.
        warps: resident warps at most.
        shared: bytes of Shared memory. A block can have 1 KiB less: the system reserves that much in each.
        cluster: the most blocks of a cluster; 1: no clusters.
    """

    blocks: int
    warps: int
    shared: int
    cluster: int = 1

    @property
    def block_shared(self) -> int:
        """Bytes of Shared memory that one block can have."""
        return self.shared - RESERVED_SHARED


RESERVED_SHARED: Final = 1 << 10
"""Bytes of Shared memory of each block that the system takes."""

LIMITS: Final = {
    80: Limits(32, 64, 164 << 10),
    86: Limits(16, 48, 100 << 10),
    87: Limits(16, 48, 164 << 10),
    89: Limits(24, 48, 100 << 10),
    90: Limits(32, 64, 228 << 10, 16),
    100: Limits(32, 64, 228 << 10, 16),
    103: Limits(32, 64, 228 << 10, 16),
    110: Limits(24, 48, 228 << 10, 16),
    120: Limits(24, 48, 100 << 10, 8),
    121: Limits(24, 48, 100 << 10, 8),
}
"""By compute capability, times ten."""


def capability(arch: str) -> int:
    """The compute capability of an architecture (``sm_80``, ``sm_90a``, ...), times ten.

    Raises:
        UnsupportedError: its limits are not known.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    number = 0 if match is None else int(match[1])
    if number not in LIMITS:
        known = ", ".join(f"sm_{n}" for n in LIMITS)
        raise UnsupportedError(what=f"the architecture {arch!r}", reason="its limits are not known", help=f"use one of {known}")
    return number


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU.

    Attributes:
        name: as people call it.
        arch: what machine code for it is compiled for.
        sms: multiprocessors.
        clock_mhz: under load; the power limit holds it below what the chip reaches otherwise.
        dram_bytes_per_us: between the chip and its memory, by a pointwise kernel.
        l2_bytes: of the second-level cache, as much as may lie between two walks over data so that the second finds them there.
        l2_bytes_per_us: from there, by all multiprocessors together.
        l2_bytes_per_cycle: from there, to each multiprocessor.
        shared_bytes_per_cycle: between a multiprocessor and its Shared memory: 32 banks of 4 bytes.
        lanes: scalar instructions that a multiprocessor issues per cycle.
        tensor_bytes_per_cycle: multiply-adds of dense products on the tensor cores of a multiprocessor per cycle, times the bytes of an operand (NVIDIA
            H100 white paper: 989 TFLOP/s of bf16 at 1830 MHz).
        busy_threads: of a multiprocessor, each with one load of 16 bytes in flight, that keep DRAM busy: its bytes in 0.6 us, rounded.
        launch_us: from one kernel of a graph to the next, barriers and first loads included; an empty kernel takes less.
        latency_cycles: from a load to its value, under load.
    """

    name: str
    arch: str
    sms: int
    clock_mhz: float
    dram_bytes_per_us: float
    l2_bytes: int
    l2_bytes_per_us: float
    l2_bytes_per_cycle: float
    tensor_bytes_per_cycle: int
    launch_us: float
    latency_cycles: float
    busy_threads: int
    shared_bytes_per_cycle: int = 128
    lanes: int = 128

    def __post_init__(self) -> None:
        capability(self.arch)

    @property
    def capability(self) -> int:
        """Its compute capability, times ten."""
        return capability(self.arch)

    @property
    def limits(self) -> Limits:
        """What a multiprocessor holds."""
        return LIMITS[self.capability]

    @property
    def cycles_per_us(self) -> float:
        """Of all multiprocessors together."""
        return self.sms * self.clock_mhz

    def has(self, arch: int, feature: bool = False) -> bool:
        """Whether it has instructions of a compute capability (times ten): those of that one alone (``feature``), or of that and all later ones."""
        return self.capability == arch if feature else self.capability >= arch


H200: Final = Target("H200", "sm_90a", 132, 1700, 4.3e6, 32 << 20, 5.5e6, 65, 4096, 2.5, 2200, 1024)
H100: Final = Target("H100", "sm_90a", 132, 1540, 2.9e6, 32 << 20, 5.5e6, 65, 4096, 2.5, 2200, 768)
A100: Final = Target("A100", "sm_80", 108, 1410, 1.8e6, 24 << 20, 4.0e6, 64, 2048, 2.5, 2000, 640)
TARGETS: Final = {t.name: t for t in (H200, H100, A100)}
"""By name. Bandwidth and clock of the first two were measured (``benchmarks/target.py``), those of the last follow from its data sheet. The figures of
cost models that are not in a row, such as what a step of a product takes, were fitted on an H200."""

DEFAULT: Final = H200
"""Where no GPU is there to ask."""


def as_target(given: Target | str) -> Target:
    """A target, or that of a name (``"H100"``) or of an architecture (``"sm_80"``).

    Raises:
        UnsupportedError: there is no such target.
    """
    if isinstance(given, Target):
        return given
    for t in TARGETS.values():
        if isinstance(cast("object", given), str) and (given.upper() == t.name or given == t.arch):
            return t
    raise UnsupportedError(what=f"target {given!r}", reason="there is no such target", help=f"use one of {', '.join(TARGETS)}, or make a taskfuse.Target")


def target_of(name: str, arch: str) -> Target:
    """The target for a GPU: the row whose name is in the name that its driver gives, else the first one of its architecture's family, else the default.

    Args:
        name: such as ``"NVIDIA H100 80GB HBM3"``.
        arch: such as ``"sm_90"``.
    """
    named = next((t for t in TARGETS.values() if t.name in name.upper().replace("-", " ").split()), None)
    if named is not None:
        return named
    number = capability(arch)
    return next((t for t in TARGETS.values() if t.capability == number), DEFAULT)


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
