"""Atoms: instructions that execute axes of an expression.

Passes read rows of this table, not names of ops. ``completion`` says when the effect is complete; every dependence edge of a
tensor passes the wait for it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum

from taskfuse.errors import shown
from taskfuse.ir.combine import COMBINES, Combine
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise
from taskfuse.ir.matrix_instructions import Family, InstructionShape, OperandLayout, exists, shape_of, shapes, spans
from taskfuse.ir.types import ParallelType


class Completion(Enum):
    """When an atom's effect is complete.

    IMMEDIATE: at once. FIFO: when the thread has waited for its batch. BYTES: when its bytes have arrived at a barrier. ARRIVAL: when the issuing thread
    has waited for it, or when its arrival has been counted at a barrier for which a thread waits.
    """

    IMMEDIATE = "immediate"
    FIFO = "fifo"
    BYTES = "bytes"
    ARRIVAL = "arrival"


class Bounds(Enum):
    """How an atom handles elements out of bounds.

    PREDICATE: it does not, so it needs a predicate. FILL: it reads 0. CLIP: it does not write. COVER: it computes its whole tile; results outside the
    tensor are never read, and along a reduced axis its operands must be padded with neutral elements. ZERO: its elements are all inside or
    all outside, and outside it writes zeros if storage has room for them.
    """

    PREDICATE = "predicate"
    FILL = "fill"
    CLIP = "clip"
    COVER = "cover"
    ZERO = "zero"


class Instruction(Enum):
    """The instruction family of an atom: lowering has one builder for each."""

    SCALAR = "scalar"
    VECTOR = "vector"
    CP_ASYNC = "cp_async"
    TMA_LOAD = "tma_load"
    TMA_STORE = "tma_store"
    WGMMA = "wgmma"
    MMA = "mma"
    LDMATRIX = "ldmatrix"
    STMATRIX = "stmatrix"


@dataclass(frozen=True, slots=True)
class Contraction:
    """The computation of a tensor-core atom: a reduction of ``body`` by ``combine``, along its last axis."""

    combine: Combine
    body: Elementwise


@dataclass(frozen=True, slots=True)
class Atom:
    """One row.

    Attributes:
        name: printed name.
        instruction: its instruction family.
        axes: the least and the greatest number of axes that the atom covers.
        binds: the parallel type that the covered axes get; ``None`` if it covers no axis.
        lanes: threads that execute it together: 1, 32 or 128. If more than one, they are the innermost digit of TIDx.
        max_bytes: the most bytes of one access.
        power_of_two: the covered extents must be powers of two.
        completion: when its effect is complete.
        bounds: its behavior out of bounds.
        copies_only: the definition must be a plain copy; if it fills with zeros, it may also be a part of a tensor with zeros around it.
        is_async: it reads and writes Shared memory through the asynchronous proxy.
        tile: the extents of the covered axes, if the instruction fixes them.
        shape: its row of matrix instructions (:mod:`taskfuse.ir.matrix_instructions`).
        contraction: its contraction; ``None``: an elementwise function. Its last axis is a reduction axis.
        spreads: its result is in the registers of its lanes as tensor cores hold a matrix: the last two axes of the allocation domain are
            distributed over TIDx (:func:`taskfuse.schedule.layouts.fragment`).
        gathers: it takes operands from registers in such a layout (:mod:`taskfuse.lowering.fragments`).
        sets_first: the first step of a reduction can set the accumulators instead of adding to them.
        min_bytes: the fewest bytes of one access.
        multicast: one copy writes the same elements into the Shared memory of several blocks of a cluster.
    """

    name: str
    instruction: Instruction
    axes: tuple[int, int]
    binds: ParallelType | None
    lanes: int
    max_bytes: int
    power_of_two: bool
    completion: Completion
    bounds: Bounds
    copies_only: bool
    is_async: bool = False
    tile: tuple[int, ...] | None = None
    contraction: Contraction | None = None
    spreads: bool = False
    gathers: bool = False
    sets_first: bool = False
    min_bytes: int = 1
    multicast: bool = False
    shape: InstructionShape | None = None

    @property
    def units(self) -> int:
        """Parts of a warp that execute it side by side, each on its own tile: 1, or 4 quad pairs."""
        return 1 if self.shape is None else self.shape.units

    @property
    def lane_digits(self) -> tuple[int, int, int]:
        """The lanes as digits of the thread index: those above the units that execute it side by side, the units, and those below."""
        if self.shape is None or self.units == 1:
            return 1, 1, self.lanes
        digits = self.shape.accumulator(self.shape.widths[0]).lanes
        at = next(k for k, d in enumerate(digits) if d.is_unit)
        above = math.prod(d.extent for d in digits[:at])
        return above, self.units, self.lanes // above // self.units


_P = ParallelType
SCALAR = Atom("scalar", Instruction.SCALAR, (0, 0), None, 1, 8, False, Completion.IMMEDIATE, Bounds.PREDICATE, False)
VECTOR = Atom("vector", Instruction.VECTOR, (1, 1), _P.Vectorize, 1, 16, True, Completion.IMMEDIATE, Bounds.PREDICATE, True)
# Copies of each thread from Global to Shared memory (PTX ISA, "cp.async"), made in the generic proxy.
CP_ASYNC = Atom("cp_async", Instruction.CP_ASYNC, (0, 1), _P.Vectorize, 1, 16, True, Completion.ARRIVAL, Bounds.ZERO, True, min_bytes=4)
# Bulk tensor copies (PTX ISA, "cp.async.bulk.tensor"): one thread starts them, the copy engine makes them.
TMA_LOAD = Atom("tma_load", Instruction.TMA_LOAD, (1, 5), _P.Bulk, 1, 1 << 17, False, Completion.BYTES, Bounds.FILL, True, is_async=True)
TMA_LOAD_MULTICAST = Atom(
    "tma_load_multicast", Instruction.TMA_LOAD, (1, 5), _P.Bulk, 1, 1 << 17, False, Completion.BYTES, Bounds.FILL, True, is_async=True, multicast=True
)
TMA_STORE = Atom("tma_store", Instruction.TMA_STORE, (1, 5), _P.Bulk, 1, 1 << 17, False, Completion.FIFO, Bounds.CLIP, True, is_async=True)
# A warp stores a 16 x 16 tile of 16-bit elements from registers, or one of 16 x 8 (PTX ISA, "stmatrix").
STMATRIX_X4 = Atom("stmatrix_x4", Instruction.STMATRIX, (2, 2), _P.Mma, 32, 512, True, Completion.IMMEDIATE, Bounds.COVER, True, tile=(16, 16), gathers=True)
STMATRIX_X2 = Atom("stmatrix_x2", Instruction.STMATRIX, (2, 2), _P.Mma, 32, 256, True, Completion.IMMEDIATE, Bounds.COVER, True, tile=(16, 8), gathers=True)

# A warp loads such a tile into registers (PTX ISA, "ldmatrix").
LDMATRIX_X4 = Atom("ldmatrix_x4", Instruction.LDMATRIX, (2, 2), _P.Mma, 32, 512, True, Completion.IMMEDIATE, Bounds.COVER, True, tile=(16, 16), spreads=True)

SUM_OF_PRODUCTS = Contraction(COMBINES["add"], ELEMENTWISE["mul"])
_WGMMA = shapes(Family.WGMMA)[0]
_MMA = tuple(shape for shape in shapes(Family.MMA) if shape.layouts is None)
WGMMA_ROWS, WGMMA_COLUMNS, WGMMA_K_BYTES, WGMMA_ARCH = _WGMMA.m, _WGMMA.widths[0], _WGMMA.k_bytes, _WGMMA.arch
"""Rows, the fewest columns, bytes of an operand along k, the architecture whose feature it is (``sm_90a``)."""
MMA_ROWS, MMA_COLUMNS = _MMA[0].m, _MMA[0].widths[0]
QUAD_PAIR_ROWS = next(shape.m for shape in shapes(Family.MMA) if shape.layouts is not None)


def wgmma(m: int, n: int, k: int) -> Atom:
    """The row of ``wgmma.mma_async.m64nNkK`` (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions"): axes (m, n, k), k reduced.

    Args:
        m: 64.
        n: 8 to 256, a multiple of 8.
        k: as many bytes of an operand's dtype as the table has.

    Raises:
        ValueError: the instruction does not exist.
    """
    if not exists(Family.WGMMA, m, n, k):
        allowed = f"m is {WGMMA_ROWS}, n a multiple of 8 up to 256, k {spans(shapes(Family.WGMMA))} of an operand"
        raise ValueError(f"wgmma({shown(m)}, {shown(n)}, {shown(k)}): no such instruction; {allowed}")
    return Atom(
        f"wgmma_m{m}n{n}k{k}",
        Instruction.WGMMA,
        (3, 3),
        _P.Mma,
        _WGMMA.threads,
        1 << 22,
        False,
        Completion.FIFO,
        Bounds.COVER,
        False,
        is_async=True,
        tile=(m, n, k),
        contraction=SUM_OF_PRODUCTS,
        spreads=True,
        gathers=True,
        sets_first=True,
        shape=_WGMMA,
    )


def mma(m: int, n: int, k: int, a: str | OperandLayout | None = None, b: str | OperandLayout | None = None) -> Atom:
    """The row of ``mma.sync.m16n8kK`` or ``mma.sync.m8n8k4`` (PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions"): axes (m, n, k), k reduced.

    Products of float64 have a k of 4, 8 or 16 on Hopper, and 8 rows and a k of 4 since sm_80.

    With layouts ``mma.sync.m8n8k4`` computes four products, one by each quad pair of the warp: lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3 are quad
    pair q. The axes around the atom that number them, 4 values together, are the innermost ones that are bound to TIDx: of the rows, of the columns
    or, after ``rfactor``, of the reduced axis.

    Args:
        m: 16, or 8.
        n: 8.
        k: as many bytes of an operand's dtype as the table has: 32, or 8; of float64 32, 64 or 128.
        a, b: the layouts of the operands in registers, "row" or "col", where quad pairs multiply.

    Raises:
        ValueError: there is no such instruction.
    """
    layouts = None if a is None or b is None else (OperandLayout(a), OperandLayout(b))
    if (a is None) is not (b is None) or not exists(Family.MMA, m, n, k, layouts):
        allowed = f"m is {MMA_ROWS}, n is {MMA_COLUMNS}, k {spans(_MMA)} of an operand"
        if m == QUAD_PAIR_ROWS:
            allowed = "m8n8k4 takes 'row' or 'col' as a and as b, or neither"
        elif a is not None or b is not None:
            allowed = "m8n8k4 alone takes layouts"
        given = "" if a is None and b is None else f", {shown(a)}, {shown(b)}"
        raise ValueError(f"mma({shown(m)}, {shown(n)}, {shown(k)}{given}): no such instruction; {allowed}")
    shape = shape_of(Family.MMA, m, layouts)
    return Atom(
        f"mma_m{m}n{n}k{k}" + ("" if layouts is None else f"_{layouts[0].value}_{layouts[1].value}"),
        Instruction.MMA,
        (3, 3),
        _P.Mma,
        shape.threads,
        1 << 20,
        False,
        Completion.IMMEDIATE,
        Bounds.COVER,
        False,
        tile=(m, n, k),
        contraction=SUM_OF_PRODUCTS,
        spreads=True,
        gathers=True,
        shape=shape,
    )


ATOMS: dict[str, Atom] = {a.name: a for a in (SCALAR, VECTOR, CP_ASYNC, TMA_LOAD, TMA_LOAD_MULTICAST, TMA_STORE, STMATRIX_X4, STMATRIX_X2, LDMATRIX_X4)}
_CONTRACTION = re.compile(r"(wgmma|mma)_m(\d+)n(\d+)k(\d+)(?:_(row|col)_(row|col))?")


def find(name: str) -> Atom | None:
    """The row of a printed name, or ``None``."""
    found = _CONTRACTION.fullmatch(name)
    if found is None:
        return ATOMS.get(name)
    kind, m, n, k, *layouts = found.groups()
    try:
        if kind == "wgmma":
            return None if any(layouts) else wgmma(int(m), int(n), int(k))
        return mma(int(m), int(n), int(k), *layouts)
    except ValueError:
        return None
