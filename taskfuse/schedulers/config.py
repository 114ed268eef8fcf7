"""The parameters of a matmul schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import gcd
from typing import ClassVar

from taskfuse.ir.atoms import WGMMA_COLUMNS, WGMMA_K_BYTES, WGMMA_ROWS
from taskfuse.kir.declarations import OFFSET_BYTES
from taskfuse.schedulers.block_sums import SPAN
from taskfuse.schedulers.epilogue import STAGED_ITEMSIZE
from taskfuse.schedulers.parameters import Parameters
from taskfuse.target import DEFAULT, TMA_BYTES, WARPGROUP, Target, launch_registers
from taskfuse.tiles import Half

STAGED_COLUMNS = 64
"""The most columns of a piece of the result that a warpgroup stages for a bulk store; its rows are those of the instruction."""
STMATRIX = 16
"""Rows and columns of the tile of ``stmatrix.x4``: columns of a tile are a multiple, unless factors are swapped."""
STAGING_SLOTS = 2
BARRIER_BYTES = 1024
"""Shared memory left for mbarriers and alignment."""
MAX_ACCUMULATORS = {1: 192, 2: 176, 3: 96}
"""Accumulators per thread that leave room for an epilogue of one output that reads nothing else, by the number of warpgroups."""
ROOMY_ACCUMULATORS = {1: 192, 2: 128, 3: 96}
"""Those that leave room for others: with more, one that reads inputs spilled 8 to 470 bytes, of several contractions 52 to 452."""
MAX_SEVERAL = {1: 192, 2: 192, 3: 128}
"""Those of several contractions together."""
MAX_PROMOTED = {1: 196, 2: 196, 3: 132}
"""Registers of a thread for accumulators, sums of blocks and what belongs to the columns of a tile, by the number of warpgroups: with more, kernels spilled."""
REGISTERS_LEFT = {1: 200, 2: 190, 3: 130}
"""Registers of a consumer thread for its accumulators and pieces of tensors, by the number of warpgroups: the rest hold addresses and temporaries."""
LOADING_REGISTERS = 72
"""Those of a thread that loads elements (:mod:`taskfuse.lowering.register_budgets`)."""
LEAST_LEFT = 40
"""Of a consumer thread of several blocks on a multiprocessor, those that neither accumulators nor pieces of tensors take."""
MORE_ROWS = 32
"""Further registers in use if warpgroups take turns with tiles of several times 64 rows: with 128 accumulators, loading a bias at once spilled 16 bytes."""
ADDRESSED_ONCE = 16
"""Of these, those that remain if the bias of a whole tile is loaded before its pieces: of bfloat16 it spilled nothing, of float32 32 bytes."""
CLUSTERS = (1, 2)
FRAGMENT_LANES = 4
"""Lanes that have different columns of a matrix in registers."""
SCALE_BYTES = 4
"""Bytes of an element of such an input."""


def shared_room(target: Target, residents: int) -> int:
    """Bytes of Shared memory of a block if ``residents`` blocks share a multiprocessor."""
    reserved = target.limits.shared - target.limits.block_shared
    return target.limits.shared // residents - reserved


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """Inputs that the terms of a sum of blocks read.

    Attributes:
        each_column: those with an element for each column.
        by_piece: those with an element for a group of columns, which threads load for each piece of a tile.
        staged_rows, staged_columns: those with a row of elements for the rows, or the columns, of a tile in the ring of the factors.
    """

    each_column: int = 0
    staged_rows: int = 0
    staged_columns: int = 0
    by_piece: int = 0


@dataclass(frozen=True, slots=True)
class ProductCounts:
    """Contractions whose results a tile takes together.

    Attributes:
        results: their number: each has accumulators of its own.
        rows, columns: tiles of factors in a slot of the ring: those of one step of k.
        turns: contractions that walk along k one after another, their factors through one ring.
        offsets: of groups, which a block makes of their lengths.
        row_bytes: of an element of the factor with the rows as it is loaded, if it is computed of others than are multiplied; else 0.
    """

    results: int = 1
    rows: int = 1
    columns: int = 1
    turns: int = 1
    offsets: int = 0
    row_bytes: float = 0

    @property
    def at_once(self) -> int:
        """Contractions of one step."""
        return self.results // self.turns

    def slot_bytes(self, rows: float, columns: float, itemsize: int) -> float:
        """Bytes of so many rows and columns of the tiles of a step, of one element along k."""
        return self.rows * rows * (self.row_bytes or itemsize) + self.columns * columns * itemsize


ALONE = ProductCounts()


class MatmulKind(Enum):
    """How the warpgroups that multiply share the tiles of a block.

    COOPERATIVE: they share each tile by rows. PINGPONG: they alternate tiles, so that one multiplies while another stores.
    """

    COOPERATIVE = "cooperative"
    PINGPONG = "ping-pong"


@dataclass(frozen=True, slots=True)
class MatmulConfig(Parameters):
    """The parameters of a schedule: a persistent grid, one role that loads, one of ``warpgroups`` that multiplies and stores.

    Attributes:
        tile_m, tile_n: rows and columns of a tile of the result; multiples of 64 and of 16 (of 8 if factors are swapped in no cluster), at most 256.
        tile_k: elements of k in one slot of the operands' ring: a multiple of 128 bytes. A step waits for its slot once, whatever its length.
        warpgroups: the number that multiply, 1 to 3; they share a tile by rows, each a multiple of 64, or alternate tiles (ping-pong).
        stages: slots of the ring: 2 or more.
        in_flight: batches of wgmma that may be unfinished while the next is issued; less than ``stages``.
        group: rows of tiles (of clusters of tiles) in a group of the order of tiles (``tf.tiles.grouped``).
        blocks: blocks of the grid; a multiple of ``cluster``.
        kind: cooperative or ping-pong.
        cluster: blocks in a cluster, 1 or 2: they compute tiles one above the other, and load their common columns once, by multicast.
        is_swapped: the instruction takes the factors in the other order: rows of a tile are columns of the result. If the result has few rows, the long
            axis then fills the 64 rows of the instruction, and threads store the result element by element.
        half: tiles of this triangle come first (``tf.tiles.halves``), in place of groups: for a result whose other half has no reader.
        layers: the first groups of all matrices of a batch come first, then the second ones: for results of which only the first rows of each are read.
        residents: resident blocks per multiprocessor: while one waits or stores, others multiply. Threads have fewer registers, rings fewer slots.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    warpgroups: int = 2
    stages: int = 4
    in_flight: int = 1
    group: int = 8
    blocks: int = DEFAULT.sms
    kind: MatmulKind = MatmulKind.COOPERATIVE
    cluster: int = 1
    is_swapped: bool = False
    half: Half | None = None
    residents: int = 1
    layers: bool = False

    LEAST: ClassVar[Mapping[str, int]] = {"in_flight": 0}

    def __post_init__(self) -> None:
        self.check_fields()
        least = 2 if self.is_pingpong else min(MAX_ACCUMULATORS)
        if self.warpgroups < least or self.warpgroups not in MAX_ACCUMULATORS:
            groups = f"{self.warpgroups} warpgroup{'s' if self.warpgroups > 1 else ''}"
            raise self.error(groups + (" that take turns" if self.is_pingpong else ""), f"use {least} to {max(MAX_ACCUMULATORS)}")
        if self.tile_m % (WGMMA_ROWS * self.sharing):
            raise self.error(f"tile_m = {self.tile_m} for {self.warpgroups} warpgroups", f"each takes a multiple of {WGMMA_ROWS} rows")
        step = WGMMA_COLUMNS if self.is_swapped and self.cluster == 1 else STMATRIX
        if self.tile_n % step or self.tile_n > 256 or self.tile_m > 256:
            raise self.error(f"a tile of {self.tile_m} x {self.tile_n}", f"tile_m and tile_n are at most 256, tile_n is a multiple of {step}")
        if self.accumulators > MAX_ACCUMULATORS[self.warpgroups]:
            raise self.error(
                f"a tile of {self.tile_m} x {self.tile_n} takes {self.accumulators} accumulators of each of its {WARPGROUP * self.sharing} threads",
                f"with {self.warpgroups} warpgroups there is room for {MAX_ACCUMULATORS[self.warpgroups]}: use a smaller tile",
            )
        if self.cluster not in CLUSTERS or self.blocks % self.cluster:
            raise self.error(f"{self.blocks} blocks in clusters of {self.cluster}", f"use clusters of {' or '.join(map(str, CLUSTERS))} that make up the grid")
        height = self.tile_m * self.cluster
        if self.half is not None and max(height, self.tile_n) % min(height, self.tile_n):
            raise self.error(f"half = {self.half}, and tiles of {height} x {self.tile_n}", "one extent of a tile is a multiple of the other")
        if self.half is not None and self.layers:
            raise self.error(f"half = {self.half}, and layers", "triangles are not computed in groups: use half=None or layers=False")
        if self.residents > 1 and (self.cluster > 1 or self.is_pingpong):
            how = f"cluster = {self.cluster}" if self.cluster > 1 else "warpgroups that take turns"
            raise self.error(f"residents = {self.residents}, and {how}", "use residents=1")
        if self.residents > 1 and self.accumulators > (registers := self.registers_of(self.residents)) - LEAST_LEFT:
            reason = f"{self.residents} blocks of a multiprocessor, whose threads have {registers} registers and {self.accumulators} accumulators each"
            raise self.error(reason, "use fewer residents or a smaller tile")
        if self.stages < 2:
            raise self.error(f"stages = {self.stages}", "a ring between two roles has 2 slots or more")
        if not 0 <= self.in_flight < self.stages:
            raise self.error(f"in_flight = {self.in_flight} with {self.stages} stages", "use less than stages: a slot is released when its batch is complete")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        order = f"groups of {self.group}{' in layers' if self.layers else ''}" if self.half is None else f"the {self.half.value} triangle first"
        groups = "1 warpgroup" if self.warpgroups == 1 else f"{self.warpgroups} warpgroups that {'take turns' if self.is_pingpong else 'share them'}"
        return (
            f"tiles of {self.tile_m} x {self.tile_n} x {self.tile_k}, {groups}, {self.stages} stages, {self.in_flight} in flight, {order}, "
            f"{self.blocks} blocks{f' in clusters of {self.cluster}' if self.cluster > 1 else ''}"
            f"{f', {self.residents} on a multiprocessor' if self.residents > 1 else ''}{', factors swapped' if self.is_swapped else ''}"
        )

    @property
    def is_pingpong(self) -> bool:
        """Whether the warpgroups alternate tiles."""
        return self.kind is MatmulKind.PINGPONG

    @property
    def sharing(self) -> int:
        """Warpgroups that share a tile."""
        return 1 if self.is_pingpong else self.warpgroups

    @property
    def rows(self) -> int:
        """Rows of a tile per warpgroup."""
        return self.tile_m // self.sharing

    @property
    def accumulators(self) -> int:
        """Accumulators per thread, 4 bytes each."""
        return self.rows * self.tile_n // WARPGROUP

    def registers_of(self, residents: int) -> int:
        """Registers of a thread that multiplies, where threads of the role that loads move elements, in one of so many blocks of a multiprocessor."""
        at_launch = launch_registers((1 + self.warpgroups) * WARPGROUP * residents)
        return max(0, at_launch * (1 + self.warpgroups) - LOADING_REGISTERS) // self.warpgroups

    @property
    def columns(self) -> int:
        """Columns of a piece of the result."""
        return gcd(self.tile_n, STAGED_COLUMNS)

    def spans(self, itemsize: int) -> int:
        """Rows of the swizzle along k in a slot."""
        return self.tile_k * itemsize // SPAN

    def promotes(self, blocks: BlockCounts) -> bool:
        """Whether the registers of a thread hold products of a block and their sums."""
        beside = blocks.each_column * self.tile_n // FRAGMENT_LANES + -(-self.tile_n // STAGED_COLUMNS)
        return not self.is_pingpong and 2 * self.accumulators + beside <= MAX_PROMOTED[self.warpgroups]

    def accumulates(self, counts: ProductCounts) -> bool:
        """Whether the registers of a thread hold the accumulators of several contractions."""
        return counts.results == 1 or self.accumulators * counts.results <= MAX_SEVERAL[self.warpgroups]

    def holds(self, itemsizes: Iterable[int], results: int = 1, whole: Iterable[int] = ()) -> bool:
        """Whether the registers of a thread hold its part of a piece of each of several tensors, besides the accumulators of so many contractions, and of
        tensors of ``whole`` their elements for all columns of a tile."""
        elements = WGMMA_ROWS * self.columns // WARPGROUP
        whole = tuple(whole)
        addresses = (ADDRESSED_ONCE if whole else MORE_ROWS) if self.kind is MatmulKind.PINGPONG and self.rows > WGMMA_ROWS else 0
        room = REGISTERS_LEFT[self.warpgroups] if self.residents == 1 else self.registers_of(self.residents) - LEAST_LEFT
        taken = sum(elements * size // 4 for size in itemsizes) + sum(self.tile_n // FRAGMENT_LANES * size // 4 for size in whole)
        return self.accumulators * results + addresses + taken <= room

    def loads_whole(self, narrow: Iterable[int], others: Iterable[int], wide: int, results: int = 1) -> bool:
        """Whether a thread loads its elements of epilogue inputs that lack rows or columns once for all pieces of a tile, which would each wait for memory.

        Args:
            narrow: bytes of an element of each of these inputs.
            others: of the other tensors of which a thread holds a piece.
            wide: inputs among these, whose addresses take registers, too: with 88 accumulators of three warpgroups, a residual and a bias spilled 16 bytes.
            results: contractions.
        """
        is_roomy = self.accumulators * results + wide * ADDRESSED_ONCE <= ROOMY_ACCUMULATORS[self.warpgroups]
        return is_roomy and self.tile_n > self.columns and self.holds(others, results, narrow)

    def loaded_columns(self, itemsize: int, *, columns_contiguous: bool) -> int:
        """Columns of their factor in a slot: with n contiguous whole rows of the swizzle, of which the last may also hold columns of the next tile."""
        whole = SPAN // itemsize if columns_contiguous else 1
        return -(-self.tile_n // whole) * whole

    def shared_bytes(
        self, itemsize: int, staged: int, blocks: BlockCounts | None = None, counts: ProductCounts = ALONE, *, columns_contiguous: bool = False
    ) -> int:
        """Shared memory of a block: the operands' ring, ``staged`` outputs that are staged there, and offsets of groups.

        Args:
            itemsize: bytes of an operand's element, as it is multiplied.
            staged: number of these outputs.
            blocks: of products of blocks of k that are summed.
            counts: of contractions.
            columns_contiguous: n, not k, is contiguous in the factor with the columns.
        """
        return self.stages * self._slot_bytes(itemsize, blocks, counts, columns_contiguous) + self._other_bytes(staged, counts)

    def stages_in(
        self, room: int, itemsize: int, staged: int, blocks: BlockCounts | None = None, counts: ProductCounts = ALONE, *, columns_contiguous: bool = False
    ) -> int:
        """The most stages with which :meth:`shared_bytes` is at most ``room``."""
        return (room - self._other_bytes(staged, counts)) // self._slot_bytes(itemsize, blocks, counts, columns_contiguous)

    def _slot_bytes(self, itemsize: int, blocks: BlockCounts | None, counts: ProductCounts, columns_contiguous: bool) -> int:
        """Bytes of a slot of the operands' ring."""
        columns = self.loaded_columns(itemsize, columns_contiguous=columns_contiguous)
        slot = int(counts.slot_bytes(self.tile_m, columns, itemsize) * self.tile_k)
        if blocks is not None:
            slot += (blocks.staged_rows * self.tile_m + blocks.staged_columns * self.tile_n) * SCALE_BYTES
        return slot

    def _other_bytes(self, staged: int, counts: ProductCounts) -> int:
        """Bytes of Shared memory beside the ring."""
        return staged * STAGING_SLOTS * self.warpgroups * WGMMA_ROWS * self.columns * STAGED_ITEMSIZE + BARRIER_BYTES + OFFSET_BYTES * counts.offsets

    def check_fits(
        self,
        target: Target,
        itemsize: int,
        staged: int,
        *,
        columns_contiguous: bool = False,
        columns_by_threads: bool = False,
        columns_mixed: bool = False,
        is_reduced: bool = False,
        blocks: BlockCounts | None = None,
        counts: ProductCounts = ALONE,
        is_computed: bool = False,
    ) -> None:
        """Check the parameters against the fusion and the GPU.

        Args:
            target: the GPU.
            itemsize: bytes of an operand's element, as it is multiplied.
            staged: number of outputs that are staged in Shared memory.
            columns_contiguous: n, not k, is contiguous in the factor with the columns.
            columns_by_threads: threads copy that factor, not the copy engine.
            columns_mixed: one ring takes such a factor and one with k contiguous in turns.
            is_reduced: there are reductions of the result.
            blocks: of products of blocks of k that are summed.
            counts: of contractions.
            is_computed: the factor with the rows is computed in registers.

        Raises:
            UnsupportedError: the parameters do not suit it.
        """
        if blocks is not None and not self.promotes(blocks):
            what = "warpgroups that take turns" if self.is_pingpong else f"a tile of {self.tile_m} x {self.tile_n}"
            raise self.error(f"{what}, and sums of blocks take as many registers as the products", "use MatmulKind.COOPERATIVE and a smaller tile")
        if blocks is not None and self.in_flight:
            raise self.error(f"in_flight = {self.in_flight}, and products of a block are read before the next is issued", "use in_flight=0")
        products = self.tile_k * itemsize // WGMMA_K_BYTES
        if is_computed and products % (self.in_flight + 1):
            reason = f"in_flight = {self.in_flight}, and the {products} products of a step of k are no multiple of {self.in_flight + 1} parts, computed in turn"
            raise self.error(reason, "use in_flight=1")
        if not self.accumulates(counts):
            taken = f"{counts.results} contractions with tiles of {self.tile_m} x {self.tile_n}"
            room = MAX_SEVERAL[self.warpgroups] // counts.results
            raise self.error(f"{taken}, {self.accumulators} accumulators each", f"there is room for {room} each: use a smaller tile")
        if counts.turns > 1 and (self.is_pingpong or self.cluster > 1):
            how = f"cluster = {self.cluster}" if self.cluster > 1 else "warpgroups that take turns"
            raise self.error(f"{how}, and the factors of several contractions pass through one ring", "use MatmulKind.COOPERATIVE and cluster=1")
        if self.tile_k * itemsize % SPAN:
            help = f"use multiples of {SPAN // itemsize}: {SPAN} bytes, a row of the swizzle"
            raise self.error(f"tile_k = {self.tile_k} of elements of {itemsize} bytes", help)
        if blocks is not None and self.spans(itemsize) > 1:
            raise self.error(f"tile_k = {self.tile_k}, and products of blocks are summed for each {SPAN} bytes", f"use {SPAN // itemsize}")
        if columns_contiguous and (columns_by_threads or columns_mixed) and self.tile_n * itemsize % SPAN:
            how = "which threads copy" if columns_by_threads else "beside one with k contiguous in one ring"
            raise self.error(
                f"tile_n = {self.tile_n} of a factor with n contiguous, {how}",
                f"use a multiple of {SPAN // itemsize}: {SPAN} bytes, a row of the swizzle",
            )
        if columns_by_threads and self.cluster > 1:
            raise self.error(
                f"cluster = {self.cluster}, and threads copy the factor with the columns: each block needs a copy of its own",
                f"use cluster=1, or rows of multiples of {TMA_BYTES} bytes",
            )
        if is_reduced and (self.is_pingpong or self.cluster > 1):
            how = f"cluster = {self.cluster}" if self.cluster > 1 else "warpgroups that take turns"
            raise self.error(
                f"{how}, and the result is reduced: parts of sums are numbered by blocks of the grid whose warpgroups share tiles",
                "use MatmulKind.COOPERATIVE and cluster=1",
            )
        needed = self.shared_bytes(itemsize, staged, blocks, counts, columns_contiguous=columns_contiguous)
        if needed > (room := shared_room(target, self.residents)):
            raise self.error(f"it takes {needed} bytes of Shared memory, and a block has {room}", "use fewer stages or a smaller tile")
