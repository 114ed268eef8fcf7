"""Targets: the GPUs that kernels run on, their limits, and their measured figures.

Cost models, occupancy, the verifier and the default of ``arch`` look machines up here alone. What all CUDA GPUs have in common, such as the
threads of a warp, comes last (CUDA C++ Programming Guide, "Compute Capabilities"; PTX ISA for the named barriers).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast

from taskfuse.errors import UnsupportedError


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
class ProductFigures:
    """Costs of kernels of matrix products besides their bytes and multiply-adds: figures of :mod:`taskfuse.schedulers.cost` and of ``simt_gemm``.

    Those of one role's loop are the least squares of 109 sizes of ``benchmarks/matmul.py`` and of ten times of given tiles at five sizes, but for
    ``step_cycles``, which came later; those of ping-pong and clusters are of ``benchmarks/results/gemm_schedules.txt``. All of an H200.

    Attributes:
        tensor_share: of the rate of the tensor cores, what a long loop of wgmma gets.
        start_us: replaces ``launch_us`` for one block per multiprocessor, barriers and first load included.
        warpgroup_us: added for each warpgroup that multiplies beyond the first.
        outside_cycles: of the copy engine for a row of 128 bytes beyond the end of the tensor: 4096 x 4096 with 1, 8 and 16 rows, on an H100.
        several_bytes: per cycle, of Shared memory, that the tensor cores read and copies write together, where a tile has several contractions:
            ``benchmarks/fused_products.py`` on an H100, tiles of 64 columns beside those of 128 and 192.
        step_cycles: the least time of a step: its barriers, and products that follow each other. 384 x 128 x 3584 takes 12 us with rings of 8 and of 22
            slots alike, so that it is not the latency of loads.
        span_bytes: per cycle, of what a step loads beyond 128 bytes along k: 384 x 128 x 3584 in tiles of 64 x 64 and 64 x 128, by 64 and by 128 of k.
        slot_us: from the wait for an empty slot to its bytes from DRAM.
        slots_used: slots of a ring that are full or being emptied meanwhile: both of 1, 16 and 64 rows of 4096 x 14336 with rings of 73 to 221 KB in 64 blocks.
        epilogue_cycles: to drain the last wgmma, and to begin the next tile.
        piece_cycles: for a warpgroup to convert, stage and store 64 x 64 elements; those of several warpgroups overlap.
        pingpong_cycles: for a turn to pass from one warpgroup to the next: from 4096^3, 4096 x 7168 x 2048 and 4096 x 4096 x 1024 beside shared tiles.
        rows_factor: time of stores of staged rows by threads beyond that of bulk stores, relative to these: 32768 rows in 8 groups by 7168 x 2048, beside one
            product of all rows, in tiles of 128 x 256 on an H100.
        runs_per_us: runs of contiguous bytes, 128 or more, that all blocks together load where they do not keep step: the same, and 4 groups by 4096 x 7168, in
            tiles of 128 x 128 (43,000 and 46,000). Blocks that keep step got 63,000.
        promotion_cycles: for a warpgroup to wait for the products of a block and to begin the next, besides its sums; half of it again for each 64 rows
            beyond the first. Warpgroups that share a tile were
            measured to add at the same time, not in turns.
        block_load_cycles: for a warpgroup to load a scale that belongs to the columns of a piece of 64 rows. Both from ``benchmarks/results/fp8.txt``: the
            model differs from the 28 times of its tiles without clusters by 7% (root mean square), at most by 14%.
        direct_factor: time of stores from registers, relative to staged ones.
        scattered_factor: time of stores of single elements from registers, relative to staged ones: 96 products of 197 x 197 x 64.
        side_latency_cycles: from the loads of an epilogue's further inputs to their values.
        side_cycles: for a warpgroup to load 64 x 64 elements of it. Both from 4096 x 2816 x 1024 with a residual and with a bias, on an H100.
        work_cycles: for one instruction of an epilogue, as it is counted: the same with x * sigmoid(x).
        guarded_factor: times these waits and instructions where conditions stand around them, so that one waits for the other: the same in turns.
        copy_latency_cycles: from a load of the threads that copy factors to its value: 8 x 64 x 64 x 1500 and 96 x 197 x 64 x 197, on an H100.
        cluster_us: for the blocks of a cluster to be launched together, and to wait for each other: 2048^3 with and without.
        row_part_cycles, column_part_cycles: for a warpgroup to add up 64 x 64 elements along their rows, or along their columns, which takes a shuffle for
            each; assumed, not measured.
        finish_us: a grid barrier, and the sums of the partial results after it; assumed, not measured.
        access_cycles: of the load and store units for one access of each warp of a role that copies; assumed, not measured.
        simt_shares: rows and columns of the result that a thread has, and the share of the multiply-adds that it issues then, at 32 of k in a tile: the rest
            are loads of factors. With one to 62 blocks on a multiprocessor, which makes little difference; with 16 of k it is 5 to 10% less. 8 x 8 spill
            where two blocks share a multiprocessor (0.83), and have 0.77 where one is alone.
        simt_together: times these where several blocks share a multiprocessor, on an H100: 512 x 1024 x 4096 in two and in four chunks of k.
    """

    tensor_share: float = 0.95
    outside_cycles: float = 9.5
    several_bytes: float = 152
    start_us: float = 1.7
    warpgroup_us: float = 0.4
    step_cycles: float = 270
    span_bytes: float = 128
    slot_us: float = 1.4
    slots_used: float = 1.75
    epilogue_cycles: float = 300
    piece_cycles: float = 600
    pingpong_cycles: float = 1000
    rows_factor: float = 1.8
    runs_per_us: float = 43_000
    promotion_cycles: float = 240
    block_load_cycles: float = 25
    direct_factor: float = 2.5
    scattered_factor: float = 8
    side_latency_cycles: float = 1000
    side_cycles: float = 350
    work_cycles: float = 1.2
    guarded_factor: float = 4
    copy_latency_cycles: float = 480
    cluster_us: float = 0.7
    row_part_cycles: float = 100
    column_part_cycles: float = 250
    finish_us: float = 5.0
    access_cycles: float = 8
    simt_together: float = 1.1
    simt_shares: tuple[tuple[tuple[int, int], float], ...] = (
        ((2, 2), 0.34),
        ((2, 4), 0.41),
        ((4, 2), 0.48),
        ((4, 4), 0.63),
        ((4, 8), 0.72),
        ((8, 4), 0.76),
    )


@dataclass(frozen=True, slots=True)
class RowFigures:
    """Costs of kernels of rows besides their bytes: figures of :mod:`taskfuse.schedulers.row_cost`.

    They fit 90 schedules of softmax, layer and RMS norms, measured on an H200 in bfloat16 at three sizes (``benchmarks/norms.py --sweep`` measures them
    again); those of blocks that share a row are estimates.

    Attributes:
        load_cycles, store_cycles: waits for a load while the memory is busy, and for stores to leave.
        shuffle_cycles, barrier_cycles, grid_cycles: of a step of a butterfly, at a barrier of a block, and at one of the grid.
        slot_cycles, block_slot_cycles: to combine the partial result of one more warp, and of one more block.
        issue_cycles, function_cycles: from one instruction of a thread to its next, and further cycles of a function of an element.
        instructions, copy_instructions, function_instructions: per element: of a phase; to have it from memory again; of a function.
        overhead_instructions: per thread and phase.
        others: the share of the other times that does not overlap with the greatest.
    """

    load_cycles: float = 600
    store_cycles: float = 100
    shuffle_cycles: float = 20
    barrier_cycles: float = 30
    grid_cycles: float = 4000
    slot_cycles: float = 30
    block_slot_cycles: float = 80
    issue_cycles: float = 2
    function_cycles: float = 30
    instructions: float = 3
    copy_instructions: float = 3
    function_instructions: float = 4
    overhead_instructions: float = 20
    others: float = 0.18


@dataclass(frozen=True, slots=True)
class AttentionFigures:
    """Costs of kernels of attention besides their products and exponentials: figures of :mod:`taskfuse.schedulers.attention_cost`.

    Attributes:
        chunk_cycles: of a chunk of keys beside the longer one of products and softmax, for one warpgroup, two, and three: 4 x 16 x 4224 with heads of 64 and
            128 and chunks of 64 to 128, on an H100; that of one warpgroup is an estimate.
    """

    chunk_cycles: tuple[float, float, float] = (1500, 990, 750)


@dataclass(frozen=True, slots=True)
class Target:
    """A GPU.

    Attributes:
        name: its common name.
        arch: the architecture that its machine code is compiled for.
        sms: multiprocessors.
        clock_mhz: the clock under load, which the power limit keeps below the maximum.
        dram_bytes_per_us: between the chip and its memory, by a pointwise kernel.
        l2_bytes: of the second-level cache that data may occupy so that a second pass over them hits.
        l2_bytes_per_us: from there, by all multiprocessors together.
        l2_bytes_per_cycle: from there, to each multiprocessor.
        shared_bytes_per_cycle: between a multiprocessor and its Shared memory: 32 banks of 4 bytes.
        lanes: scalar instructions that a multiprocessor issues per cycle.
        functions_per_cycle: exponentials and other special functions of a multiprocessor (CUDA C++ Programming Guide, "Arithmetic Instructions").
        tensor_bytes_per_cycle: multiply-adds of dense products on the tensor cores of a multiprocessor per cycle, times the bytes of an operand (NVIDIA
            H100 white paper: 989 TFLOP/s of bf16 at 1830 MHz).
        busy_threads: threads of a multiprocessor, each with one load of 16 bytes in flight, that saturate DRAM: its bytes in 0.6 us, rounded.
        launch_us: from one kernel of a graph to the next, barriers and first loads included; an empty kernel takes less.
        latency_cycles: from a load to its value, under load.
        products, rows, attention: further figures, for the cost models of matrix products, of rows, and of attention.
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
    products: ProductFigures = ProductFigures()
    rows: RowFigures = RowFigures()
    attention: AttentionFigures = AttentionFigures()

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
        """Of all multiprocessors together."""
        return self.sms * self.clock_mhz

    def dram_us(self, moved: float, share: float = 1.0) -> float:
        """Microseconds to move ``moved`` bytes between the chip and its memory, at a share of its bandwidth."""
        return moved / (self.dram_bytes_per_us * share)

    def issue_us(self, instructions: float, sms: int | None = None) -> float:
        """Microseconds to issue scalar instructions, on all multiprocessors or on ``sms`` of them."""
        return instructions / (self.lanes * (self.cycles_per_us if sms is None else sms * self.clock_mhz))

    def tensor_us(self, products: float, itemsize: int) -> float:
        """Microseconds of multiply-adds on tensor cores, of operands of ``itemsize`` bytes."""
        return products * itemsize / (self.tensor_bytes_per_cycle * self.cycles_per_us)

    def fill(self, threads: float) -> float:
        """The share of the bandwidth that ``threads`` reach, each with a load in flight (Little's law)."""
        return min(1.0, threads / (self.sms * self.busy_threads))

    def kernel_us(self, *times: float) -> float:
        """Microseconds from one kernel of a CUDA graph to the next, for a kernel whose parts take ``times`` concurrently: the roofline of every cost model."""
        return self.launch_us + max(times)

    def has(self, arch: int, feature: bool = False) -> bool:
        """Whether it has instructions of a compute capability (times ten), which that one alone has (``feature``), or that and all later ones."""
        return self.capability == arch if feature else self.capability >= arch


H200: Final = Target("H200", "sm_90a", 132, 1700, 4.3e6, 32 << 20, 5.5e6, 65, 4096, 2.5, 2200, 1024)
H100: Final = Target("H100", "sm_90a", 132, 1540, 2.9e6, 32 << 20, 5.5e6, 65, 4096, 2.5, 2200, 768)
A100: Final = Target("A100", "sm_80", 108, 1410, 1.8e6, 24 << 20, 4.0e6, 64, 2048, 2.5, 2000, 640)
TARGETS: Final = {t.name: t for t in (H200, H100, A100)}
"""By name. Bandwidth and clock of the H200 and the H100 were measured (``benchmarks/target.py``); those of the A100 follow from its data sheet. All have the
figures of products and rows that were fitted on an H200, and those of attention that were fitted on an H100."""

DEFAULT: Final = H200
"""The target if the machine has no GPU."""


def as_target(given: Target | str) -> Target:
    """The target given, or the one of a name (``"H100"``) or an architecture (``"sm_80"``).

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

VECTOR_BYTES: Final = 16
"""The most bytes that one instruction of a thread loads or stores."""

ASYNC_BYTES: Final = (4, 8, 16)
"""Bytes of an element, or of a vector, that ``cp.async`` copies."""

WARPGROUP = 128
"""Threads of a warpgroup: four warps with consecutive linear ids, the first a multiple of four."""

MAX_RESIDENT = 32
"""The most resident blocks of a multiprocessor (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability")."""

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
