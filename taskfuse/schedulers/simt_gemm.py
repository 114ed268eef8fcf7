"""``tf.schedulers.simt_gemm``: contractions on CUDA cores: products of types that tensor cores do not support, such as float32 in full precision, and
reductions of any other function of pairs, such as distances (:mod:`taskfuse.schedulers.pairs`).

    result   [batch, row tile, column tile: blocks | others summed, k tile | threads | k step | rows, columns, k of a thread, unrolled]
    tiles    [the same blocks | others summed, k tile | elements over all threads, vector]: each factor in a ring of Shared memory, filled ahead by ``cp.async``
    factors  [as the result, k step included | rows or columns, vector]: the operands of the next multiplications, in registers

A factor whose last axis is k is read from Shared memory in vectors along k, and its rows are padded, so that threads read different banks; any other factor
in vectors along its rows or columns. Threads with many elements of the result have no registers for several of k: such a factor is then turned on its way
to Shared memory, one element at a time, 8 of k of 4 rows by each warp, whose places are in different banks.

The lowest bit of a lane chooses one of two columns of threads, the next one of two rows: of any two neighbors, or of lanes two apart, both read one address
of a factor, and half a warp then reads 16 bytes per thread in one pass of Shared memory, not in two. (Times of tiles without that order fit 2.3 passes of a
warp for the factor of which neighbors read one address, and 3.7 for the other.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil, gcd, prod
from typing import ClassVar

from taskfuse.ir import atoms
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.identity import among
from taskfuse.ir.storage import needed
from taskfuse.ir.tensor import TensorView
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule import layouts
from taskfuse.schedulers import ragged_tiles
from taskfuse.schedulers.elementwise import at_readers, divides, registers, stored
from taskfuse.schedulers.pairs import PairFactor, PairReduction, check_one, copies, deal_tiles, find, is_settled, settle
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Chosen, Offer, Option, Sizes, check_call, refuse, tries_parameters
from taskfuse.schedulers.script import Recorded, Script, Spelled
from taskfuse.target import ASYNC_BYTES, DEFAULT, VECTOR_BYTES, WARP, Target

BLOCK = 256
"""Threads of a block."""
ACROSS = (16, 8, 32)
"""Threads along the columns of a tile; the first is preferred where another is no faster."""
THREADS = 4
"""Axes of the threads of a tile: rows and columns, and 2 rows and 2 columns of neighbors."""
HELD = 32
"""Elements of the result of a thread that leave registers for several of k of its factors."""
SECTOR = 8
"""Elements of k that neighbors copy to turned tiles, of 4 rows by each warp."""
DEPTH = 32
LEAST_DEPTH = 4
"""Elements of a tile along k, the most and the fewest."""
RESIDENT = 2
"""Resident blocks of a multiprocessor that the registers must allow."""
FULL = 4
"""Bytes of an element of float32."""
LEAST = 4
"""The fewest rows and columns; with fewer, most threads would be idle, and a reduction takes the product. Tiles have 16 and more: each element of the longer
factor is loaded once even so, in vectors, whichever axis is its last."""


@dataclass(frozen=True, slots=True)
class SimtGemmConfig(Parameters):
    """The parameters of a product on CUDA cores.

    Attributes:
        rows, columns: elements of the result per thread.
        depth: elements of a tile along k.
        stages: tiles of each factor in Shared memory.
        across: threads along the columns of a tile; of a block of 256, the others are along the rows. Few columns, or few rows, fill narrow tiles.
    """

    rows: int = 8
    columns: int = 4
    depth: int = DEPTH
    stages: int = 2
    across: int = ACROSS[0]

    POWERS = frozenset(("across",))
    LEAST: ClassVar[Mapping[str, int]] = {"across": 2}

    def __post_init__(self) -> None:
        self.check_fields()
        if self.across > BLOCK // 2:
            raise self.error(f"{self.across} threads along the columns", f"at least two of a block of {BLOCK} are along the rows")

    @property
    def sides(self) -> tuple[int, int]:
        """Threads along the rows and along the columns."""
        return BLOCK // self.across, self.across

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.rows * self.sides[0], self.columns * self.sides[1]

    def shared_bytes(self, itemsizes: tuple[int, int]) -> int:
        """Shared memory of a block, for elements of the factors of so many bytes; each row is a vector longer."""
        return self.stages * sum(n * (self.depth * size + VECTOR_BYTES) for n, size in zip(self.tile, itemsizes, strict=True))

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        tile = f"{' x '.join(map(str, self.tile))} x {self.depth}"
        return f"tiles of {tile}, {self.stages} in the ring, {self.rows} x {self.columns} elements of a thread"


@tries_parameters
def simt_gemm(
    fusion: Fusion, config: SimtGemmConfig | None = None, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT
) -> Chosen[SimtGemmConfig]:
    """Schedule one contraction of two inputs of any dtypes, by any function of a pair, with an elementwise epilogue, on CUDA cores.

    Args:
        fusion: it is changed.
        config: the parameters; ``None``: the fastest by the cost model.
        sizes: values of the fusion's dimensions for the cost model.

    Raises:
        UnsupportedError: the fusion is not of that kind, has a schedule, or may be empty; or there are fewer than 4 rows or columns.
    """
    check_call(fusion, "simt_gemm", config, SimtGemmConfig)
    extent = Sizes(fusion, sizes, target)
    _planned(_prepared(fusion, extent), extent)  # what is refused leaves the fusion as it is
    script = Script(fusion)
    if ragged_tiles.find(fusion, extent) is not None:
        ragged_tiles.store_by_tiles(script)
    settle(script)
    problem, options = _planned(fusion, extent)
    axes = problem.axes
    m, n, k = (extent(axes.extent(p)) for p in (axes.m, axes.n, axes.k))
    chosen = options[0] if config is None else _option(problem, config, extent)
    _SimtGemm(script, problem, chosen.config).apply()
    batch = " x ".join(str(extent(axes.extent(p))) for p in axes.batch)
    size = f"{f'{batch} times ' if batch else ''}{m} x {n} x {k}"
    return Chosen("simt_gemm", size, chosen, tuple(options), config is not None, script.text)


def offer(fusion: Fusion, *, sizes: Mapping[str, int] | None = None, target: Target = DEFAULT) -> Offer:
    """The offer of :func:`simt_gemm`.

    Raises:
        UnsupportedError: see :func:`simt_gemm`; what the scheduling calls refuse is found when the offer is taken.
    """
    check_call(fusion, "simt_gemm", None, SimtGemmConfig)
    extent = Sizes(fusion, sizes, target)
    return Offer(_planned(_prepared(fusion, extent), extent)[1][0].us, partial(simt_gemm, sizes=sizes, target=target))


def _prepared(fusion: Fusion, extent: Sizes) -> Fusion:
    """A fusion as the schedule takes it: itself, or a changed copy."""
    check_one(fusion, "simt_gemm")
    planned = fusion if ragged_tiles.find(fusion, extent) is None else ragged_tiles.stored_by_tiles(fusion)
    if not is_settled(planned):
        planned = at_readers(planned)
    return planned


def _planned(fusion: Fusion, extent: Sizes) -> tuple[PairReduction, list[Option[SimtGemmConfig]]]:
    """The problem, and all parameters with their estimates, the fastest first."""
    problem = find(fusion)
    axes = problem.axes
    m, n = (extent(axes.extent(p)) for p in (axes.m, axes.n))
    if min(m, n) < LEAST:
        raise refuse(fusion, "simt_gemm", f"it has {m} rows and {n} columns", "tf.schedulers.reduction")
    sizes = problem.a.tensor.dtype.itemsize, problem.b.tensor.dtype.itemsize
    every = _candidates(problem, extent(axes.extent(axes.k)), extent.target)
    found = [_option(problem, c, extent) for c in every if c.shared_bytes(sizes) <= extent.room]
    if not found:
        least = min(c.shared_bytes(sizes) for c in every)
        raise refuse(
            fusion, "simt_gemm", f"its tiles take {least} bytes of Shared memory, of {extent.room} beside offsets of groups", "pass offsets, not lengths"
        )
    return problem, sorted(found, key=lambda option: (option.us, -option.config.rows * option.config.columns, ACROSS.index(option.config.across)))


# -- the parameters ---------------------------------------------------------------------------------------------------------------------


def _candidates(problem: PairReduction, k: int, target: Target) -> list[SimtGemmConfig]:
    """Parts of a tile for each thread, as large as its registers allow; of products alone the largest, as code of others is long."""
    both = problem.a, problem.b
    found = _parts(problem.axes.result.dtype.itemsize, k, target)
    if problem.instructions == 1 and all(_is_turned(f, found[-1]) for f in both if f.is_k_major):
        return found
    return [c for c in found if c.rows * c.columns <= HELD]


def _parts(itemsize: int, k: int, target: Target) -> list[SimtGemmConfig]:
    """A step takes longer than a load: two tiles in the ring were measured to be enough. Tiles are no deeper than a short k: what is past its end would be
    multiplied, too."""
    most = 8 if itemsize <= 4 else 4
    depth = min(DEPTH, max(LEAST_DEPTH, 1 << (k - 1).bit_length()))
    parts = [part for part, _ in target.products.simt_shares if max(part) <= most]
    return [SimtGemmConfig(rows, columns, depth, across=across) for rows, columns in parts for across in ACROSS]


def _option(problem: PairReduction, c: SimtGemmConfig, extent: Sizes) -> Option[SimtGemmConfig]:
    """The option with its time: full waves of blocks at the rate of instructions of pairs, and of those that widen elements of factors, each for all pairs of a
    thread; or the bytes of factors and result, whichever is longer. 14 x 3024 x 14 x 64 in bfloat16 take 7.3 us (H200), 4.6 without the second."""
    axes = problem.axes
    m, n = (extent(axes.extent(p)) for p in (axes.m, axes.n))
    k = prod(extent(axes.extent(p)) for p in (*axes.summed, axes.k))
    batch = prod(extent(axes.extent(p)) for p in axes.batch)
    along_k = problem.a.is_k_major + problem.b.is_k_major
    narrow = sum(n for n, f in zip((c.rows, c.columns), (problem.a, problem.b), strict=True) if f.tensor.dtype.is_float and f.tensor.dtype.itemsize < FULL)
    busy = (problem.instructions + narrow / (c.rows * c.columns)) * _busy_us((batch, m, n, k), c, axes.result.dtype.itemsize, extent.target, along_k)
    moved = sum(extent.elements(tv) * tv.dtype.itemsize for tv in (problem.a.tensor, problem.b.tensor, axes.result))
    return Option(c, extent.target.kernel_us(busy, extent.target.dram_us(moved)), block=(BLOCK, 1, 1))


def _busy_us(size: tuple[int, int, int, int], c: SimtGemmConfig, itemsize: int, target: Target, along_k: int) -> float:
    """Whole waves of blocks at the rate of multiply-adds. ``along_k``: factors whose last axis is k."""
    batch, m, n, k = size
    blocks = batch * ceil(m / c.tile[0]) * ceil(n / c.tile[1])
    shares = dict(target.products.simt_shares)
    rate = shares.get((c.rows, c.columns), max(shares.values())) / (1 if itemsize <= 4 else 2)
    rate *= target.products.simt_along_k[along_k]
    if blocks > target.sms:
        rate *= target.products.simt_together
    return target.issue_us(ceil(blocks / target.sms) * prod(c.tile) * k / rate, 1)


def simt_us(size: tuple[int, int, int, int], itemsize: int, target: Target, along_k: int = 0) -> float:
    """Microseconds of a product, without its fusion.

    Args:
        size: batch, rows, columns, k.
        itemsize: bytes of an element of the result.
        along_k: factors whose last axis is k.
    """
    every = _parts(itemsize, size[3], target)
    return target.kernel_us(min(_busy_us(size, c, itemsize, target, along_k) for c in every))


def _is_turned(factor: PairFactor, c: SimtGemmConfig) -> bool:
    """Whether k is its last axis, but not that of its tiles."""
    return factor.is_k_major and factor.tensor.dtype.itemsize in ASYNC_BYTES and c.rows * c.columns > HELD


# -- the schedule -----------------------------------------------------------------------------------------------------------------------


class _SimtGemm:
    """The calls."""

    def __init__(self, script: Script, problem: PairReduction, config: SimtGemmConfig) -> None:
        self.script = script
        self.fusion = script.fusion
        self.problem = problem
        self.config = config
        self.stored = stored(self.fusion)
        """The outputs, or the parts that they are made of."""
        self.heads = len(problem.axes.batch) + 2
        """Axes on blocks."""
        self.steps = self.heads + len(problem.axes.summed) + 1
        """These, and the serial ones over tiles of factors."""

    def apply(self) -> None:
        script, problem = self.script, self.problem
        script.comment("factors in Shared memory and, from there, in registers; results in registers")
        result, inner = problem.axes.result, problem.inner
        acc = script.new(result, "cache_fork" if result.uses else "cache_before") if result.is_output else result
        registers(script, [out for out in self.stored if out is not result], [], self._together())
        readers, tiles = copies(script, problem, acc)
        behind = [e.output for e in needed(self.fusion) if not among(e.output, (acc, *inner, *tiles))]
        self._blocks(acc, behind)
        self._propagate(readers, tiles, self.steps)  # while they read the tiles: their axes are told by these reads, also where both are of one tensor
        factors = [script.new(tile, "cache_after") for tile in tiles]
        self._threads(acc, behind)
        self._propagate(readers, factors, self.steps + THREADS + 1)
        script.parallelize_like(acc, [*inner, *tiles, *factors, *behind])
        for tile, factor in zip(tiles, (problem.a, problem.b), strict=True):
            self._tile(tile, factor)
        script.comment("vectors of factors")
        for tv, factor in zip(factors, (problem.a, problem.b), strict=True):
            at = self.steps + THREADS + 1
            if _is_turned(factor, self.config):
                script.on(tv).reorder({-1: at})
            self._unroll(tv, at, self._width(factor))
            script.on(tv).inline_at(at)
        self._epilogue(acc, behind)
        script.resident_blocks(RESIDENT)

    def _propagate(self, readers: Sequence[TensorView], tensors: Sequence[TensorView], position: int) -> None:
        """Give what is read the first loops of its reader."""
        for reader in dict.fromkeys(readers):
            self.script.on(reader).propagate([tv for tv, r in zip(tensors, readers, strict=True) if r is reader], position)

    def _together(self) -> int:
        """Elements that a thread stores together."""
        p = self.problem
        fits = self._group(p.b) > 1 and all(divides(self._group(p.b), out.shape[-1], self.fusion.facts()) for out in self.stored)
        return self._group(p.b) if fits else 1

    def _group(self, factor: PairFactor) -> int:
        """Rows, or columns, of a thread that lie side by side."""
        if factor.is_k_major and not _is_turned(factor, self.config):
            return 1
        return min(self.problem.vector, self.config.columns if factor is self.problem.b else self.config.rows)

    def _width(self, factor: PairFactor) -> int:
        """Elements that a thread takes together from Shared memory."""
        if _is_turned(factor, self.config):
            return self._group(factor)
        width = self.problem.vector if factor.is_k_major else self._group(factor)
        return width if divides(width, factor.tensor.shape[-1], self.fusion.facts()) else 1

    def _blocks(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        c = self.config
        call = deal_tiles(self.script, self.problem, acc, (*c.tile, c.depth))
        if inner := list(self.problem.inner):
            call.propagate(inner)
        call.propagate(list(behind), self.heads)

    def _threads(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        script, steps = self.script, self.steps
        script.comment("[.. | threads, k step | rows, columns, k of a thread]")
        both = self.problem.a, self.problem.b
        step = self.problem.vector if any(f.is_k_major and not _is_turned(f, self.config) for f in both) else 1
        for tv in (acc, *self.problem.inner):
            script.on(tv).split(steps + 2, step)
            self._spread(tv, steps, True)
        for tv in behind:
            self._spread(tv, self.heads, False)

    def _spread(self, tv: TensorView, at: int, has_steps: bool) -> None:
        """[rows, columns (, k step, k)] of a tile from ``at`` as [threads (, k step), rows, columns (, k)]."""
        call, p = self.script.on(tv), self.problem
        along_rows, along_columns = self.config.sides
        pieces = [self._pieces(call, at + 1, self._group(p.b), along_columns), self._pieces(call, at, self._group(p.a), along_rows)]
        row, column = at + 1, at + pieces[1] + 1
        first = [row, column, *([at + sum(pieces)] if has_steps else [])]
        rest = [axis for axis in range(at, len(tv.loop)) if axis not in first]
        call.reorder([*range(at), *first, *rest])
        call.split(at + 1, 2).split(at, 2).reorder({at + 2: at + 1, at + 1: at + 2})
        for axis in range(at, at + THREADS):
            call.bind(axis, P.TIDx)

    def _pieces(self, call: Recorded, axis: int, group: int, threads: int) -> int:
        """An axis as [parts, threads] or [parts, threads, group]. Returns how many they are."""
        if group == 1:
            call.split(axis, threads)
            return 2
        call.split(axis, group).split(axis, threads)
        return 3

    def _tile(self, tile: TensorView, factor: PairFactor) -> None:
        script, c = self.script, self.config
        script.comment(f"{factor.tensor.name}: elements of a tile over all threads")
        call = script.on(tile)
        pad = VECTOR_BYTES // tile.dtype.itemsize
        at, vector = self.steps, gcd(factor.vector, c.depth) if factor.is_k_major else factor.vector
        if _is_turned(factor, self.config):
            call.set_allocation_domain(Spelled(layouts.turned(-2, pad), f"tf.layouts.turned(-2, {pad})"))
            vector = 1
            if c.depth > SECTOR:
                call.split(at + 1, SECTOR).split(at, WARP // SECTOR).reorder({at + 2: at + 1})
        else:
            pad *= factor.is_k_major
            call.set_allocation_domain(Spelled(layouts.padded(pad), f"tf.layouts.padded({pad})"))
        for _ in range(len(tile.loop) - at - 1):
            call.merge(at)
        call.split(at, vector).split(at, BLOCK).bind(at + 1, P.TIDx)
        is_async = vector * tile.dtype.itemsize in ASYNC_BYTES
        if is_async:
            call.set_atom(atoms.CP_ASYNC, [at + 2])
        elif vector > 1:
            call.bind(at + 2, P.Vectorize)
        call.inline_at(at)
        if is_async:
            call.circular_buffer(c.stages)

    def _unroll(self, tv: TensorView, first: int, vector: int) -> None:
        """The axes from ``first`` on, the last one as a vector if it has several elements."""
        last = len(tv.loop) - (vector > 1)
        for axis in range(first, last):
            self.script.on(tv).bind(axis, P.Unroll)
        if vector > 1:
            self.script.on(tv).bind(last, P.Vectorize)

    def _epilogue(self, acc: TensorView, behind: Sequence[TensorView]) -> None:
        script, heads = self.script, self.heads
        script.comment("everything else is unrolled, and shares loops where possible")
        self._unroll(acc, self.steps + THREADS, 1)
        for tv in behind:
            self._unroll(tv, heads + THREADS, self._together() if among(tv, self.stored) else 1)
        if inner := list(self.problem.inner):
            for tv in inner:
                self._unroll(tv, self.steps + THREADS, 1)
            script.inline_most(inner)
        if between := [tv for tv in behind if not among(tv, self.stored)]:
            script.inline_most(between)
        script.on(acc).inline_at(heads)  # after what reads it: two of these have its loops in common only if they are inlined into one another
