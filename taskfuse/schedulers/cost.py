"""A first cost model of the warp-specialized matmul: which tile, how many stages, and how long it takes.

A wave of blocks takes the greater of what the tensor cores need for a tile, what they need to read its operands from Shared memory, and what
its operands take from the second-level cache; then its epilogue, during which the tensor cores of that multiprocessor rest. Waves follow one
another, and no kernel is faster than its bytes from DRAM. The constants are of one GPU, an H200; a sweep of ``benchmarks/matmul.py`` refits
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, prod

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.kir.limits import SHARED_BYTES
from taskfuse.schedulers.config import SPAN, STAGED_COLUMNS, MatmulConfig
from taskfuse.schedulers.loads import copy_cycles
from taskfuse.schedulers.machine import CLOCK_MHZ, DRAM_BYTES_PER_US, LAUNCH_US, SMS

TENSOR_FLOP_PER_CYCLE = {2: 4096, 1: 8192}
"""Dense multiply-adds of one multiprocessor, times 2, by the bytes of an element (NVIDIA H100 white paper: 989 TFLOP/s of bf16 at 1830 MHz)."""
TENSOR_EFFICIENCY = 0.88
"""What a long loop of wgmma gets of that: 8192^3 in 1.56 ms."""
SHARED_BYTES_PER_CYCLE = 128
"""One access of a multiprocessor to Shared memory, 32 banks of 4 bytes."""
L2_BYTES_PER_CYCLE = 56
"""From the second-level cache to each multiprocessor while all load; 64 at most."""
EPILOGUE_CYCLES = 700
"""To drain the last wgmma, and to begin the next tile."""
PIECE_CYCLES = 220
"""For a warpgroup to convert and stage 64 x 64 elements; those of several warpgroups overlap."""
DIRECT_FACTOR = 2.5
"""Stores from registers, beside staged ones."""
ROW_PART_CYCLES, COLUMN_PART_CYCLES = 100, 250
"""For a warpgroup to add up 64 x 64 elements along their rows, or along their columns, which takes a shuffle for each; assumed, not measured."""
FINISH_US = 5.0
"""A barrier of the grid, and the sums of the parts behind it; assumed, not measured."""
MAX_STAGES = 8
TILES = (
    (128, 256, 2),
    (256, 128, 2),
    (128, 192, 2),
    (192, 192, 3),
    (192, 128, 3),
    (128, 128, 2),
    (256, 64, 2),
    (192, 64, 3),
    (128, 64, 2),
    (64, 256, 1),
    (64, 192, 1),
    (64, 128, 1),
    (64, 64, 1),
)
"""tile_m, tile_n, warpgroups."""
GROUPS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Problem:
    """A matrix product with numbers for its extents.

    Attributes:
        batch, m, n, k: extents.
        itemsize: bytes of an operand's element.
        staged, direct: outputs that are staged for bulk stores, and those stored from registers.
        sms: multiprocessors of the GPU.
        access: for each operand, the bytes of one access where threads copy it; 0: the copy engine does.
        row_sums, column_sums: reductions of the result along n, and along m (or both).
    """

    m: int
    n: int
    k: int
    batch: int = 1
    itemsize: int = 2
    staged: int = 1
    direct: int = 0
    sms: int = SMS
    access: tuple[int, int] = (0, 0)
    row_sums: int = 0
    column_sums: int = 0

    def tiles(self, config: MatmulConfig) -> int:
        """Tiles of the result."""
        return self.batch * ceil(self.m / config.tile_m) * ceil(self.n / config.tile_n)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the model says of one configuration.

    Attributes:
        us: microseconds.
        waves: tiles of the block that has most.
        efficiency: tiles over what that many full waves hold.
        bound: what a step of k waits for.
    """

    config: MatmulConfig
    us: float
    waves: int
    efficiency: float
    bound: str


def estimate(problem: Problem, config: MatmulConfig) -> Estimate:
    """The time of ``config`` for ``problem``."""
    waves = ceil(problem.tiles(config) / config.blocks)
    steps = ceil(problem.k / config.tile_k)
    flop = 2 * config.tile_m * config.tile_n * config.tile_k
    instructions = config.tile_m // WGMMA_ROWS
    read = (instructions * (WGMMA_ROWS + config.tile_n)) * config.tile_k * problem.itemsize
    loaded = (config.tile_m + config.tile_n) * config.tile_k * problem.itemsize
    cycles = {
        "tensor cores": flop / TENSOR_FLOP_PER_CYCLE[problem.itemsize] / TENSOR_EFFICIENCY,
        "Shared memory": read / SHARED_BYTES_PER_CYCLE,
        "L2 cache": loaded / L2_BYTES_PER_CYCLE,
    }
    if any(problem.access):
        tiles = config.tile_m * config.tile_k * problem.itemsize, config.tile_n * config.tile_k * problem.itemsize
        cycles["copies of threads"] = copy_cycles(tiles, problem.access, problem.itemsize)
    bound = max(cycles, key=lambda name: cycles[name])
    pieces = config.rows // WGMMA_ROWS * config.tile_n // STAGED_COLUMNS
    piece = PIECE_CYCLES * (problem.staged + DIRECT_FACTOR * problem.direct)
    piece += ROW_PART_CYCLES * problem.row_sums + COLUMN_PART_CYCLES * problem.column_sums
    us = waves * (steps * cycles[bound] + EPILOGUE_CYCLES + pieces * piece) / CLOCK_MHZ
    dram = problem.batch * problem.itemsize * (problem.m * problem.k + problem.n * problem.k + problem.m * problem.n) / DRAM_BYTES_PER_US
    if dram > us:
        us, bound = dram, "DRAM"
    if problem.row_sums or problem.column_sums:
        us += FINISH_US
    return Estimate(config, LAUNCH_US + us, waves, problem.tiles(config) / (waves * config.blocks), bound)


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """The configurations that the model chooses from: each tile with the stages, group and blocks that suit it."""
    tile_k = SPAN // problem.itemsize
    for tile_m, tile_n, warpgroups in TILES:
        found = None
        for stages in range(2, MAX_STAGES + 1):
            config = MatmulConfig(tile_m, tile_n, tile_k, warpgroups, stages, in_flight=1, blocks=problem.sms)
            if config.shared_bytes(problem.itemsize, problem.staged) <= SHARED_BYTES:
                found = config
        if found is not None:
            blocks = max(1, min(problem.sms, problem.tiles(found)))
            yield MatmulConfig(tile_m, tile_n, tile_k, warpgroups, found.stages, 1, _group(problem, tile_m, tile_n, blocks), blocks)


def _group(problem: Problem, tile_m: int, tile_n: int, blocks: int) -> int:
    """Rows of tiles in a group such that a wave touches least of the operands."""
    rows, columns = ceil(problem.m / tile_m), ceil(problem.n / tile_n)

    def touched(group: int) -> int:
        height = min(group, rows)
        width = min(columns, ceil(blocks / height))
        return min(rows, ceil(blocks / width)) * tile_m + width * tile_n

    return min(GROUPS, key=lambda group: (touched(group), abs(group - 8)))


def rank(problem: Problem) -> list[Estimate]:
    """All candidates, the fastest first; of equals the one with the larger tile."""
    found = [estimate(problem, config) for config in candidates(problem)]
    return sorted(found, key=lambda e: (e.us, -prod((e.config.tile_m, e.config.tile_n))))
