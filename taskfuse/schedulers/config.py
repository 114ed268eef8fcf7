"""The parameters of a matmul schedule."""

from __future__ import annotations

from dataclasses import dataclass

from taskfuse.errors import UnsupportedError
from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.kir.limits import SHARED_BYTES
from taskfuse.location import caller

SPAN = 128
"""Bytes of k, or of m or n where that is contiguous, in one row of a tile in Shared memory: the widest swizzle."""
STAGED_COLUMNS = 64
"""Columns of a piece of the result that a warpgroup stages for a bulk store; its rows are those of the instruction."""
STAGING_SLOTS = 2
BARRIER_BYTES = 1024
"""Shared memory left for mbarriers and alignment."""
REGISTERS = {2: (40, 232), 3: (32, 160)}
"""Registers per thread of the loading role and of the others, by their number of warpgroups: together what a launch has. With one warpgroup the
launch gives 255 to all."""
MAX_ACCUMULATORS = {1: 192, 2: 128, 3: 96}
"""fp32 accumulators per thread that leave room for the epilogue."""


@dataclass(frozen=True, slots=True)
class MatmulConfig:
    """A schedule: a persistent grid, one role that loads, one of ``warpgroups`` that multiplies and stores.

    Attributes:
        tile_m, tile_n: of the result, per block; multiples of 64.
        tile_k: of one slot of the operands' ring: 128 bytes.
        warpgroups: that share a tile by rows: 1 to 3, each a multiple of 64 rows.
        stages: slots of the ring: 2 or more.
        in_flight: batches of wgmma that may be unfinished while the next is issued; less than ``stages``.
        group: rows of tiles in a group of the order of tiles (``tf.tiles.swizzle``).
        blocks: of the grid.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    warpgroups: int = 2
    stages: int = 4
    in_flight: int = 1
    group: int = 8
    blocks: int = 132

    def __post_init__(self) -> None:
        for name in ("tile_m", "tile_n", "tile_k", "warpgroups", "stages", "group", "blocks"):
            if getattr(self, name) < 1:
                raise self.error(f"{name} is {getattr(self, name)}", "use a positive number")
        if self.warpgroups not in MAX_ACCUMULATORS:
            raise self.error(f"{self.warpgroups} warpgroups", f"use {min(MAX_ACCUMULATORS)} to {max(MAX_ACCUMULATORS)}")
        if self.tile_m % (WGMMA_ROWS * self.warpgroups):
            raise self.error(f"tile_m = {self.tile_m} for {self.warpgroups} warpgroups", f"each takes a multiple of {WGMMA_ROWS} rows")
        if self.tile_n % STAGED_COLUMNS or self.tile_n > 256 or self.tile_m > 256:
            raise self.error(f"a tile of {self.tile_m} x {self.tile_n}", f"tile_m and tile_n are at most 256, tile_n is a multiple of {STAGED_COLUMNS}")
        if self.accumulators > MAX_ACCUMULATORS[self.warpgroups]:
            raise self.error(
                f"a tile of {self.tile_m} x {self.tile_n} takes {self.accumulators} accumulators of each of {128 * self.warpgroups} threads",
                f"with {self.warpgroups} warpgroups there is room for {MAX_ACCUMULATORS[self.warpgroups]}: use a smaller tile",
            )
        if self.stages < 2:
            raise self.error(f"stages = {self.stages}", "a ring between two roles has 2 slots or more")
        if not 0 <= self.in_flight < self.stages:
            raise self.error(f"in_flight = {self.in_flight} with {self.stages} stages", "use less than stages: a slot is given back when its batch has retired")

    @property
    def accumulators(self) -> int:
        """fp32 accumulators per thread."""
        return self.tile_m * self.tile_n // (128 * self.warpgroups)

    @property
    def rows(self) -> int:
        """Rows of a tile per warpgroup."""
        return self.tile_m // self.warpgroups

    def shared_bytes(self, itemsize: int, staged: int) -> int:
        """Shared memory of a block: the operands' ring, and ``staged`` outputs that are staged for bulk stores.

        Args:
            itemsize: bytes of an operand's element.
            staged: number of such outputs.
        """
        ring = self.stages * (self.tile_m + self.tile_n) * self.tile_k * itemsize
        return ring + staged * STAGING_SLOTS * self.warpgroups * WGMMA_ROWS * STAGED_COLUMNS * 2 + BARRIER_BYTES

    def check_fits(self, itemsize: int, staged: int) -> None:
        """Check what depends on the fusion. Raises :class:`UnsupportedError`."""
        if self.tile_k * itemsize != SPAN:
            raise self.error(f"tile_k = {self.tile_k} of elements of {itemsize} bytes", f"use {SPAN // itemsize}: {SPAN} bytes, a row of the swizzle")
        needed = self.shared_bytes(itemsize, staged)
        if needed > SHARED_BYTES:
            raise self.error(f"it takes {needed} bytes of Shared memory, and a block has {SHARED_BYTES}", "use fewer stages or a smaller tile")

    def error(self, reason: str, help: str) -> UnsupportedError:
        """The error of parameters that make no schedule."""
        return UnsupportedError(what="this MatmulConfig", reason=reason, help=help, location=caller())
