"""The cost model of the warp-specialized matmul: the time of a tile, of its steps and of a kernel.

For each step of k a wave of blocks takes the greatest of four times: of the tensor cores, of their reads of operands from
Shared memory, of the operands' traffic from the L2 cache, and a minimum per step; of the first and the third a little more than the greater, as
each delays the other. The cache gives all multiprocessors together so many bytes, more if blocks keep step, that is in a single wave: neighbors then ask for
the same data at once. Rows of the last tiles that lie outside cost several times what others do. Then comes the epilogue, during
which the tensor cores of that multiprocessor are idle, unless another warpgroup uses them. Waves follow one another, and no kernel is faster
than its bytes from DRAM. Measured: clusters that load shared operands once are not faster for it, since the cache serves neighbors
that ask for the same data at once; but their blocks begin and end together.

The figures are those of the target (:class:`taskfuse.figures.ProductFigures`). The model differs from 321 times of given tiles on an H200 by 5% (root mean
square of the logarithm), at most by 21%: ``benchmarks/results/matmul.txt``, random sizes of 28 and a sweep of 16 sizes of 29 November 2026 (``matmul.py
--at``). Copies by threads were measured at two sizes, reads and arithmetic of epilogues at one; the cost of reductions is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, gcd, prod
from typing import ClassVar

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.schedulers.boxes import box_of_rows
from taskfuse.schedulers.config import (
    ALONE,
    SPAN,
    STAGED_COLUMNS,
    STMATRIX,
    BlockCounts,
    MatmulConfig,
    ProductCounts,
)
from taskfuse.schedulers.half_tiles import DealtTiles, HalfTiles
from taskfuse.schedulers.loads import copy_cycles
from taskfuse.schedulers.ragged_tiles import RaggedTiles
from taskfuse.schedulers.schedule import Option
from taskfuse.target import DEFAULT, WARPGROUP, Target

FEW_ROWS = 128
"""Rows from which tiles of whole instructions waste less than half of one."""
BEHIND_NORM = 2.5
"""Exponent of the norm that combines the times of memory and of rows behind the end of a factor: with seven of them behind one row no time was lost."""
WAITS = frozenset(("barriers", "copies of threads", "promotion", "prologue", "slots"))
"""Of the parts of a step, those that are mostly waits of one warpgroup."""


@dataclass(frozen=True, slots=True)
class MatmulProblem:
    """A matrix product with numbers for its extents.

    Attributes:
        batch, m, n, k: extents; ``k`` is that of all contractions that walk along k one after another.
        counts: of contractions.
        blocks: inputs of the terms, where products of blocks of k are summed.
        matrices: of the factor with the columns, fewer than ``batch`` where elements of the batch share one; 0: one for each.
        itemsize: bytes of an operand's element, as it is multiplied.
        staged, direct, scattered: outputs that are staged in Shared memory, those stored from registers in pairs, and those stored one by one.
        by_threads: of the staged, those that threads store, not bulk copies.
        one_by_one: of these, those that they store element by element, neighbors of a row together.
        ragged: the batch is of tiles of ragged rows, ``m`` rows each.
        target: the GPU.
        columns_contiguous: n, not k, is contiguous in the factor with the columns.
        has_first_rows: only the first rows of each matrix of the batch are read, and data says how many.
        columns_mixed: in one of several such factors that take turns in one ring, and k in another.
        access: for each operand, the bytes of one access where threads copy it; 0: the copy engine does.
        row_sums, column_sums: reductions of the result along n, and along m (or both).
        sides, wide: inputs that the epilogue reads, and how many of them have rows and columns; the others are few elements.
        held: bytes of an element of each of these, and of each output.
        narrow, held_by_piece: of ``held``, the bytes of inputs that are few elements, and of all others.
        work: instructions of the epilogue for one element.
        prologue: of what computes the factor with the rows, for one of its elements, with conversions; ``None``: it is an input.
        whole_steps: multiples of :data:`~taskfuse.schedulers.config.SPAN` bytes, in elements of k, that divide k for certain: steps where a factor is computed.
        half: one triangle of the result is read.
        is_swapped: rows are the axis that columns otherwise are (:attr:`~taskfuse.schedulers.config.MatmulConfig.is_swapped`).
        walks: how many times k is walked along for a tile: the elements of the summed axes beside it.
        box_of: the extents whose product is ``m``, where the rows of a tile are a box of several axes.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    itemsize: int = 2
    staged: int = 1
    direct: int = 0
    scattered: int = 0
    target: Target = DEFAULT
    columns_contiguous: bool = False
    access: tuple[int, int] = (0, 0)
    row_sums: int = 0
    column_sums: int = 0
    sides: int = 0
    wide: int = 0
    held: tuple[int, ...] = ()
    work: float = 0
    matrices: int = 0
    by_threads: int = 0
    one_by_one: int = 0
    ragged: RaggedTiles | None = None
    blocks: BlockCounts | None = None
    counts: ProductCounts = ALONE
    prologue: float | None = None
    whole_steps: tuple[int, ...] = ()
    half: HalfTiles | None = None
    is_swapped: bool = False
    walks: int = 1
    box_of: tuple[int, ...] = ()
    narrow: tuple[int, ...] = ()
    held_by_piece: tuple[int, ...] = ()
    columns_mixed: bool = False
    has_first_rows: bool = False

    @property
    def shares_columns(self) -> bool:
        """Whether elements of the batch share the factor with the columns."""
        return 0 < self.matrices < self.batch

    @property
    def has_few_rows(self) -> bool:
        """Whether it may be faster with its factors in the other order."""
        return self.m < FEW_ROWS and self.m < self.n and not self.box_of

    @property
    def orders(self) -> tuple[MatmulProblem, ...]:
        """The problem, and where it has few rows that with its factors swapped, if neither is laid out along its own axis and all is stored as it is."""
        if not self.has_few_rows:
            return (self,)
        scattered = self.staged + self.direct + self.scattered
        turned = replace(
            self, m=self.n, n=self.m, staged=0, by_threads=0, one_by_one=0, direct=0, scattered=scattered, access=self.access[::-1], columns_contiguous=False
        )
        return self, replace(turned, is_swapped=True)

    @property
    def is_reduced(self) -> bool:
        """Whether there are reductions of the result."""
        return self.row_sums + self.column_sums > 0

    @property
    def is_plain(self) -> bool:
        """Whether one output is all that an epilogue deals with, and an input each factor."""
        alone = self.counts == ALONE and self.blocks is None and self.ragged is None and self.prologue is None
        return alone and self.staged + self.direct + self.scattered == 1 and not self.sides and not self.is_reduced

    @property
    def has_one_narrow_side(self) -> bool:
        """Whether an epilogue of one staged output reads one input, which lacks rows or columns."""
        return self.sides == 1 and self.wide == 0 and self.staged == 1 and replace(self, sides=0).is_plain

    @property
    def columns_by_threads(self) -> bool:
        """Whether threads copy the factor with the columns."""
        return self.access[1] > 0

    def suits(self, tile_n: int) -> bool:
        """Whether tiles may have so many columns: where n is contiguous and threads copy, or layouts differ, whole rows of the swizzle."""
        return not (self.columns_by_threads or self.columns_mixed) or self.fills(tile_n)

    def fills(self, tile_n: int) -> bool:
        """Whether so many columns fill all rows of the swizzle of a slot."""
        return not self.columns_contiguous or tile_n * self.itemsize % SPAN == 0

    def loaded_columns(self, config: MatmulConfig) -> int:
        """Columns that a slot holds for a tile."""
        return config.loaded_columns(self.itemsize, columns_contiguous=self.columns_contiguous)

    def straddling(self, config: MatmulConfig) -> float:
        """The share of tiles whose columns are contiguous and do not begin at a row of the swizzle, so that each such row is in two lines of the cache."""
        return 1 - gcd(config.tile_n * self.itemsize, SPAN) / SPAN if self.columns_contiguous else 0

    def tiles(self, config: MatmulConfig) -> int:
        """Tiles of the result; in clusters the last may lie outside."""
        return self.batch * self.row_tiles(config) * config.cluster * ceil(self.n / config.tile_n)

    def row_tiles(self, config: MatmulConfig) -> int:
        """Tiles, or clusters of tiles, one above the other."""
        return ceil(self.filled_rows(config) / config.cluster)

    def filled_rows(self, config: MatmulConfig) -> int:
        """Tiles one above the other that have rows."""
        return prod(ceil(n / b) for n, b in zip(self.box_of, self.box(config), strict=True)) if self.box_of else ceil(self.m / config.tile_m)

    def box(self, config: MatmulConfig) -> tuple[int, ...]:
        """The rows of a tile along each axis of the rows, where these are several."""
        return box_of_rows(self.box_of, config.tile_m) if self.box_of else ()

    def steps(self, tile_k: int) -> int:
        """Steps of so many elements of k."""
        return self.walks * ceil(self.k / tile_k)

    def used(self, config: MatmulConfig) -> int:
        """Of these, tiles that multiply: those that have rows, and of which anything is read."""
        if self.half is not None:
            return self.dealt(config).used
        return self.tiles(config) if self.ragged is None else self.tiles(config) // self.batch * self.ragged.used

    def waves(self, config: MatmulConfig) -> int:
        """The most tiles of a block that multiply."""
        if self.half is not None:
            return self.dealt(config).most
        if self.ragged is None:
            return ceil(self.tiles(config) / config.blocks)
        return self.ragged.most(ceil(self.m / config.tile_m), ceil(self.n / config.tile_n), config.group, config.blocks)

    def multiplied(self, config: MatmulConfig) -> float:
        """The most tiles of a block that multiply; where data says how many of the first rows count, in the mean over multiples of 128 rows, of which r
        rows have the weight 1 / r: what is padded for a maximum mostly has few rows. An assumption.

        Groups of tiles count as a whole: where their rows divide the blocks, each block has one place in all groups.
        """
        if not config.layers:
            return self.waves(config)
        of_row, height = self.batch * config.cluster * ceil(self.n / config.tile_n), self.row_tiles(config)
        group = config.group if config.blocks % config.group == 0 else 1
        each = config.tile_m * config.cluster * group
        most = {rows: ceil(min(height, ceil(rows / each) * group) * of_row / config.blocks) for rows in range(FEW_ROWS, self.m + FEW_ROWS, FEW_ROWS)}
        return sum(tiles / rows for rows, tiles in most.items()) / sum(1 / rows for rows in most)

    def dealt(self, config: MatmulConfig) -> DealtTiles:
        """The tiles of a result of which one triangle is read."""
        assert self.half is not None
        tile = config.tile_m * config.cluster, config.tile_n
        found = self.half.dealt(tile, config.group, max(1, config.blocks // config.cluster), config.half)
        return found._replace(used=found.used * config.cluster)

    def matrices_of(self, rows: int) -> int:
        """Matrices with the columns that this many consecutive elements of the batch take."""
        if self.ragged is not None:
            return self.ragged.matrices(rows)
        return ceil(rows * self.matrices / self.batch) if self.shares_columns else 1


@dataclass(frozen=True, slots=True)
class Estimate(Option[MatmulConfig]):
    """The estimate of the model for one configuration.

    Attributes:
        waves: the most tiles of a block.
        efficiency: tiles divided by the tiles of that many full waves.
        bound: the resource that limits a step of k.
    """

    HEADING: ClassVar[str] = "tile              kind         warpgroups  cluster  stages  waves   full  bound"

    waves: int
    efficiency: float
    bound: str

    @property
    def row(self) -> str:
        """Its row of the table."""
        c = self.config
        shape = f"{c.tile_m:3} x {c.tile_n:<3} x {c.tile_k:<4}  {c.kind.value:11}  {c.warpgroups:10}  {c.cluster:7}  {c.stages:6}"
        beside = f"{f', {c.residents} on a multiprocessor' if c.residents > 1 else ''}{f', {c.in_flight} in flight' if c.in_flight > 1 else ''}"
        order = f"{', factors swapped' if c.is_swapped else ''}{f', {c.half.value} triangle first' if c.half else ''}"
        return f"{shape}  {self.waves:5}  {self.efficiency:5.0%}  {self.bound}{beside}{order}"


@dataclass(frozen=True, slots=True)
class TileTime:
    """The cycles of one tile.

    Attributes:
        products: of its steps of k.
        epilogue: of what follows.
        bound: what a step of k waits for.
        busy: of these together, those in which units of the multiprocessor work for it: other blocks use the rest.
    """

    products: float
    epilogue: float
    bound: str
    busy: float


def tile_time(problem: MatmulProblem, config: MatmulConfig, loading: float = 1, *, in_step: bool = False) -> TileTime:
    """What one tile of ``problem`` takes.

    Args:
        loading: the part of the multiprocessors that load at a time, in the mean.
        in_step: no block has a second tile.
    """
    steps = problem.steps(config.tile_k)
    target, figures = problem.target, problem.target.products
    counts = problem.counts
    steps += counts.turns - 1  # what walks along k after another begins when that has ended
    multiplied = counts.at_once * config.tile_m * config.tile_n * config.tile_k * problem.itemsize
    instructions = config.tile_m // WGMMA_ROWS
    read = counts.at_once * (instructions * (WGMMA_ROWS + config.tile_n)) * config.tile_k * problem.itemsize
    columns = problem.loaded_columns(config) * (1 + figures.straddle_factor * problem.straddling(config))
    loaded = counts.slot_bytes(config.tile_m, columns, problem.itemsize) * config.tile_k
    spans = config.spans(problem.itemsize)
    further = (spans - 1) * figures.span_cycles
    cache = target.l2_bytes_per_cycle * (figures.in_step if in_step else 1)
    cycles = {
        "tensor cores": multiplied / target.tensor_bytes_per_cycle / figures.tensor_share,
        "Shared memory": read / target.shared_bytes_per_cycle,
        "L2 cache": loaded * loading * (1 + figures.outside_factor * _outside(problem, config)) / cache,
        "barriers": (figures.step_cycles if config.sharing == 1 else figures.shared_step_cycles) + further,
    }
    if problem.blocks is not None:
        sums = (1 + problem.blocks.each_column) * config.tile_m * config.tile_n / target.lanes
        of_rows = config.rows // WGMMA_ROWS
        loaded = problem.blocks.by_piece * figures.block_load_cycles * of_rows * config.tile_n / config.columns
        cycles["promotion"] = cycles["tensor cores"] + figures.promotion_cycles * (1 + of_rows) / 2 + sums + loaded
    behind = _copies_behind(problem, config)
    if behind:
        cycles["rows outside"] = behind
    if counts.results > 1:
        cycles["Shared memory"] = (read + loaded) / figures.several_bytes
    if problem.prologue is not None:
        cycles["prologue"] = _prologue_cycles(problem, config, problem.prologue, cycles["tensor cores"], in_step=in_step)
    if any(problem.access):
        tiles = config.tile_m * config.tile_k * problem.itemsize, config.tile_n * config.tile_k * problem.itemsize
        cycles["copies of threads"] = copy_cycles(tiles, problem.access, problem.itemsize, target)
    if problem.ragged is not None:
        runs = counts.rows * config.tile_m + counts.columns * (config.tile_k if problem.columns_contiguous else config.tile_n)
        cycles["rows in DRAM"] = runs * config.blocks * target.clock_mhz / figures.runs_per_us
    held = figures.held_share * cycles["tensor cores"] if counts.at_once > 1 else 0
    cycles["slots"] = (figures.load_cycles + cycles["L2 cache"] + held) / (config.stages - config.in_flight)
    worked = max(cycles[name] for name in cycles if name not in WAITS)
    bound = max(cycles, key=lambda name: cycles[name])
    both = sum(cycles[name] ** figures.step_norm for name in ("tensor cores", "L2 cache")) ** (1 / figures.step_norm)
    step = max(cycles[bound], both)
    if bound in ("tensor cores", "slots"):
        step = max(step, sum(cycles[name] ** figures.slots_norm for name in ("tensor cores", "slots")) ** (1 / figures.slots_norm))
    if problem.prologue is not None:
        step = sum(cycles[name] ** figures.step_norm for name in ("prologue", bound)) ** (1 / figures.step_norm)
    stores = problem.staged + figures.rows_factor * (problem.by_threads - problem.one_by_one) + figures.elements_factor * problem.one_by_one
    stores += figures.direct_factor * problem.direct + figures.scattered_factor * problem.scattered
    piece = figures.piece_cycles * (figures.narrow_factor if config.columns <= STMATRIX else 1) * stores
    piece += _beside_cycles(problem, config)
    piece += figures.row_part_cycles * problem.row_sums + figures.column_part_cycles * problem.column_sums
    epilogue = figures.epilogue_cycles + _pieces(config) * piece
    if problem.narrow:
        epilogue += _narrow_cycles(problem, config)
    return TileTime(steps * step, epilogue, bound, steps * max(worked, figures.busy_share * step) + figures.busy_share * epilogue)


def _prologue_cycles(problem: MatmulProblem, config: MatmulConfig, instructions: float, multiplied: float, *, in_step: bool) -> float:
    """Cycles of a step whose factor passes through registers: what a warpgroup does one after another, loads, math and the part of the products that neither is
    in flight then nor is another warpgroup's.

    Args:
        instructions: for one element.
        multiplied: cycles of the tensor cores.
        in_step: no block has a second tile.
    """
    figures = problem.target.products
    elements = config.rows * config.tile_k // WARPGROUP
    parts = config.in_flight + 1 if config.in_flight else 0
    own = figures.fragment_cycles + parts * figures.fragment_part_cycles + elements * (figures.fragment_element_cycles + instructions)
    own *= 1 + figures.fragment_sharing * (config.sharing - 1)
    own += figures.fragment_shares[config.in_flight > 0] * multiplied
    if not in_step:
        own *= 1 + figures.fragment_late * max(0, 1 - config.stages / problem.steps(config.tile_k))
    if problem.counts.row_bytes not in (0, problem.itemsize):
        instructions += figures.fragment_element_cycles  # one element after another is loaded, by units that warpgroups share
    return max(own, config.sharing * elements * instructions)


def _copies_behind(problem: MatmulProblem, config: MatmulConfig) -> float:
    """Cycles of the copy engine in a step of k for rows of 128 bytes behind the end of a factor that has not one tile of rows, or of columns."""
    behind = max(0, config.tile_m - problem.m) * problem.counts.rows if not problem.access[0] else 0
    if not problem.access[1] and not problem.columns_contiguous:
        behind += max(0, config.tile_n - problem.n) * problem.counts.columns
    return problem.target.products.outside_cycles * behind * config.spans(problem.itemsize)


def _outside(problem: MatmulProblem, config: MatmulConfig) -> float:
    """Of the rows of the factors that tiles load, the part behind the ends of the tensors, where there are several tiles."""
    rows, columns = problem.filled_rows(config), ceil(problem.n / config.tile_n)
    over_rows = 1 - problem.m / (rows * config.tile_m) if rows > 1 else 0
    over_columns = 1 - problem.n / (columns * config.tile_n) if columns > 1 else 0
    return (over_rows * config.tile_m + over_columns * config.tile_n) / (config.tile_m + config.tile_n)


def time_of_tiles(problem: MatmulProblem, config: MatmulConfig, waves: int) -> TileTime:
    """The time of a tile with all others of its wave."""
    return tile_time(problem, config, problem.used(config) / (waves * problem.target.sms * config.residents), in_step=waves == 1)


def estimate(problem: MatmulProblem, config: MatmulConfig, tile: TileTime | None = None) -> Estimate:
    """The time of ``config`` for ``problem``.

    Args:
        tile: what one tile takes, if the caller knows that.
    """
    waves, multiplied = problem.waves(config), problem.multiplied(config)
    target, figures = problem.target, problem.target.products
    tile = tile or time_of_tiles(problem, config, waves)
    products, epilogue, bound = tile.products, tile.epilogue, tile.bound
    if config.is_pingpong:
        # products follow each other, then the last epilogue; or a warpgroup has as much to store as all others to multiply
        turn = figures.pingpong_cycles + figures.pingpong_work * _pieces(config) * _math_cycles(problem, config)
        in_turn = ceil(waves / config.warpgroups)
        total = max(multiplied * products + waves * turn + epilogue, multiplied / waves * in_turn * products + in_turn * epilogue)
    else:
        total = multiplied * products + waves * epilogue
    if problem.half is not None:
        total += problem.dealt(config).others * epilogue / (config.warpgroups if config.is_pingpong else 1)
    if config.residents > 1:
        total = waves * max(products + epilogue, config.residents * tile.busy) * figures.residents_factor
    us = total / target.clock_mhz + (figures.cluster_us if config.cluster > 1 else 0)
    moved = problem.itemsize * _elements(problem)
    slot = problem.counts.slot_bytes(config.tile_m, problem.loaded_columns(config), problem.itemsize) * config.tile_k
    asked = min(config.blocks, problem.used(config)) * max(config.stages - figures.slots_used, 0.5) * slot
    dram = max(target.dram_us(moved), moved / asked * figures.slot_us)
    # the engine that loads also makes the zeros of rows behind the end: 1 x 14336 x 4096 in tiles of 64 x 128 takes 35.4 us, 29.0 without these (H200)
    behind = waves * problem.steps(config.tile_k) * _copies_behind(problem, config) / target.clock_mhz
    dram = (dram**BEHIND_NORM + behind**BEHIND_NORM) ** (1 / BEHIND_NORM)
    rest = problem.used(config) % config.blocks / problem.used(config)
    if rest and waves > 1 and problem.ragged is None and not config.is_pingpong:
        dram = dram * (1 - rest) + max(dram * rest, us / waves)  # the few blocks of a last wave wait for their steps, not for memory
    if dram > us:
        us, bound = dram, "DRAM"
    if problem.is_reduced:
        us += figures.finish_us
    us += figures.start_us + figures.warpgroup_us * (config.warpgroups - 1)
    return Estimate(config, us, waves, problem.used(config) / (waves * config.blocks), bound)


def _elements(problem: MatmulProblem) -> float:
    """Elements that cross between the chip and its memory: all once, but matrices of ragged rows again for what is left of a group behind its whole tiles."""
    tiles = problem.ragged
    matrices = problem.matrices if problem.shares_columns else problem.batch
    counts = problem.counts
    rows = counts.rows * problem.k * (counts.row_bytes or problem.itemsize) / problem.itemsize
    columns = counts.columns * problem.walks * problem.k  # windows overlap: the cache has what they share
    if tiles is None:
        return problem.batch * problem.m * (rows + problem.n) + matrices * problem.n * columns
    stored = tiles.rows if tiles.is_scattered else problem.batch * problem.m
    return tiles.rows * rows + stored * problem.n + max(matrices, tiles.reads) * problem.n * columns


def read_at_once(problem: MatmulProblem, config: MatmulConfig, blocks: int, group: int) -> tuple[int, int]:
    """Rows and columns of tiles that a wave of blocks reads, in groups of rows."""
    rows, columns = rows_of_tiles(problem, config), ceil(problem.n / config.tile_n)
    at_once = blocks // config.cluster
    width = min(columns, ceil(at_once / min(group, rows)))
    return min(rows, ceil(at_once / width)), width


def rows_of_tiles(problem: MatmulProblem, config: MatmulConfig) -> int:
    """Rows of tiles, or of clusters, from which a group takes some."""
    return problem.row_tiles(config) * (problem.batch if problem.shares_columns else 1)


def _narrow_cycles(problem: MatmulProblem, config: MatmulConfig) -> float:
    """Cycles to wait for inputs of an epilogue that are few elements: once per tile, then for each further piece or pair of elements, from the first cache."""
    cycles, results = problem.target.products.narrow_side_cycles, problem.counts.results
    if config.loads_whole(problem.narrow, problem.held_by_piece, problem.wide, results):
        return cycles
    pieces = config.rows // WGMMA_ROWS * config.tile_n // config.columns
    return cycles * (1 + ((pieces if config.holds(problem.held, results) else config.accumulators // 2) - 1) / 3)


def _pieces(config: MatmulConfig) -> float:
    """Of 64 x 64 elements, in the tile of a warpgroup."""
    return config.rows / WGMMA_ROWS * config.tile_n / STAGED_COLUMNS


def _math_cycles(problem: MatmulProblem, config: MatmulConfig) -> float:
    """Cycles of the instructions of an epilogue for 64 x 64 elements, which few warps issue one after another."""
    figures = problem.target.products
    return figures.work_cycles * max(1.0, figures.shared_work * config.sharing) * WGMMA_ROWS * STAGED_COLUMNS / WARPGROUP * problem.work


def _beside_cycles(problem: MatmulProblem, config: MatmulConfig) -> float:
    """Cycles that the math of an epilogue takes for 64 x 64 elements: one wait for what it reads beside the product, or one for each access where there is no
    room for a piece of it and a condition stands around each; and its instructions."""
    figures, work = problem.target.products, _math_cycles(problem, config)
    if not problem.wide:
        return work
    elements = WGMMA_ROWS * STAGED_COLUMNS // WARPGROUP
    times = figures.guarded_factor if config.is_pingpong else 1
    waits = STAGED_COLUMNS / config.columns * times if config.holds(problem.held, problem.counts.results) or not config.is_pingpong else elements // 2
    return waits * figures.side_latency_cycles + figures.side_cycles * problem.wide + work * times
