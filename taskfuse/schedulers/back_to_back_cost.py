"""The parameters of ``tf.schedulers.back_to_back``, the registers and Shared memory that they need, and the time of a walk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod

from taskfuse.ir.atoms import WGMMA_ROWS
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.scalar import is_multiple
from taskfuse.ir.tensor import TensorView
from taskfuse.schedulers.attention_config import ITEMSIZE, REGISTERS, STEP
from taskfuse.schedulers.attention_cost import INSTRUCTIONS
from taskfuse.schedulers.config import BARRIER_BYTES
from taskfuse.schedulers.parameters import Parameters
from taskfuse.schedulers.roofline import bytes_of
from taskfuse.schedulers.schedule import Option, Sizes, check_wgmma, refuse
from taskfuse.target import BANK_BYTES, BANKS, Target

NAME = "back_to_back"
WIDEST = 256
"""The most terms of a first product, and columns of a last one: the columns of an instruction's tile."""
ROUNDED = 4
"""The number of scores per register of a rounded function of them, which coexists with the next function; and per register of values read along columns."""
OTHERS = 16
"""Registers of a thread for other values than tiles. Fitted to what ``ptxas`` spills for gradients of attention of 64 to 256 elements (CUDA 13)."""
RAGGED = 48
"""Further registers for indices along columns that end inside a chunk."""
CUT = 24
"""Further registers if a diagonal cuts such chunks as well."""


@dataclass(frozen=True, slots=True)
class BackToBackConfig(Parameters):
    """The parameters of a schedule of products of functions of products.

    Attributes:
        warpgroups: multiplying warpgroups, with 64 rows of a block each.
        chunk: elements of the walked axis per step.
        stages: chunks of each factor in Shared memory.
    """

    warpgroups: int = 2
    chunk: int = 64
    stages: int = 2

    def __post_init__(self) -> None:
        self.check_fields()
        if self.warpgroups > max(REGISTERS):
            raise self.error(f"{self.warpgroups} warpgroups", f"use 1 to {max(REGISTERS)}")
        if self.chunk % STEP or self.chunk > 256:
            raise self.error(f"chunks of {self.chunk} elements", f"use a multiple of {STEP} up to 256")

    @property
    def words(self) -> str:
        """The parameters as readable text."""
        return f"{self.warpgroups} warpgroup{'s' if self.warpgroups > 1 else ''} of {WGMMA_ROWS} rows, chunks of {self.chunk}, {self.stages} stages"

    @property
    def rows(self) -> int:
        """Rows of a block."""
        return self.warpgroups * WGMMA_ROWS


@dataclass(frozen=True, slots=True, eq=False)
class BackToBack:
    """Products of elementwise functions of products.

    Attributes:
        first, last: the products.
        batch, row, step: positions of axes in the iteration space of the first of all; ``step`` is the axis that the last ones sum.
        depths: terms of each first product.
        columns: of each last one.
        factors: streamed tensors, without duplicates.
        is_ended: masks end the terms of all last products, or, if false, begin them; ``None``: neither is known.
        has_columns: functions read tensors along the chunk that lack rows.
    """

    first: tuple[TensorView, ...]
    last: tuple[TensorView, ...]
    batch: tuple[int, ...]
    row: int
    step: int
    depths: tuple[int, ...]
    columns: tuple[int, ...]
    factors: tuple[tuple[TensorView, int], ...]
    is_ended: bool | None
    has_columns: bool

    def registers(self, config: BackToBackConfig) -> int:
        """Registers of a thread: first products, overwritten by functions of them, one of which is rounded; sums; values read along columns; and others."""
        tiles = len(self.first) * config.chunk // 2 + config.chunk // ROUNDED + sum(self.columns) // 2
        extent, facts = self.first[0].root[self.step].extent, self.first[0].fusion.facts()
        is_whole = is_multiple(extent, config.chunk, facts)
        if self.has_columns:
            return tiles + OTHERS + config.chunk // ROUNDED + (0 if is_whole else RAGGED)
        return tiles + OTHERS + (0 if is_whole or self.is_ended is None else CUT)

    def shared_bytes(self, config: BackToBackConfig) -> int:
        """Shared memory of a block: the factors that it holds, and the rings of streamed ones."""
        return ITEMSIZE * (config.rows * sum(self.depths) + config.stages * config.chunk * sum(width for _, width in self.factors))


def planned(fusion: Fusion, found: BackToBack, extent: Sizes) -> tuple[Option[BackToBackConfig], ...]:
    """Parameters that fit, the fastest first. Raises :class:`UnsupportedError`: none do."""
    target = extent.target
    check_wgmma(fusion, NAME, target)
    moved = bytes_of(fusion, extent)
    options = [Option(c, _us(found, c, moved, extent)) for c in _every() if _problem(found, c, target) is None]
    if not options:
        raise refuse(fusion, NAME, f"tiles of {max(found.depths)} terms and {sum(found.columns)} columns do not fit a multiprocessor")
    return tuple(sorted(options, key=lambda o: o.us))


def has_room(found: BackToBack, target: Target) -> bool:
    """Whether some parameters fit a multiprocessor."""
    return any(_problem(found, c, target) is None for c in _every())


def _every() -> list[BackToBackConfig]:
    """Parameters that may be tried."""
    return [BackToBackConfig(w, c, s) for w in REGISTERS for c in range(32, 256 + STEP, STEP) for s in (2, 3)]


def check_fits(fusion: Fusion, found: BackToBack, config: BackToBackConfig, target: Target) -> None:
    """Raise :class:`UnsupportedError` if parameters do not fit a multiprocessor."""
    problem = _problem(found, config, target)
    if problem is not None:
        raise refuse(fusion, NAME, f"with {config.words}: {problem[0]}", problem[1])


def _problem(found: BackToBack, config: BackToBackConfig, target: Target) -> tuple[str, str] | None:
    """Why parameters do not fit, and which would; ``None`` if they do."""
    registers, room = found.registers(config), REGISTERS[config.warpgroups]
    if registers > room:
        return f"a thread needs {registers} registers and has {room}", "use smaller chunks or fewer warpgroups"
    shared, most = found.shared_bytes(config) + BARRIER_BYTES, target.limits.block_shared
    return (f"a block needs {shared} bytes of Shared memory and has {most}", "use smaller chunks, fewer stages or fewer warpgroups") if shared > most else None


def _us(found: BackToBack, config: BackToBackConfig, moved: float, extent: Sizes) -> float:
    """Microseconds: of a chunk the products, and what they do not hide of the math between them; of rows what comes before and after. Or of all bytes.

    A first product reads both factors from Shared memory, which takes longer than to multiply if chunks are short; a last one reads one.
    """
    target, figures = extent.target, extent.target.attention
    root = found.first[0].root
    m, n = (extent(root[p].extent) for p in (found.row, found.step))
    batch = prod(extent(root[p].extent) for p in found.batch)
    scores = config.rows * config.chunk
    rate = BANKS * BANK_BYTES
    products = 0.0
    for depth in found.depths:
        read = ITEMSIZE * depth * (config.rows + config.warpgroups * config.chunk) / rate
        products += max(scores * depth * ITEMSIZE / target.tensor_bytes_per_cycle, read)
    for columns in found.columns:
        read = ITEMSIZE * columns * config.warpgroups * config.chunk / rate
        products += max(scores * columns * ITEMSIZE / target.tensor_bytes_per_cycle, read)
    between = scores * (1 / target.functions_per_cycle + INSTRUCTIONS * len(found.first) / target.lanes)
    cycles = products + figures.exposed[config.warpgroups - 1] * between + figures.chunk_cycles[config.warpgroups - 1]
    cycles += 0 if found.is_ended is None else figures.masked_cycles
    each = -(-n // config.chunk) * cycles * (1.0 if found.is_ended is None else 0.5 * (1 + config.rows / max(n, config.rows)))
    waves = batch * -(-m // config.rows) / target.sms
    waves = waves if found.is_ended is not None and waves > 1 else math.ceil(waves)  # where the shortest come last, they fill up the last wave
    return target.kernel_us(waves * (each + figures.block_cycles) / target.clock_mhz, target.dram_us(moved))
