"""Targets: the GPUs that kernels run on, their limits, and their measured figures.

Cost models, occupancy, the verifier and the default of ``arch`` take all machine properties from here. Properties that all CUDA GPUs share, such as the
threads of a warp, come last (CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA for the named barriers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import expm1
from typing import Final, cast

from taskfuse.errors import UnsupportedError, shown
from taskfuse.figures import AssumedFigures, AttentionFigures, ElementFigures, ProductFigures, RowFigures, TorchFigures


@dataclass(frozen=True, slots=True)
class Limits:
    """The capacity of a multiprocessor of one compute capability (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").

    Attributes:
        blocks: the most resident blocks.
        warps: the most resident warps.
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


DEPENDENT_LAUNCH_US: Final = 1.0
"""Microseconds of launch latency that programmatic dependent launch hides (an H100 and an H200, CUDA 13.0, driver 580)."""
RESERVED_SHARED: Final = 1 << 10
"""Bytes of each block's Shared memory that the system reserves."""

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
"""Limits by compute capability, times ten."""


def capability(arch: str) -> int:
    """The compute capability of an architecture (``sm_80``, ``sm_90a``, ...), times ten.

    Raises:
        UnsupportedError: its limits are not known.
    """
    match = re.fullmatch(r"sm_(\d+)[af]?", arch)
    number = 0 if match is None else int(match[1])
    if number not in LIMITS:
        known = ", ".join(f"sm_{n}" for n in LIMITS)
        raise UnsupportedError(what=f"the architecture {shown(arch)}", reason="its limits are not known", help=f"use one of {known}")
    return number


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU.

    Attributes:
        name: its common name.
        arch: the architecture that its machine code is compiled for.
        sms: multiprocessors.
        clock_mhz: the clock under load, which the power limit keeps below the maximum.
        dram_bytes_per_us: bandwidth of DRAM, measured with a pointwise kernel.
        l2_bytes: bytes of data in the L2 cache that a second pass still hits.
        l2_bytes_per_us: bandwidth of the L2 cache for all multiprocessors together.
        l2_bytes_per_cycle: bandwidth of the L2 cache for each multiprocessor.
        shared_bytes_per_cycle: bandwidth of a multiprocessor's Shared memory: 32 banks of 4 bytes.
        lanes: scalar instructions that a multiprocessor issues per cycle.
        functions_per_cycle: exponentials and other special functions of a multiprocessor per cycle (CUDA C++ Programming Guide, "Arithmetic Instructions").
        tensor_bytes_per_cycle: multiply-adds of dense products on the tensor cores of a multiprocessor per cycle, times the bytes of an operand (NVIDIA H100
            white paper: 989 TFLOP/s of bf16 at 1830 MHz).
        double_products_per_cycle: multiply-adds of float64 on the tensor cores of a multiprocessor per cycle (NVIDIA H100 white paper: 67 TFLOP/s at 1980 MHz;
            A100 white paper: 19.5 TFLOP/s at 1410 MHz).
        busy_threads: threads of a multiprocessor, each with one load of 16 bytes in flight, that saturate DRAM: its bytes in 0.6 us, rounded.
        launch_us: what a kernel of a chain takes beside its bytes and its work: its launch, which overlaps the end of its predecessor where the target can
            (:attr:`overlap_us`), and its first loads. Kernels of ``benchmarks/traces.py`` that move next to nothing take 0.7 to 1.4 us on an H200 from the
            end of the one before, and elementwise ones of 12 to 67 MB 0.6 to 1.9 us more than their bytes.
        latency_cycles: latency of a load, under load.
        products, rows, elements, attention: further figures for the cost models of matrix products, rows, elementwise kernels, and attention.
        torch: figures of torch's own kernels.
        assumed: figures that were assumed, not measured.
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
    functions_per_cycle: int = 16
    double_products_per_cycle: int = 128
    products: ProductFigures = field(default_factory=ProductFigures)
    rows: RowFigures = field(default_factory=RowFigures)
    elements: ElementFigures = field(default_factory=ElementFigures)
    attention: AttentionFigures = field(default_factory=AttentionFigures)
    torch: TorchFigures = field(default_factory=TorchFigures)
    assumed: AssumedFigures = field(default_factory=AssumedFigures)

    def __post_init__(self) -> None:
        capability(self.arch)

    @property
    def capability(self) -> int:
        """Its compute capability, times ten."""
        return capability(self.arch)

    @property
    def limits(self) -> Limits:
        """The capacity of a multiprocessor."""
        return LIMITS[self.capability]

    @property
    def cycles_per_us(self) -> float:
        """Cycles per microsecond of all multiprocessors together."""
        return self.sms * self.clock_mhz

    def dram_us(self, moved: float, share: float = 1.0) -> float:
        """Microseconds to move ``moved`` bytes between the chip and its memory, at a share of its bandwidth."""
        return moved / (self.dram_bytes_per_us * share)

    def gathered(self, asked: float, table: float, parts: int = 1) -> float:
        """Bytes that come from memory where ``asked`` bytes of a table of ``table`` bytes are read at random places, as many of each of ``parts``, one part
        after another: all that is read at all, and what is read again after the L2 cache has lost it."""
        if not table:
            return 0.0
        distinct = table * -expm1(-asked / table)
        return distinct + (asked - distinct) * max(0.0, 1 - self.l2_bytes * parts / table)

    def issue_us(self, instructions: float, sms: int | None = None) -> float:
        """Microseconds to issue scalar instructions, on all multiprocessors or on ``sms`` of them."""
        return instructions / (self.lanes * (self.cycles_per_us if sms is None else sms * self.clock_mhz))

    def tensor_us(self, products: float, itemsize: int) -> float:
        """Microseconds of multiply-adds on tensor cores, of operands of ``itemsize`` bytes."""
        return products / (self.products_per_cycle(itemsize) * self.cycles_per_us)

    def products_per_cycle(self, itemsize: int) -> float:
        """Multiply-adds on the tensor cores of a multiprocessor per cycle, of operands of ``itemsize`` bytes."""
        return self.double_products_per_cycle if itemsize == 8 else self.tensor_bytes_per_cycle / itemsize

    def fill(self, threads: float) -> float:
        """The share of the bandwidth that ``threads`` reach, each with a load in flight (Little's law)."""
        return min(1.0, threads / (self.sms * self.busy_threads))

    def kernel_us(self, *times: float) -> float:
        """Microseconds from one kernel of a CUDA graph to the next, for parts that take ``times`` concurrently: the roofline of every cost model."""
        return self.launch_us + max(times)

    def alone_us(self, *times: float) -> float:
        """The same where the launch overlaps no predecessor: it is cooperative, or that of another library."""
        return self.overlap_us + self.kernel_us(*times)

    @property
    def overlap_us(self) -> float:
        """Microseconds that a launch saves by overlapping the end of its predecessor (programmatic dependent launch, docs/cuda.md)."""
        return DEPENDENT_LAUNCH_US if self.has(90) else 0.0

    def has(self, arch: int, feature: bool = False) -> bool:
        """Whether the target has the instructions of a compute capability (times ten): that one alone (``feature``), or that and all later ones."""
        return self.capability == arch if feature else self.capability >= arch


H200: Final = Target("H200", "sm_90a", 132, 1700, 4.3e6, 32 << 20, 5.5e6, 65, 4096, 1.1, 2200, 1024)
H100: Final = Target("H100", "sm_90a", 132, 1540, 2.9e6, 32 << 20, 5.5e6, 65, 4096, 1.1, 2200, 768)
A100: Final = Target("A100", "sm_80", 108, 1410, 1.8e6, 24 << 20, 4.0e6, 64, 2048, 2.1, 2000, 640, double_products_per_cycle=64)
TARGETS: Final = {t.name: t for t in (H200, H100, A100)}
"""Targets by name. Bandwidth and clock of the H200 and the H100 were measured (``benchmarks/target.py``); those of the A100 follow from its data sheet. All
have the figures of kernels measured on an H200 or an H100, as :mod:`taskfuse.figures` says of each.
"""

DEFAULT: Final = H200
"""The target of a machine without a GPU."""


def as_target(given: Target | str) -> Target:
    """The given target, or the target with a name (``"H100"``) or an architecture (``"sm_80"``).

    Raises:
        UnsupportedError: no target has it.
    """
    if isinstance(given, Target):
        return given
    for t in TARGETS.values():
        if isinstance(cast("object", given), str) and (given.upper() == t.name or given == t.arch):
            return t
    raise UnsupportedError(what=f"target {shown(given)}", reason="there is no such target", help=f"use one of {', '.join(TARGETS)}, or make a taskfuse.Target")


def target_of(name: str, arch: str) -> Target:
    """The target of a GPU: the row whose name occurs in the driver's name, else the first one of the architecture's family, else the default.

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

VECTOR_BYTES: Final = 16
"""The most bytes that one instruction of a thread loads or stores."""

ASYNC_BYTES: Final = (4, 8, 16)
"""Bytes of an element, or of a vector, that ``cp.async`` copies."""

WARPGROUP = 128
"""Threads of a warpgroup: four warps with consecutive linear ids, the first a multiple of four."""

MAX_RESIDENT = max(limits.blocks for limits in LIMITS.values())
"""The most resident blocks of a multiprocessor of any GPU."""

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

PLAIN_SHARED = 48 << 10
"""The most bytes of Shared memory of a block without an opt-in."""

PORTABLE_CLUSTER = 8
"""The most blocks of a cluster without an opt-in."""

REGISTERS = 64 * 1024
"""Registers of a multiprocessor (sm_80 and newer)."""

PARTITIONS = 4
"""Parts of a multiprocessor, each with a fourth of the registers; a warp belongs to one."""

REGISTER_UNIT = 256
"""Allocation granularity of a warp's registers."""

SHARED_UNIT = 128
"""Allocation granularity of a block's Shared memory, in bytes."""

THREAD_REGISTERS = 255
"""The most registers of a thread."""

REGISTER_BUDGETS = range(24, 257, 8)
"""Registers that ``setmaxnreg`` can give a thread (PTX ISA)."""

SECTOR_BYTES = 32
"""Bytes of a sector: the caches' unit of transfer, the least that a load moves."""

LINE_BYTES = 128
"""Bytes of a cache line: the unit in which a multiprocessor looks up its cache."""

BANKS, BANK_BYTES = 32, 4
"""Banks of Shared memory, and the bytes that each gives per cycle."""

MAX_NAMED = 15
"""The last named barrier of a block; 0 is that of the whole block."""

MBARRIER_BYTES = 8
"""Bytes of an mbarrier in Shared memory."""

MBARRIER_COUNT = 2**20 - 1
"""The most arrivals, and the most bytes, that an mbarrier expects in a phase (PTX ISA)."""

MAX_PENDING = 7
"""The most batches that a ``wait_group`` may leave unfinished."""

TMA_AXES = 5
"""The most axes of a tensor that the copy engine reads or writes (CUDA driver API, ``cuTensorMapEncodeTiled``, as the next ones)."""

TMA_BYTES = 16
"""Addresses and strides of such a tensor, the rows of its boxes and where they begin along the last axis are multiples of this many bytes."""

TMA_BOX = 256
"""The most elements of a box along one axis."""

TMA_STEP = 8
"""The greatest step of a bulk copy along an axis, in elements (CUDA driver API, "cuTensorMapEncodeTiled", ``elementStrides``)."""

TMA_STRIDE = 1 << 40
"""Exclusive upper bound of the strides of such a tensor, in bytes."""


def launch_registers(threads: int) -> int:
    """Registers that a launch gives each of ``threads`` threads of a multiprocessor, in steps of 8: at most :data:`THREAD_REGISTERS`."""
    return min(REGISTERS // max(threads, 1) // 8 * 8, THREAD_REGISTERS)
