"""A first cost model of the warp-specialized matmul: which tile, how many stages, and how long it takes.

A wave of blocks takes the greater of what the tensor cores need for a tile, what they need to read its operands from Shared memory, and what
its operands take from the second-level cache; then its epilogue, during which the tensor cores of that multiprocessor rest, unless another
warpgroup's turn has come. Waves follow one another, and no kernel is faster than its bytes from DRAM. Blocks of a cluster that bring what they
share once were measured to be no faster for it: the cache serves neighbors that ask for the same at once; but they begin and end together. The
constants are of one GPU, an H200: those of one role's loop are the least squares of 109 sizes in ``benchmarks/results/matmul.txt``, off by 6% (root
mean square of the logarithm), those of turns and clusters of ``benchmarks/results/gemm_schedules.txt``. A sweep of ``benchmarks/matmul.py`` refits
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.kir.limits import SHARED_BYTES
from taskfuse.schedulers.config import SPAN, STAGED_COLUMNS, MatmulConfig, MatmulKind
from taskfuse.schedulers.machine import CLOCK_MHZ, DRAM_BYTES_PER_US, SMS

TENSOR_FLOP_PER_CYCLE = {4: 2048, 2: 4096, 1: 8192}
"""Dense multiply-adds of one multiprocessor, times 2, by the bytes of an element (NVIDIA H100 white paper: 989 TFLOP/s of bf16 at 1830 MHz;
twice that of 8 bits, half of tf32)."""
TENSOR_EFFICIENCY = 0.95
"""What a long loop of wgmma gets of that."""
SHARED_BYTES_PER_CYCLE = 128
"""One access of a multiprocessor to Shared memory, 32 banks of 4 bytes."""
L2_BYTES_PER_CYCLE = 62
"""From the second-level cache to each multiprocessor; 64 at most."""
START_US = 1.8
"""From one kernel of a graph to the next, barriers and first load included."""
EPILOGUE_CYCLES = 500
"""To drain the last wgmma, and to begin the next tile."""
PIECE_CYCLES = 720
"""For a warpgroup to convert, stage and store 64 x 64 elements; those of several warpgroups overlap."""
TURN_CYCLES = 1200
"""For a turn to pass from one warpgroup to the next."""
DIRECT_FACTOR = 2.5
"""Stores from registers, beside staged ones."""
CLUSTER_US = 0.7
"""For the blocks of a cluster to be launched together, and to wait for each other: 2048^3 with and without."""
MAX_STAGES = 8
SHARED_TILES = (
    (128, 256, 2),
    (256, 128, 2),
    (128, 192, 2),
    (128, 160, 2),
    (192, 192, 3),
    (192, 160, 3),
    (192, 128, 3),
    (128, 128, 2),
    (128, 96, 2),
    (256, 64, 2),
    (192, 64, 3),
    (128, 64, 2),
    (64, 256, 1),
    (64, 192, 1),
    (64, 128, 1),
    (64, 96, 1),
    (64, 64, 1),
    (64, 32, 1),
    (64, 16, 1),
)
"""tile_m, tile_n, warpgroups that share a tile. Narrow ones are for results of few tiles: more multiprocessors load."""
TURN_TILES = ((128, 128, 2), (64, 256, 2), (192, 64, 2), (128, 64, 2), (64, 128, 2))
"""Those of warpgroups that take turns."""
CLUSTER_TILES = ((128, 256, 2), (256, 128, 2), (128, 128, 2))
"""Those that blocks of a cluster have."""
SHAPES = tuple(
    (*tile, kind, cluster)
    for tiles, kind, cluster in (
        (SHARED_TILES, MatmulKind.COOPERATIVE, 1),
        (TURN_TILES, MatmulKind.PINGPONG, 1),
        (CLUSTER_TILES, MatmulKind.COOPERATIVE, 2),
    )
    for tile in tiles
)
GROUPS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Problem:
    """A matrix product with numbers for its extents.

    Attributes:
        batch, m, n, k: extents.
        itemsize: bytes of an operand's element.
        staged, direct: outputs that are staged for bulk stores, and those stored from registers.
        sms: multiprocessors of the GPU.
        columns_contiguous: n, not k, is contiguous in the factor with the columns.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    itemsize: int = 2
    staged: int = 1
    direct: int = 0
    sms: int = SMS
    columns_contiguous: bool = False

    def tiles(self, config: MatmulConfig) -> int:
        """Tiles of the result; in clusters the last may lie outside."""
        return self.batch * ceil(self.m / (config.tile_m * config.cluster)) * config.cluster * ceil(self.n / config.tile_n)


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
    bound = max(cycles, key=lambda name: cycles[name])
    pieces = config.rows / WGMMA_ROWS * config.tile_n / STAGED_COLUMNS
    epilogue = EPILOGUE_CYCLES + pieces * PIECE_CYCLES * (problem.staged + DIRECT_FACTOR * problem.direct)
    products = steps * cycles[bound]
    if config.takes_turns:
        # products follow each other, the last epilogue behind them; or a warpgroup has as much to store as all others to multiply
        total = max(waves * (products + TURN_CYCLES) + epilogue, ceil(waves / config.warpgroups) * (products + epilogue))
    else:
        total = waves * (products + epilogue)
    us = total / CLOCK_MHZ + (CLUSTER_US if config.cluster > 1 else 0)
    dram = problem.batch * problem.itemsize * (problem.m * problem.k + problem.n * problem.k + problem.m * problem.n) / DRAM_BYTES_PER_US
    if dram > us:
        us, bound = dram, "DRAM"
    return Estimate(config, START_US + us, waves, problem.tiles(config) / (waves * config.blocks), bound)


def candidates(problem: Problem) -> Iterator[MatmulConfig]:
    """The configurations that the model chooses from: each tile with the stages, group and blocks that suit it."""
    for tile_m, tile_n, warpgroups, kind, cluster in SHAPES:
        if problem.columns_contiguous and tile_n * problem.itemsize % SPAN:
            continue
        config = MatmulConfig(tile_m, tile_n, SPAN // problem.itemsize, warpgroups, MAX_STAGES, 1, 1, problem.sms // cluster * cluster, kind, cluster)
        tiles = problem.tiles(config)
        if (config.takes_turns and tiles <= config.blocks) or problem.m <= tile_m * (cluster - 1):
            continue  # no turns to take; nobody to share with
        stages = next((s for s in range(MAX_STAGES, 1, -1) if replace(config, stages=s).shared_bytes(problem.itemsize, problem.staged) <= SHARED_BYTES), None)
        if stages is not None:
            blocks = min(config.blocks, tiles)
            yield replace(config, stages=stages, blocks=blocks, group=_group(problem, config, blocks))


def _group(problem: Problem, config: MatmulConfig, blocks: int) -> int:
    """Rows of tiles, or of clusters, in a group such that a wave touches least of the operands."""
    tile_m = config.tile_m * config.cluster
    rows, columns = ceil(problem.m / tile_m), ceil(problem.n / config.tile_n)
    at_once = blocks // config.cluster

    def touched(group: int) -> int:
        height = min(group, rows)
        width = min(columns, ceil(at_once / height))
        return min(rows, ceil(at_once / width)) * tile_m + width * config.tile_n

    return min(GROUPS, key=lambda group: (touched(group), abs(group - 8)))


def rank(problem: Problem) -> list[Estimate]:
    """All candidates, the fastest first; of equals the one with the larger tile."""
    found = [estimate(problem, config) for config in candidates(problem)]
    return sorted(found, key=lambda e: (e.us, -prod((e.config.tile_m, e.config.tile_n))))
