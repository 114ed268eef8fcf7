"""Fragments: which element of a matrix each register of each lane holds, for every tensor-core instruction.

A fragment is data: the lane number and the register number, each written in mixed radix, move the element along the rows and columns of the
matrix by a fixed step per digit. So row and column are linear in the digits, and a loop domain states the same by splitting its axes. A
register is one *element*; elements below 32 bits stand side by side in 32-bit registers, the lowest element in the lowest bits.

All operands of an instruction are 32 bytes long along k (:data:`K_BYTES`). A is m x k, B is k x n as in the PTX ISA, accumulators are m x n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from taskfuse.ir.scalar import Expr
from taskfuse.kir.limits import WARP, WARPGROUP

Ints = npt.NDArray[np.int64]
T = TypeVar("T", int, Expr, Ints)

K_BYTES = 32
"""Bytes of an operand's row along k: of ``wgmma.mma_async`` (dense) and of the ``mma.sync`` shapes in kernel IR."""

WGMMA_M = 64
"""Rows of A and of the accumulator of ``wgmma.mma_async``."""

MMA_M = 16
"""Rows of A and of the accumulator of ``mma.sync``."""

MMA_N = 8
"""Columns of B and of the accumulator of ``mma.sync``."""

MATRIX_ROWS = 8
"""Rows of a matrix of ``ldmatrix`` and ``stmatrix``."""

MATRIX_ROW_BYTES = 16
"""Bytes of a row of such a matrix: 8 elements of 16 bits, and as many bytes of others."""

MATRIX_COUNTS = (1, 2, 4)
"""Matrices that one ``ldmatrix`` or ``stmatrix`` may move."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of a lane or register number: ``extent`` values, each step moving the element by ``row`` rows and ``column`` columns."""

    extent: int
    row: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Fragment:
    """How a matrix lies in the registers of a warp or warpgroup, each element in exactly one.

    Attributes:
        shape: rows and columns.
        lanes: digits of the lane number (of the thread in its warp or warpgroup), most significant first.
        registers: digits of the register number, counted in elements, most significant first.
        figure: where the PTX ISA shows it.
    """

    shape: tuple[int, int]
    lanes: tuple[Digit, ...]
    registers: tuple[Digit, ...]
    figure: str

    @property
    def threads(self) -> int:
        """32 for a warp's instruction, 128 for a warpgroup's."""
        return math.prod(d.extent for d in self.lanes)

    @property
    def count(self) -> int:
        """Registers (elements) per thread."""
        return math.prod(d.extent for d in self.registers)

    def position(self, lane: T, register: T) -> tuple[T, T]:
        """Row and column of the element in ``register`` of ``lane``: of numbers, arrays (broadcast) or expressions."""
        row, column = lane * 0, lane * 0
        for number, digits in ((lane, self.lanes), (register, self.registers)):
            below = math.prod(d.extent for d in digits)
            for d in digits:
                below //= d.extent
                value = number // below % d.extent
                row = row + value * d.row
                column = column + value * d.column
        return row, column

    def row(self, lane: T, register: T) -> T:
        """The row of :meth:`position`."""
        return self.position(lane, register)[0]

    def column(self, lane: T, register: T) -> T:
        """The column of :meth:`position`."""
        return self.position(lane, register)[1]

    def table(self) -> tuple[Ints, Ints]:
        """Rows and columns, each ``[threads, count]``, of every register of every lane. Do not write to them."""
        return _table(self)

    def owners(self) -> tuple[Ints, Ints]:
        """The inverse: lanes and registers, each of :attr:`shape`, that hold the elements. Do not write to them."""
        return _owners(self)

    def transposed(self, figure: str | None = None) -> Fragment:
        """The fragment of the transposed matrix in the same registers."""
        lanes, registers = (tuple(Digit(d.extent, d.column, d.row) for d in digits) for digits in (self.lanes, self.registers))
        return Fragment((self.shape[1], self.shape[0]), lanes, registers, figure or self.figure)


@cache
def _table(fragment: Fragment) -> tuple[Ints, Ints]:
    lanes: Ints = np.arange(fragment.threads)[:, None]
    registers: Ints = np.arange(fragment.count)[None, :]
    return fragment.position(lanes, registers)


@cache
def _owners(fragment: Fragment) -> tuple[Ints, Ints]:
    rows, columns = fragment.table()
    lanes, registers = np.zeros(fragment.shape, np.int64), np.zeros(fragment.shape, np.int64)
    lanes[rows, columns] = np.arange(fragment.threads)[:, None]
    registers[rows, columns] = np.arange(fragment.count)[None, :]
    return lanes, registers


_WARPS = Digit(WARPGROUP // WARP, row=MMA_M)  # warp w of a warpgroup has rows 16w to 16w + 15


def _packed(itemsize: int) -> int:
    """Elements in a 32-bit register."""
    return 4 // itemsize


def _a(itemsize: int) -> tuple[tuple[Digit, ...], tuple[Digit, ...]]:
    packed = _packed(itemsize)
    lanes = (Digit(8, row=1), Digit(4, column=packed))
    registers = (Digit(2, column=4 * packed), Digit(2, row=8), Digit(packed, column=1))
    return lanes, registers


@cache
def wgmma_accumulator(n: int) -> Fragment:
    """The 64 x n accumulator of ``wgmma.mma_async``, of fp32 or s32: ``n / 2`` registers in each of 128 threads."""
    lanes = (_WARPS, Digit(8, row=1), Digit(4, column=2))
    registers = (Digit(n // 8, column=8), Digit(2, row=8), Digit(2, column=1))
    return Fragment((WGMMA_M, n), lanes, registers, "WGMMA .m64nNk* register fragment layout for accumulator matrix D")


@cache
def wgmma_a(itemsize: int) -> Fragment:
    """The 64 x (32 / itemsize) matrix A of ``wgmma.mma_async`` in registers; ``itemsize``: bytes of an element, 4 (tf32), 2 or 1."""
    lanes, registers = _a(itemsize)
    k = K_BYTES // itemsize
    return Fragment((WGMMA_M, k), (_WARPS, *lanes), registers, f"WGMMA .m64nNk{k} register fragment layout for matrix A")


@cache
def mma_accumulator() -> Fragment:
    """The 16 x 8 accumulator of ``mma.sync``, of fp32 or s32: 4 registers in each of 32 threads."""
    lanes = (Digit(8, row=1), Digit(4, column=2))
    return Fragment((MMA_M, MMA_N), lanes, (Digit(2, row=8), Digit(2, column=1)), "MMA .m16n8k16 fragment layout for accumulator matrix C/D")


@cache
def mma_a(itemsize: int) -> Fragment:
    """The 16 x (32 / itemsize) matrix A of ``mma.sync``; ``itemsize``: bytes of an element, 4 (tf32), 2 or 1."""
    k = K_BYTES // itemsize
    return Fragment((MMA_M, k), *_a(itemsize), f"MMA .m16n8k{k} fragment layout for matrix A")


@cache
def mma_b(itemsize: int) -> Fragment:
    """The (32 / itemsize) x 8 matrix B (k x n) of ``mma.sync``; ``itemsize``: bytes of an element, 4 (tf32), 2 or 1."""
    packed, k = _packed(itemsize), K_BYTES // itemsize
    lanes = (Digit(8, column=1), Digit(4, row=packed))
    registers = (Digit(2, row=4 * packed), Digit(packed, row=1))
    return Fragment((k, MMA_N), lanes, registers, f"MMA .m16n8k{k} fragment layout for matrix B")


@cache
def matrices(count: int, itemsize: int = 2, *, transpose: bool = False) -> Fragment:
    """``count`` matrices of 8 rows of 16 bytes, one above the other, as ``ldmatrix`` and ``stmatrix`` move them.

    Rows and columns are those in Shared memory: row ``8 * i + r`` is row ``r`` of matrix ``i``, whose address lane ``8 * i + r`` gives. A lane
    holds the ``4 / itemsize`` elements of 32 bits of each matrix. ``transpose``: ``.trans``, which exists for 16-bit elements.
    """
    packed = _packed(itemsize)
    lanes, word = (Digit(8, row=1), Digit(4, column=packed)), Digit(packed, column=1)
    if transpose:
        lanes, word = (Digit(8, column=1), Digit(4, row=packed)), Digit(packed, row=1)
    shape = (MATRIX_ROWS * count, MATRIX_ROW_BYTES // itemsize)
    return Fragment(shape, lanes, (Digit(count, row=MATRIX_ROWS), word), "ldmatrix fragment layout for one 8x8 Matrix with 16-bit elements")
