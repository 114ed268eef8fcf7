"""The parameters of ``mixed_gemm``, and expected times."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import ceil

from taskfuse.ir.fusion import Fusion
from taskfuse.schedulers.contraction import MatrixProduct
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.schedule import Option, Sizes, refuse
from taskfuse.target import REGISTERS, RESERVED_SHARED, VECTOR_BYTES, WARP, Target

ROWS, COLUMNS, STEP = 16, 8, 16
"""Rows, columns and elements of k that an instruction multiplies."""
LANES_OF_K = 4
"""Lanes of a warp that hold elements of one row."""
PAIR = 2
"""Elements of 16 bits in a register."""
BITS = 8
WORD_BYTES = SUM_BYTES = 4
MOST_COLUMNS = 64
"""With more, ``wgmma`` multiplies better: here each eight columns take a further instruction for elements that are computed once."""
WARPS, WARP_ROWS, PARTS, DEPTHS = (1, 2, 3, 4, 5, 6, 7, 8), (16, 32), (1, 2, 4, 8), (256, 512, 1024)
"""Candidates: warps along the rows, their rows, parts of a tile along k, elements of k in a tile."""
FEWEST_WARPS, MOST_WARPS = 4, 28
LEAST_GROUPS = 4
"""Groups of k of a warp between two barriers."""
WANTED_STAGES, MOST_STAGES = 4, 8
"""With fewer, one tile at most comes while another is waited for."""
OTHER_REGISTERS = 48
"""Of a thread: addresses, and elements that are computed ahead."""


@dataclass(frozen=True, slots=True)
class MixedGemmConfig(Parameters):
    """The parameters of a product with a computed factor of few columns.

    Attributes:
        tile_m, tile_n: rows and columns of a tile of the result: multiples of ``warp_m`` and of 8.
        warp_m: rows of a warp: a multiple of 16.
        tile_k: elements of k in a tile of a factor.
        parts: groups of warps that divide a tile along k.
        stages: tiles of each factor in Shared memory.
    """

    tile_m: int = 64
    tile_n: int = 8
    warp_m: int = 16
    tile_k: int = 256
    parts: int = 2
    stages: int = 4

    def __post_init__(self) -> None:
        self.check_fields()
        if self.tile_m % self.warp_m or self.warp_m % ROWS or self.tile_n % COLUMNS or self.tile_k % self.parts:
            raise self.error(f"parts of {self.warp_m} rows in {self.words}", f"use multiples of {ROWS} rows and {COLUMNS} columns, and divisors")
        self.check_threads(self.threads, f"{self.threads} threads")

    @property
    def warps(self) -> int:
        """Along the rows of a tile."""
        return self.tile_m // self.warp_m

    @property
    def threads(self) -> int:
        """Of a block."""
        return WARP * self.warps * self.parts

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"tiles of {self.tile_m} x {self.tile_n} x {self.tile_k}, {self.stages} in the ring, {self.warp_m} rows of a warp, {self.parts} parts of k"


@dataclass(frozen=True, slots=True)
class MixedProblem:
    """The product with numbers for its extents.

    Attributes:
        m, n, k: rows of the computed factor, columns, terms of a sum.
        packed: elements of the factor that one element in memory has.
        itemsize: bytes of one in memory.
        is_integer: whether it is an integer.
        multiplied: bytes of an element that the tensor cores multiply.
        target: the GPU.
    """

    m: int
    n: int
    k: int
    packed: int
    itemsize: int
    is_integer: bool
    multiplied: int
    target: Target

    @property
    def bits(self) -> int:
        """Of an element in memory."""
        return self.itemsize * BITS // self.packed

    @property
    def apart(self) -> int:
        """Elements from one of a pair to the other: integers of a byte or less have the same place in both halves of a word."""
        return WORD_BYTES // 2 * BITS // self.bits if self.is_integer and self.bits <= BITS else 1

    @property
    def run(self) -> int:
        """Neighbors along k that a lane loads together: a word of integers of a byte or less, else at most 8."""
        return PAIR * self.apart if self.apart > 1 else max(LANES_OF_K, min(8, VECTOR_BYTES // self.itemsize))

    @property
    def group(self) -> int:
        """Elements of k of which the lanes of a row have a run each."""
        return LANES_OF_K * self.run


def problem_of(fusion: Fusion, kind: str, found: MatrixProduct, extent: Sizes) -> MixedProblem:
    """The product with numbers for its extents. Raises :class:`UnsupportedError` if it has too many columns, or the elements of k are no whole groups."""
    axes, a = found.axes, found.a
    m, n, k = (extent(axes.extent(p)) for p in (axes.m, axes.n, axes.k))
    if n > MOST_COLUMNS:
        raise refuse(fusion, kind, f"it has {n} columns", "tf.schedulers.matmul")
    return MixedProblem(m, n, k, a.packed, a.tensor.dtype.itemsize, a.tensor.dtype.is_integer, found.b.tensor.dtype.itemsize, extent.target)


def ranked(p: MixedProblem) -> list[Option[MixedGemmConfig]]:
    """All parameters that fit, the fastest first, of tiles that have at least as many bytes of the computed factor as of the other."""
    tile_n = COLUMNS * ceil(p.n / COLUMNS)
    found: list[Option[MixedGemmConfig]] = []
    for warps, warp_m, parts, tile_k in product(WARPS, WARP_ROWS, PARTS, DEPTHS):
        is_balanced = warps * warp_m * p.itemsize >= tile_n * p.multiplied * p.packed
        if p.k % tile_k or tile_k % (parts * LEAST_GROUPS * p.group) or not FEWEST_WARPS <= warps * parts <= MOST_WARPS or not is_balanced:
            continue
        room = p.target.limits.block_shared - _joined(parts, warps * warp_m, tile_n)
        stages = min(room // _slot(p, warps * warp_m, tile_n, tile_k), MOST_STAGES)
        if stages < 2:
            continue
        c = MixedGemmConfig(warps * warp_m, tile_n, warp_m, tile_k, parts, stages)
        if _registers(p, c) * c.threads <= REGISTERS:
            found.append(_option(p, c))
    return sorted(found, key=lambda option: (option.us, option.config.stages < WANTED_STAGES, -option.config.tile_k))


def _slot(p: MixedProblem, tile_m: int, tile_n: int, tile_k: int) -> int:
    """Bytes of a tile of each factor, with what is unused behind its rows."""
    return (tile_k + p.group) * (tile_m * p.itemsize // p.packed + tile_n * p.multiplied)


def _joined(parts: int, tile_m: int, tile_n: int) -> int:
    """Bytes of the sums that parts of k exchange."""
    return parts * tile_m * tile_n * SUM_BYTES if parts > 1 else 0


def _registers(p: MixedProblem, c: MixedGemmConfig) -> int:
    """Of a thread: sums, elements of both factors of a group, addresses."""
    sums = c.warp_m * c.tile_n // WARP
    return sums + (c.tile_n // COLUMNS * p.run * p.multiplied + c.warp_m // COLUMNS * p.run * p.itemsize // p.packed) // WORD_BYTES + OTHER_REGISTERS


def check(fusion: Fusion, kind: str, p: MixedProblem, c: MixedGemmConfig) -> Option[MixedGemmConfig]:
    """The option of given parameters. Raises :class:`UnsupportedError` if they do not fit the product, or Shared memory."""
    if p.k % c.tile_k or c.tile_k % (c.parts * p.group):
        raise refuse(fusion, kind, f"with {c.words}: {p.k} terms are no whole tiles, or a part of one no whole groups of {p.group}", "use another tile_k")
    needed = c.stages * _slot(p, c.tile_m, c.tile_n, c.tile_k) + _joined(c.parts, c.tile_m, c.tile_n)
    if needed > p.target.limits.block_shared:
        raise refuse(fusion, kind, f"with {c.words}: a block needs {needed} bytes of Shared memory and has {p.target.limits.block_shared}", "use fewer stages")
    return _option(p, c)


def _option(p: MixedProblem, c: MixedGemmConfig) -> Option[MixedGemmConfig]:
    return Option(c, _us(p, c), block=(WARP, c.warps, c.parts))


def _us(p: MixedProblem, c: MixedGemmConfig) -> float:
    """Microseconds of the multiprocessor with most blocks: instructions, bytes of both factors, waits; fitted on ``benchmarks/results/narrow_weights.txt``."""
    figures, target = p.target.products, p.target
    most = ceil(ceil(p.m / c.tile_m) * ceil(p.n / c.tile_n) / target.sms)
    shared = c.stages * _slot(p, c.tile_m, c.tile_n, c.tile_k) + RESERVED_SHARED
    together = max(1, min(target.limits.shared // shared, most))
    warps = c.warps * c.parts * together
    elements = most * c.tile_m * p.k
    slots = figures.mixed_element_slots + figures.mixed_column_slots * (c.tile_n // COLUMNS - 1)
    cycles = elements * slots / target.lanes + elements / p.packed * p.itemsize / figures.mixed_row_bytes
    cycles += most * c.tile_n * p.k * p.multiplied / figures.mixed_column_bytes
    if together > 1:
        cycles *= figures.mixed_together
    return target.kernel_us(cycles / target.clock_mhz + figures.start_us + figures.mixed_wait_us / warps)
