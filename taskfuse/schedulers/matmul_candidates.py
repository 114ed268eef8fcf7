"""The parameters of the warp-specialized matmul that its cost model chooses from: tiles, steps of k, stages, groups, blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil

from taskfuse.ir.atoms import WGMMA_COLUMNS
from taskfuse.schedulers.config import LEAST_LEFT, ROOMY_ACCUMULATORS, SPAN, STMATRIX, MatmulConfig, MatmulKind, shared_room
from taskfuse.schedulers.cost import FEW_ROWS, Estimate, MatmulProblem, TileTime, estimate, read_at_once, rows_of_tiles, time_of_tiles
from taskfuse.target import WARPGROUP

MAX_STAGES = 8
"""More slots made no difference in measurements."""
SPANS = (1, 2, 4)
"""Rows of the swizzle along k in a slot."""
LEAST_STAGES = 4
"""Slots of several such rows: with 3 of them loads were not far enough ahead."""
COLUMNS = {
    (128, 2): range(256, 63, -STMATRIX),
    (256, 2): range(176, 63, -STMATRIX),
    (192, 3): (*range(192, 95, -STMATRIX), 64),
    (64, 1): (256, 192, 160, 128, 96, 64, 48, 32, 16),
}
"""tile_n by tile_m and the warpgroups that share a tile: as many as registers hold, in steps of those of ``stmatrix``, so that for most results some tiles
are a whole number of waves. Others were slow: 64 rows by 112, 144, 176, 208 and 224, and 192 by 80 took 1.2 to 2 times their estimate, of 16 measured sizes."""
SHARED_TILES = tuple((rows, columns, warpgroups) for (rows, warpgroups), widths in COLUMNS.items() for columns in widths)
"""tile_m, tile_n, warpgroups that share a tile. Narrow ones are for results of few tiles: more multiprocessors load."""
PINGPONG_TILES = ((128, 128, 2), (64, 256, 2), (192, 64, 2), (128, 64, 2), (64, 128, 2))
"""Tiles for warpgroups that take turns."""
CLUSTER_TILES = ((128, 256, 2), (256, 128, 2), (128, 128, 2))
"""Tiles for clusters."""
SWAPPED_ROWS = ((64, 1), (128, 2), (192, 3), (256, 2))
"""tile_m, warpgroups of tiles whose factors are swapped: their columns are the few rows of the result."""
MOST_COLUMNS = 256
"""Columns of the widest tile."""
NARROW = 32
"""Columns up to which all instructions have every multiple of 8: those of 8-bit integers have multiples of 16 above (PTX ISA, "wgmma.mma_async")."""
SHAPES = tuple(
    (*tile, kind, cluster)
    for tiles, kind, cluster in (
        (SHARED_TILES, MatmulKind.COOPERATIVE, 1),
        (PINGPONG_TILES, MatmulKind.PINGPONG, 1),
        (CLUSTER_TILES, MatmulKind.COOPERATIVE, 2),
    )
    for tile in tiles
)
MOST_SIDES = {
    **{(*tile, MatmulKind.COOPERATIVE, 1): 0 for tile in SHARED_TILES if tile[0] * tile[1] > ROOMY_ACCUMULATORS[tile[2]] * WARPGROUP * tile[2]},
    (192, 192, 3, MatmulKind.COOPERATIVE, 1): 0,
    (192, 176, 3, MatmulKind.COOPERATIVE, 1): 0,
    (192, 160, 3, MatmulKind.COOPERATIVE, 1): 1,
    (192, 128, 3, MatmulKind.COOPERATIVE, 1): 0,
    (64, 256, 1, MatmulKind.COOPERATIVE, 1): 0,
    (256, 128, 2, MatmulKind.COOPERATIVE, 2): 0,
    (256, 128, 2, MatmulKind.COOPERATIVE, 1): 1,
    (128, 128, 2, MatmulKind.PINGPONG, 1): 2,
    (64, 256, 2, MatmulKind.PINGPONG, 1): 0,
}
"""The most inputs that an epilogue may read without spills, by tile: of 789 kernels, every tile with eight epilogues of zero to three inputs in
bfloat16 and float32, and with all layouts and batches, those with more spilled 4 to 520 bytes (``kernel.resources``, NVRTC 13.0); of 269 of all tiles that
are candidates, with four epilogues of one to three inputs whose reads are clamped, none of those that are allowed here. Those that are not here spilled
nothing. 192 x 128 did in silu(a @ b) * c alone, 192 x 176 with a bias in groups of 1 and 2 rows alone; else none of 139 kernels in tiles of columns that
are no multiple of 64 with n contiguous. Of 388 with 8-bit and tf32 factors two spilled nevertheless, 4 and 8 bytes: int8 with a bias or a residual."""
NARROW_ACCUMULATORS = 160
"""Accumulators of a thread beside one input of an epilogue that lacks rows or columns, where one output is staged: of 96 kernels with a bias or a factor of
rows in bfloat16 and float32, four functions, and extents that tiles divide, that they do not, and symbolic ones, none spilled; with 176 all did."""
MASKED_ACCUMULATORS, MASKED_WARPGROUPS = 80, 2
"""Accumulators, as of warpgroups that share a tile, and warpgroups, with which reductions of rows whose last chunk is masked spill least: of 16 kernels of
cross-entropy 128 x 160 spilled 0 and 4 bytes, 128 x 128 in turns 68 and 224, which the products of the other warpgroup hide; larger tiles, and three
warpgroups, 12 to 868 (NVRTC 13.0). Of 4096 x 50257 x 2048 the chosen tiles, 128 x 128 in turns, spill nothing."""
GROUPS = (1, 2, 4, 8, 16)
RESIDENTS = (2, 3, 4)
"""Blocks of a multiprocessor, where there are more tiles than multiprocessors, and few steps between one epilogue and the next."""
FEW_STEPS = 4
NEIGHBORS = 8
"""Blocks that come to the L2 cache together, as they were launched: what they share it gives once. Fitted to ten sizes in groups of 1 to 32 rows."""
NEARLY = 1.23
"""Times the fewest bytes of neighbors, which are as good."""


def candidates(problem: MatmulProblem) -> Iterator[MatmulConfig]:
    """The configurations that the model chooses from: each tile with its steps of k, stages, group and blocks."""
    room = problem.target.limits.block_shared
    for tile_m, tile_n, warpgroups, kind, cluster in _swapped_shapes(problem.n) if problem.is_swapped else SHAPES:
        if problem.row_columns not in (0, tile_n):
            continue
        if not (problem.fills(tile_n) or (problem.suits(tile_n) and is_unfilled(problem, tile_m, tile_n, warpgroups))):
            continue
        if (problem.is_reduced and (kind is MatmulKind.PINGPONG or cluster > 1)) or (problem.columns_by_threads and cluster > 1):
            continue
        if problem.blocks is not None and (kind is MatmulKind.PINGPONG or cluster > 1):
            continue
        if warpgroups > problem.target.products.computing_warpgroups and problem.counts.row_bytes not in (0, problem.itemsize):
            continue
        taken = tile_m * tile_n // (WARPGROUP * warpgroups)
        if problem.has_masked_end and (taken > MASKED_ACCUMULATORS or warpgroups > MASKED_WARPGROUPS):
            continue
        is_narrow = problem.has_one_narrow_side and taken <= NARROW_ACCUMULATORS
        if taken > ROOMY_ACCUMULATORS[warpgroups] and kind is MatmulKind.COOPERATIVE and not (problem.is_plain or is_narrow):
            continue
        if not is_narrow and problem.sides > MOST_SIDES.get((tile_m, tile_n, warpgroups, kind, cluster), problem.sides):
            continue
        most = problem.target.sms // cluster * cluster
        config = MatmulConfig(tile_m, tile_n, SPAN // problem.itemsize, warpgroups, MAX_STAGES, 1, 1, most, kind, cluster, problem.is_swapped)
        if problem.blocks is not None:
            config = replace(config, in_flight=0)
            if not config.promotes(problem.blocks):
                continue
        if problem.counts.results > 1 and not _holds_several(problem, config):
            continue
        tiles = problem.tiles(config)
        if (config.is_pingpong and tiles <= config.blocks) or problem.m <= tile_m * (cluster - 1):
            continue  # no turns to take; nobody to share with
        may_be_long = problem.blocks is None and problem.ragged is None
        blocks = min(config.blocks, tiles)
        layers = problem.has_first_rows and not problem.shares_columns
        if layers and config.is_pingpong:
            continue  # measured, not explained: where a fifth of the rows count, 64 x 256 and 128 x 128 in turns took 2.5 to 4.9 times as long as shared tiles
        group = problem.target.products.layered_rows if layers else group_of(problem, config, blocks)
        orders = [None]
        if problem.half is not None and cluster == 1 and max(tile_m, tile_n) % min(tile_m, tile_n) == 0:
            orders = [None, problem.half.half]
        longest = min(problem.whole_steps, default=0)  # of k that is no longer than the least step of a computed factor
        for tile_k, stages in rings(config, [problem], room, max(problem.k, longest + 1) if may_be_long else 0):
            if problem.prologue is not None and tile_k not in problem.whole_steps:
                continue
            made = replace(config, tile_k=tile_k, stages=stages, blocks=blocks, group=group, layers=layers)
            for half in orders:
                yield replace(made, half=half)
            if problem.prologue is not None:
                yield replace(made, in_flight=0)
        if cluster == 1 and kind is MatmulKind.COOPERATIVE and tiles > blocks and problem.steps(config.tile_k) <= FEW_STEPS:
            yield from _shared(problem, config, tiles)


def is_unfilled(problem: MatmulProblem, tile_m: int, tile_n: int, warpgroups: int) -> bool:
    """Whether the model may choose a tile whose columns do not fill a slot."""
    return (tile_m, tile_n, warpgroups) in problem.target.products.unfilled_tiles


def _shared(problem: MatmulProblem, config: MatmulConfig, tiles: int) -> Iterator[MatmulConfig]:
    """The same tile with several blocks of a multiprocessor."""
    if problem.is_reduced or problem.ragged is not None or problem.blocks is not None or problem.prologue is not None:
        return  # blocks that wait for each other; what several of these need in registers is not known
    for residents in RESIDENTS:
        blocks = min(problem.target.sms * residents, tiles)
        if blocks <= problem.target.sms * (residents - 1) or config.accumulators * problem.counts.results > config.registers_of(residents) - LEAST_LEFT:
            break
        many = replace(config, residents=residents, blocks=blocks, group=group_of(problem, config, blocks))
        if problem.held and not many.holds(problem.held, problem.counts.results):
            break
        for tile_k, stages in rings(many, [problem], shared_room(problem.target, residents), 0):
            yield replace(many, tile_k=tile_k, stages=stages)


def rings(config: MatmulConfig, problems: Sequence[MatmulProblem], room: int, most: int) -> Iterator[tuple[int, int]]:
    """``tile_k`` and ``stages`` of a configuration: steps of one or several spans of k, and as many slots as fit.

    Args:
        config: with steps of one span, and the most slots.
        problems: those that it is for.
        room: bytes of Shared memory.
        most: elements of k that steps of several spans are shorter than.
    """
    for spans in SPANS:
        tile_k = spans * config.tile_k
        if spans > 1 and tile_k >= most:
            break
        longer = config if spans == 1 else replace(config, tile_k=tile_k)
        stages = min(MAX_STAGES, *(_stages(longer, p, room) for p in problems))
        if stages >= (2 if spans == 1 else LEAST_STAGES):
            yield tile_k, stages


def _stages(config: MatmulConfig, problem: MatmulProblem, room: int) -> int:
    return config.stages_in(room, problem.itemsize, problem.staged, problem.blocks, problem.counts, columns_contiguous=problem.columns_contiguous)


def _swapped_shapes(n: int) -> Iterator[tuple[int, int, int, MatmulKind, int]]:
    """Tiles with all ``n`` columns, as :data:`SHAPES` lists them; of many columns, those that are shared, too."""
    step = WGMMA_COLUMNS if n <= NARROW else STMATRIX
    columns = ceil(n / step) * step
    for rows, warpgroups in SWAPPED_ROWS:
        if columns <= MOST_COLUMNS and rows * columns // (WARPGROUP * warpgroups) <= ROOMY_ACCUMULATORS[warpgroups]:
            yield rows, columns, warpgroups, MatmulKind.COOPERATIVE, 1
    if n >= FEW_ROWS:
        yield from (shape for shape in SHAPES if shape[3:] == (MatmulKind.COOPERATIVE, 1) and shape[1] < columns)


def _holds_several(problem: MatmulProblem, config: MatmulConfig) -> bool:
    """Whether a tile has several contractions without spills: of 94 kernels with two, and one to three inputs of the epilogue, the others
    spilled 8 to 452 bytes; in turns also those with more accumulators than one contraction may have (``kernel.resources``, NVRTC 13.0). Of ragged rows 128 x
    192 and 192 x 128 spilled 4 and 44 bytes, of the 10 tiles of the fastest candidates (NVRTC 13.5)."""
    counts, total = problem.counts, config.accumulators * problem.counts.results
    if not config.accumulates(counts) or (counts.turns > 1 and (config.is_pingpong or config.cluster > 1)):
        return False
    if problem.ragged is not None and config.warpgroups > 1 and (total > ROOMY_ACCUMULATORS[2] or config.warpgroups > 2):
        return False
    if total > ROOMY_ACCUMULATORS[config.warpgroups]:
        return not problem.sides and not config.is_pingpong
    return problem.sides <= (1 if total > ROOMY_ACCUMULATORS[2] else 2) or total <= ROOMY_ACCUMULATORS[2] // 2


def group_of(problem: MatmulProblem, config: MatmulConfig, blocks: int) -> int:
    """Rows of tiles, or of clusters, in a group such that a wave reads the fewest bytes of the operands, as DeepGEMM chooses between groups of 8 and of 16
    (``Scheduler``, candidates of its swizzle); before that, of ragged rows, such that the block with most tiles has fewest. Of equals these take two rows: 32
    groups of random size, 8192 rows by 3072 x 4096, take 446 us in groups of two, 495 of eight, equal ones 339 and 341, and 4 groups of 32768 rows by 4096 x
    7168 2957 and 2997, equal ones 2892 and 2893 (H200, tiles of 128 x 256).

    Where several do, as of few columns or rows of tiles, such that :data:`NEIGHBORS` blocks read few bytes, and nearly as few are enough for the group that
    has neighbors share a tile of the operand of which there are more: 3712 x 128 x 4096 in tiles of 64 x 64 takes 9.7 us in groups of one row, 12.4 in
    groups of 8; 384 x 3200 x 3584 in tiles of 64 x 160 21.1, 13.9 (H200).
    """
    tile_m = config.tile_m * config.cluster
    height = problem.row_tiles(config)

    def touched(group: int, at_once: int = blocks) -> int:
        rows, columns = read_at_once(problem, config, at_once, group)
        weight = problem.target.products.columns_factor if problem.ragged is not None and problem.columns_contiguous else 1
        of_columns = problem.counts.columns * columns * config.tile_n * problem.matrices_of(ceil(rows / height))
        return problem.counts.rows * rows * tile_m * weight + of_columns

    if problem.ragged is not None:
        return min(GROUPS, key=lambda group: (problem.waves(replace(config, group=group, blocks=blocks)), touched(group), abs(group - 2)))
    least = min(map(touched, GROUPS))
    best = {group: touched(group, NEIGHBORS * config.cluster) for group in GROUPS if touched(group) == least}
    near = [group for group, few in best.items() if few <= NEARLY * min(best.values())]
    return max(near) if ceil(problem.n / config.tile_n) > rows_of_tiles(problem, config) else min(near)


@lru_cache(maxsize=256)
def rank(problem: MatmulProblem) -> tuple[Estimate, ...]:
    """All candidates, the fastest first; ties, as where all wait for memory, go to what has less to do beside that, then to more blocks and larger tiles."""
    found = [(estimate(problem, config, tile), tile) for config in candidates(problem) for tile in [time_of_tiles(problem, config, problem.waves(config))]]

    def key(one: tuple[Estimate, TileTime]) -> tuple[float, ...]:
        e, tile = one
        c = e.config
        return e.us, e.waves * tile.products, -c.blocks, -c.tile_m * c.tile_n, c.tile_k

    return tuple(e for e, _ in sorted(found, key=key))
