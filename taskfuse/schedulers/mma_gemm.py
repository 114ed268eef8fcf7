"""``tf.schedulers.mma_gemm``: a matrix product on tensor cores by ``mma.sync``: of float64, and of factors in any order of axes and alignment.

    result   [batch, row tile, column tile: blocks | others summed, k tile | row, column of warps | k step, rows / 16, columns / 8 | 16, 8, k: the atom]
    tiles    [the same blocks | others summed, k tile | elements over all threads, vector]: each factor in a ring of Shared memory, filled ahead by ``cp.async``
    factors  [as the result, k step included | rows / 16 | lanes, registers]: the fragments of one step
    epilogue [batch, row tile, column tile: blocks | row, column of warps | rows / 16, columns / 8 | lanes, registers]

All warps copy the tiles and multiply, in one role. Rows of a tile are padded so that the lanes of a warp, which read 8 rows (or columns) and 4 elements of k
together, read different banks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, inf, prod

from taskfuse.dtypes import DType, float32
from taskfuse.ir import atoms
from taskfuse.ir.atoms import SUM_OF_PRODUCTS
from taskfuse.ir.contraction import computes
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.matrix_instructions import Family, MatrixInstruction, rows
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedulers.elementwise import divides, registers, stored
from taskfuse.schedulers.pairs import PairFactor, PairReduction, copies, deal_tiles, find
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, check_flag, refuse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.target import ASYNC_BYTES, BANK_BYTES, DEFAULT, REGISTERS, RESERVED_SHARED, WARP, Target

NAME = "mma_gemm"
LEAST = 16
"""The fewest rows and columns; with fewer, most of a tile would lie outside, and the reduction scheduler takes the product."""
LANE_ROWS, LANE_TERMS = 8, 4
"""Rows (or columns), and groups of elements of k, that the lanes of a warp read together."""
PAIR = 2
"""Adjacent columns of the result that a lane holds."""
TILES = (
    (128, 128, 64, 32),
    (128, 64, 64, 32),
    (64, 128, 64, 32),
    (128, 64, 32, 32),
    (64, 128, 32, 32),
    (64, 64, 32, 32),
    (64, 32, 32, 16),
    (32, 32, 16, 16),
)
"""Rows and columns of a tile, and of a warp's part. The larger parts read Shared memory less; of tiles of four warps a multiprocessor holds several."""
DEPTHS = (128, 256)
"""Bytes along k of a tile."""
PADDING_BYTES = 32
"""The most padding bytes after each row of a tile."""
MOST_STAGES = 3
OTHER_REGISTERS = 48
"""Of a thread, beside its sums and the factors of a step: addresses, and factors that ptxas loads ahead. 36 kernels of float64 have up to this many."""


@dataclass(frozen=True, slots=True)
class MmaGemmConfig(Parameters):
    """The parameters of a product by ``mma.sync``.

    Attributes:
        tile_m, tile_n: rows and columns of a tile of the result.
        warp_m, warp_n: rows and columns of a warp tile: multiples of the instruction's rows and of its 8 columns.
        tile_k: elements of k in a tile of a factor.
        step: elements of k that an instruction multiplies.
        stages: tiles of each factor in Shared memory.
        ahead: steps of fragments in registers: with 2, those of the next step are loaded while the tensor cores work.
    """

    tile_m: int = 128
    tile_n: int = 128
    warp_m: int = 64
    warp_n: int = 32
    tile_k: int = 16
    step: int = 8
    stages: int = 3
    ahead: int = 1

    def __post_init__(self) -> None:
        self.check_fields()
        if self.tile_m % self.warp_m or self.tile_n % self.warp_n or self.tile_k % self.step:
            raise self.error(f"parts of {self.warp_m} x {self.warp_n} x {self.step} in {self.words}", "use divisors")
        self.check_threads(self.threads, f"{self.threads} threads")

    @property
    def warps(self) -> tuple[int, int]:
        """Along the rows and along the columns of a tile."""
        return self.tile_m // self.warp_m, self.tile_n // self.warp_n

    @property
    def threads(self) -> int:
        """Of a block."""
        return WARP * prod(self.warps)

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        tile = f"{self.tile_m} x {self.tile_n} x {self.tile_k}"
        return f"tiles of {tile}, {self.stages} in the ring, {self.warp_m} x {self.warp_n} of a warp, steps of {self.step}"


@tries_parameters
def mma_gemm(
    fusion: Fusion, config: MmaGemmConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT, tf32: bool = False
) -> Chosen[MmaGemmConfig]:
    """Schedule one matrix product with an elementwise epilogue on tensor cores, by the instructions of single warps (``mma.sync``, sm_80 and newer).

    It takes float64, which ``wgmma`` does not multiply, and factors of all types with any axis contiguous and rows of any length.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model.
        target: the GPU.
        tf32: multiply float32 as tf32: tensor cores take sign, exponent and the first 10 bits of the fraction. Without it float32 is rejected.

    Raises:
        UnsupportedError: the fusion is not such a product, has a schedule, or may be empty; there are fewer than 16 rows or columns; or the target's tensor
            cores do not multiply such factors.
    """
    check_call(fusion, NAME, config, MmaGemmConfig)
    check_flag(fusion, NAME, "tf32", tf32)
    extent = Sizes(fusion, sizes, target)
    problem, row, options = _planned(fusion, extent, tf32)
    if config is not None:
        row = _row_of(fusion, problem, config, extent)
    chosen = options[0] if config is None else _option(problem, row, config, extent)
    axes = problem.axes
    m, n, k = (extent(axes.extent(p)) for p in (axes.m, axes.n, axes.k))
    batch = " x ".join(str(extent(axes.extent(p))) for p in axes.batch)
    size = f"{f'{batch} times ' if batch else ''}{m} x {n} x {k}"
    script = Script(fusion)
    _MmaGemm(script, problem, row, chosen.config).apply()
    return Chosen(NAME, size, chosen, tuple(options), config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`mma_gemm`.

    Raises:
        UnsupportedError: see :func:`mma_gemm`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, NAME, None, MmaGemmConfig)
    _, _, options = _planned(fusion, Sizes(fusion, sizes, target), False)
    return Offer(options[0].us, partial(mma_gemm, sizes=sizes, target=target))


def _planned(fusion: Fusion, extent: Sizes, tf32: bool) -> tuple[PairReduction, MatrixInstruction, list[Option[MmaGemmConfig]]]:
    """The problem, its instruction, and all parameters with their estimates, the fastest first."""
    problem = find(fusion, NAME)
    axes = problem.axes
    if problem.inner or not computes(fusion.definition(axes.result), SUM_OF_PRODUCTS):
        raise refuse(fusion, NAME, f"{axes.result.name} is not a sum of products of two inputs", "tf.schedulers.simt_gemm")
    a, b = (factor.tensor.dtype for factor in (problem.a, problem.b))
    found = _instruction(a, b, axes.result.dtype, extent.target)
    if found is None:
        reason = f"{extent.target.name} has no mma.sync for products of {a.name} and {b.name} in {axes.result.dtype.name}"
        raise refuse(fusion, NAME, reason, "tf.schedulers.simt_gemm")
    if a is float32 and not tf32:
        help = "if 10 bits of the factors' fractions are enough: tf.schedulers.mma_gemm(fusion, tf32=True)"
        raise refuse(fusion, NAME, "products of float32: tensor cores read its upper 19 bits", help)
    m, n = (extent(axes.extent(p)) for p in (axes.m, axes.n))
    if min(m, n) < LEAST:
        raise refuse(fusion, NAME, f"it has {m} rows and {n} columns", "tf.schedulers.reduction")
    k = extent(axes.extent(axes.k))
    options = [_option(problem, found, config, extent) for config in _candidates(k, found, extent.target)]
    return problem, found, sorted(options, key=lambda option: (option.us, -option.config.tile_m * option.config.tile_n))


def _instruction(a: DType, b: DType, sums: DType, target: Target) -> MatrixInstruction | None:
    """The instruction: of 16 rows, and of those of float64 the one with 8 terms, whose factors are small; ``None``: the target has none."""
    return next((row for row in _instructions(a, b, sums, target) if row.k * a.itemsize <= 64), None)


def _instructions(a: DType, b: DType, sums: DType, target: Target) -> list[MatrixInstruction]:
    """Those of the target whose operands all threads hold alike."""
    return [row for row in rows(Family.MMA, a, b) if row.shape.layouts is None and row.sums is sums and target.has(row.arch)]


# -- the parameters ---------------------------------------------------------------------------------------------------------------------


def _row_of(fusion: Fusion, problem: PairReduction, config: MmaGemmConfig, extent: Sizes) -> MatrixInstruction:
    """The instruction for given parameters. Raises :class:`UnsupportedError` if none exists, or they do not fit it, or a multiprocessor."""
    a, b = problem.a.tensor.dtype, problem.b.tensor.dtype
    known = _instructions(a, b, problem.axes.result.dtype, extent.target)
    row = next((row for row in known if row.k == config.step), None)
    if row is None:
        steps = ", ".join(str(k) for k in sorted({row.k for row in known}))
        raise refuse(fusion, NAME, f"mma.sync multiplies {a.name} in steps of {steps}, not {config.step}", "give one of these as step")
    if config.warp_m % row.m or config.warp_n % row.widths[0]:
        raise refuse(fusion, NAME, f"a warp has {config.warp_m} x {config.warp_n}", f"use multiples of {row.m} and of {row.widths[0]} as warp_m and warp_n")
    shared = config.stages * _slot(config.tile_m, config.tile_n, config.tile_k, a.itemsize)
    if shared > extent.room:
        reason = f"a block needs {shared} bytes of Shared memory and has {extent.room}"
        raise refuse(fusion, NAME, f"with {config.words}: {reason}", "use smaller tiles or fewer stages")
    return row


def _slot(tile_m: int, tile_n: int, tile_k: int, itemsize: int) -> int:
    """The most bytes of a tile of each factor, with what is unused behind its rows."""
    return (tile_m + tile_n) * (tile_k * itemsize + PADDING_BYTES)


def _candidates(k: int, row: MatrixInstruction, target: Target) -> list[MmaGemmConfig]:
    """Tiles whose parts a warp's registers hold; no deeper than a short k."""
    itemsize = row.a.itemsize
    made: list[MmaGemmConfig] = []
    for depth in DEPTHS:
        steps = max(1, ceil(min(depth // itemsize, k) / row.k))
        tile_k = row.k * (1 << (steps - 1).bit_length())
        for tile_m, tile_n, warp_m, warp_n in TILES:
            stages = min(MOST_STAGES, target.limits.block_shared // _slot(tile_m, tile_n, tile_k, itemsize))
            if stages >= 2:
                made.append(MmaGemmConfig(tile_m, tile_n, warp_m, warp_n, tile_k, row.k, stages))
    return list(dict.fromkeys(made))


def _residents(c: MmaGemmConfig, row: MatrixInstruction, target: Target) -> int:
    """The blocks of a multiprocessor, by registers, Shared memory, warps."""
    held = c.warp_m * c.warp_n * row.sums.itemsize + c.step * (c.warp_m + c.warp_n) * row.a.itemsize
    registers = held // (BANK_BYTES * WARP) + OTHER_REGISTERS
    room = target.limits.shared // (c.stages * _slot(c.tile_m, c.tile_n, c.tile_k, row.a.itemsize) + RESERVED_SHARED)
    return max(1, min(REGISTERS // (registers * c.threads), room, target.limits.warps * WARP // c.threads, target.limits.blocks))


def _padding(factor: PairFactor) -> int:
    """Unused elements behind a row of a tile, so that the lanes of a warp read different banks: 8 rows with 4 words of k each, or 4 of k with 8 words.

    Rows of a tile are multiples of 32 words; of elements of 64 bits half a warp is served at a time.
    """
    itemsize = factor.tensor.dtype.itemsize
    words = LANE_TERMS if factor.is_k_major else LANE_ROWS
    return LANE_TERMS if itemsize == 8 else words * BANK_BYTES // itemsize


def _option(problem: PairReduction, row: MatrixInstruction, c: MmaGemmConfig, extent: Sizes) -> Option[MmaGemmConfig]:
    """The option with its time: full waves of blocks, or the bytes of factors and result, whichever is longer."""
    axes, target = problem.axes, extent.target
    m, n = (extent(axes.extent(p)) for p in (axes.m, axes.n))
    k = prod(extent(axes.extent(p)) for p in (*axes.summed, axes.k))
    batch = prod(extent(axes.extent(p)) for p in axes.batch)
    busy = _busy_us((batch, m, n, k), c, row, (problem.a.is_k_major, problem.b.is_k_major), target)
    moved = sum(extent.elements(tv) * tv.dtype.itemsize for tv in (problem.a.tensor, problem.b.tensor, axes.result))
    return Option(c, target.kernel_us(busy, target.dram_us(moved)), block=(WARP, c.warps[1], c.warps[0]))


def _busy_us(size: tuple[int, int, int, int], c: MmaGemmConfig, row: MatrixInstruction, along_k: tuple[bool, bool], target: Target) -> float:
    """Whole waves of blocks: of each tile the tensor cores, the loads of factors from Shared memory, and the bytes of the cache, which delay each other.

    The root of the sum of their squares is within 5% of ten times of float64 products in three tiles, each with one block on a multiprocessor (H200,
    ``benchmarks/results/product_figures.txt``). Of three resident blocks and more it is that of cubes: 4096 x 4096 x 4096 in tiles of 64 x 64 takes 2795 us, in
    tiles of 128 x 64, two of which are resident, 2957 (``benchmarks/results/product_tiles.txt``). What several blocks hide of each other's waits is assumed.

    Args:
        size: batch, rows, columns, k.
        along_k: for each factor, whether k is contiguous.
    """
    batch, m, n, k = size
    figures, itemsize = target.products, row.a.itemsize
    blocks = batch * ceil(m / c.tile_m) * ceil(n / c.tile_n)
    share = figures.double_share if itemsize == 8 else target.assumed.mma_share if target.has(90, feature=True) else figures.mma_gemm_share
    tensor = c.tile_m * c.tile_n / (target.products_per_cycle(itemsize) * share)
    # passes of Shared memory, each of 32 words: narrow elements are loaded as words where k is contiguous, else one by one
    passes = sum(
        part * (itemsize / BANK_BYTES if own else max(1, itemsize / BANK_BYTES)) / WARP for part, own in zip((c.warp_m, c.warp_n), along_k, strict=True)
    )
    residents = _residents(c, row, target)
    norm = min(max(residents, 2), 3)
    parts = tensor, passes * prod(c.warps), (c.tile_m + c.tile_n) * itemsize / target.l2_bytes_per_cycle
    work = c.tile_k * sum(part**norm for part in parts) ** (1 / norm)

    def together(count: int) -> float:
        """Cycles of a tile of k of so many resident blocks: one waits for its barrier and its first factors while the others multiply."""
        return max(count * work, work + figures.mma_step_cycles)

    each = ceil(blocks / target.sms)
    rounds, rest = divmod(each, residents)
    cycles = rounds * together(residents) + (together(rest) if rest else 0)
    return (ceil(k / c.tile_k) * cycles + ceil(each / residents) * figures.epilogue_cycles) / target.clock_mhz


def mma_us(size: tuple[int, int, int, int], a: DType, b: DType, sums: DType, target: Target, along_k: tuple[bool, bool] = (True, True)) -> float:
    """Microseconds of a product, without its fusion; infinite if the target's tensor cores do not multiply such factors, or only as tf32.

    Args:
        size: batch, rows, columns, k.
        a, b, sums: types of the factors and of the result.
        along_k: for each factor, whether k is contiguous.
    """
    row = _instruction(a, b, sums, target)
    if row is None or a is float32:
        return inf
    return target.kernel_us(min(_busy_us(size, c, row, along_k, target) for c in _candidates(size[3], row, target)))


# -- the schedule -----------------------------------------------------------------------------------------------------------------------


class _MmaGemm:
    """The calls."""

    def __init__(self, script: Script, problem: PairReduction, row: MatrixInstruction, config: MmaGemmConfig) -> None:
        self.script = script
        self.fusion = script.fusion
        self.problem = problem
        self.config = config
        self.atom = atoms.mma(row.m, row.widths[0], config.step)
        self.rows, self.columns = row.m, row.widths[0]
        self.stored = stored(self.fusion)
        """The outputs, or the parts that they are made of."""
        self.heads = len(problem.axes.batch) + 2
        """Axes on blocks."""
        self.steps = self.heads + len(problem.axes.summed) + 1
        """These, and the serial ones over tiles of factors."""

    def apply(self) -> None:
        script, problem = self.script, self.problem
        script.comment("factors in Shared memory and, from there, in registers; results in registers")
        result = problem.axes.result
        acc = script.new(result, "cache_fork" if result.uses else "cache_before") if result.is_output else result
        registers(script, [out for out in self.stored if out is not result], [], self._together())
        _, tiles = copies(script, problem, acc)
        behind = [e.output for e in needed(self.fusion) if not among(e.output, (acc, *tiles))]
        self._blocks(acc, behind)
        for tile in tiles:
            script.on(acc).propagate([tile], self.steps)
        factors = [script.new(tile, "cache_after") for tile in tiles]
        self._warps(acc, factors)
        script.parallelize_like(acc, [*tiles, *factors, *behind])
        for tile, factor, rows_of_tile in zip(tiles, (problem.a, problem.b), (self.config.tile_m, self.config.tile_n), strict=True):
            self._tile(tile, factor, rows_of_tile * self.config.tile_k)
        self._factors(factors)
        self._epilogue(acc, behind)

    def _together(self) -> int:
        """Elements that a lane stores together."""
        return PAIR if all(divides(PAIR, out.shape[-1], self.fusion.facts()) for out in self.stored) else 1

    def _blocks(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        c = self.config
        deal_tiles(self.script, self.problem, acc, (c.tile_m, c.tile_n, c.tile_k)).propagate(list(behind), self.heads)

    def _warps(self, acc: TensorView, factors: Sequence[TensorView]) -> None:
        script, at, c = self.script, self.steps, self.config
        script.comment("[.. | row, column of warps | k step, rows / 16, columns / 8 | the atom]")
        call = script.on(acc)
        call.split(at + 2, c.step).split(at + 1, c.warp_n).split(at, c.warp_m)  # [.., rows of warps, rows, columns of warps, columns, k step, k]
        call.reorder([*range(at), at, at + 2, at + 4, at + 1, at + 3, at + 5])
        call.propagate(list(factors), at + 3)
        call.split(at + 4, self.columns).split(at + 3, self.rows).reorder({at + 5: at + 4})
        call.set_atom(self.atom, (-3, -2, -1))
        call.bind(at, P.TIDz).bind(at + 1, P.TIDy)
        for axis in range(at + 2, at + 5):
            call.bind(axis, P.Unroll)

    def _tile(self, tile: TensorView, factor: PairFactor, elements: int) -> None:
        """[.., elements of a tile] to [.., one after another, warps, lanes, vector]: each thread has some, or a condition would choose those that copy."""
        script, c, at = self.script, self.config, self.steps
        script.comment(f"{factor.tensor.name}: elements of a tile over all threads")
        call, pad = script.on(tile), _padding(factor)
        call.set_allocation_domain(Spelled(layouts.padded(pad), f"tf.layouts.padded({pad})"))
        for _ in range(len(tile.loop) - at - 1):
            call.merge(at)
        vector = max(1, min(factor.vector, elements // c.threads))
        is_async = vector * tile.dtype.itemsize in ASYNC_BYTES
        call.split(at, vector if is_async else 1).split(at, c.threads).split(at + 1, c.warps[1] * WARP).split(at + 2, WARP)
        call.bind(at + 1, P.TIDz).bind(at + 2, P.TIDy).bind(at + 3, P.TIDx)
        if is_async:  # else one element at a time: past the end of k a copy writes zeros, and vectors do not
            call.set_atom(atoms.CP_ASYNC, [at + 4])
        call.inline_at(at)
        if is_async:
            call.circular_buffer(c.stages)

    def _factors(self, factors: Sequence[TensorView]) -> None:
        """[.., k step | rows / 16, lanes, registers]."""
        script, at = self.script, self.steps + 3
        script.comment("factors of a step in registers, in the atom's layout")
        sides = ((self.problem.a, self.rows, "a"), (self.problem.b, self.columns, "b"))
        for tv, (factor, rows_of_tile, which) in zip(factors, sides, strict=True):
            call = script.on(tv)
            if not factor.is_k_major:
                call.reorder({at: at + 1})
            call.split(at, rows_of_tile).bind(at, P.Unroll)
            call.fragment((at + 1, at + 2), self.atom, which)
            self._unroll(call, at + 3, is_vector=factor.is_k_major and tv.dtype.itemsize < BANK_BYTES)
            call.inline_at(self.steps + 3)
            if self.config.ahead > 1:
                call.circular_buffer(self.config.ahead)

    def _unroll(self, call: Recorded, first: int, *, is_vector: bool) -> None:
        """The axes from ``first`` on that no thread index has, the last one as a vector if its elements are neighbors in memory."""
        loop = call.tensor.loop
        for axis in range(first, len(loop)):
            if call.tensor.schedule.ptype(loop[axis]) is P.Serial:
                call.bind(axis, P.Vectorize if is_vector and axis == len(loop) - 1 else P.Unroll)

    def _epilogue(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        script, at, c = self.script, self.heads, self.config
        script.comment("epilogue in registers, in the layout of the accumulators")
        for tv in behind:
            call = script.on(tv)
            call.split(at + 1, self.columns).split(at + 1, c.warp_n // self.columns).split(at, self.rows).split(at, c.warp_m // self.rows)
            call.reorder([*range(at), at, at + 3, at + 1, at + 4, at + 2, at + 5])  # [.., warps, warps, rows / 16, columns / 8, 16, 8]
            call.bind(at, P.TIDz).bind(at + 1, P.TIDy).bind(at + 2, P.Unroll).bind(at + 3, P.Unroll)
            call.fragment((at + 4, at + 5), *([self.atom] if self.rows < LEAST else []))
            self._unroll(call, at + 4, is_vector=self._together() > 1 and among(tv, self.stored))
        if between := [tv for tv in behind if not among(tv, self.stored)]:
            script.inline_most(between)
        script.on(acc).inline_at(at)
