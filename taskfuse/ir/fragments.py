"""Fragments: which element of a matrix each register of each lane holds.

A fragment is data: the lane number and the register number, each written in mixed radix, move the element along the rows and columns of the
matrix by a fixed step per digit. So row and column are linear in the digits, and a loop domain states the same by splitting its axes. A
register is one *element*; elements below 32 bits stand side by side in 32-bit registers, the lowest element in the lowest bits. Where an
instruction multiplies several matrices side by side, a digit of the lane that moves no element numbers the *units* that hold one each.

The instructions that multiply have theirs in :mod:`taskfuse.ir.matrix_instructions`. A is m x k, B is k x n as in the PTX ISA, accumulators are
m x n.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from taskfuse.ir.scalar import Expr

Ints = npt.NDArray[np.int64]
T = TypeVar("T", int, Expr, Ints)

MATRIX_ROWS = 8
"""Rows of a matrix of ``ldmatrix`` and ``stmatrix``."""

MATRIX_ROW_BYTES = 16
"""Bytes of a row of such a matrix: 8 elements of 16 bits, and as many bytes of others."""

MATRIX_COUNTS = (1, 2, 4)
"""Matrices that one ``ldmatrix`` or ``stmatrix`` may move."""


@dataclass(frozen=True, slots=True)
class Digit:
    """A digit of a lane or register number: ``extent`` values, each step moving the element by ``row`` rows and ``column`` columns.

    A digit of the lane that moves the element by neither numbers the units: groups of lanes with one matrix each.
    """

    extent: int
    row: int = 0
    column: int = 0

    @property
    def is_unit(self) -> bool:
        """Whether it moves no element."""
        return not self.row and not self.column


@dataclass(frozen=True, slots=True)
class Fragment:
    """The layout of a matrix in the registers of a warp, a warpgroup or each of several units of a warp: each element is in exactly one.

    Attributes:
        shape: rows and columns.
        lanes: digits of the lane number (of the thread in its warp or warpgroup), most significant first.
        registers: digits of the register number, counted in elements, most significant first.
        figure: its figure in the PTX ISA.
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
    def units(self) -> int:
        """Groups of lanes with one matrix each: 1, or the 4 quad pairs of a warp."""
        return math.prod(d.extent for d in self.lanes if d.is_unit)

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
        """Rows and columns, each ``[threads // units, count]``, of every register of every lane of a unit. Read-only."""
        return _table(self)

    def owners(self) -> tuple[Ints, Ints]:
        """The inverse: lanes, as numbers in their unit, and registers, each of :attr:`shape`, that hold the elements. Read-only."""
        return _owners(self)

    def members(self) -> Ints:
        """The lanes of each unit, ``[units, threads // units]``. Read-only."""
        return _members(self)

    def steps(self) -> tuple[list[int], list[int]]:
        """The steps of the digits along the rows and along the columns, largest first: the factors by which the axes are split."""
        digits = (*self.lanes, *self.registers)
        return sorted((d.row for d in digits if d.row), reverse=True), sorted((d.column for d in digits if d.column), reverse=True)

    def places(self) -> list[int]:
        """For each digit, lanes first and without units, its place among the axes that rows and columns are split into."""
        rows, columns = self.steps()
        digits = [d for d in (*self.lanes, *self.registers) if not d.is_unit]
        return [rows.index(d.row) if d.row else len(rows) + columns.index(d.column) for d in digits]

    def transposed(self, figure: str | None = None) -> Fragment:
        """The fragment of the transposed matrix in the same registers."""
        lanes, registers = (tuple(Digit(d.extent, d.column, d.row) for d in digits) for digits in (self.lanes, self.registers))
        return Fragment((self.shape[1], self.shape[0]), lanes, registers, figure or self.figure)


@cache
def _table(fragment: Fragment) -> tuple[Ints, Ints]:
    lanes: Ints = fragment.members()[0][:, None]
    registers: Ints = np.arange(fragment.count)[None, :]
    return fragment.position(lanes, registers)


@cache
def _owners(fragment: Fragment) -> tuple[Ints, Ints]:
    rows, columns = fragment.table()
    lanes, registers = np.zeros(fragment.shape, np.int64), np.zeros(fragment.shape, np.int64)
    lanes[rows, columns] = np.arange(len(rows))[:, None]
    registers[rows, columns] = np.arange(fragment.count)[None, :]
    return lanes, registers


@cache
def _members(fragment: Fragment) -> Ints:
    lanes: Ints = np.arange(fragment.threads)
    unit, below = np.zeros_like(lanes), fragment.threads
    for d in fragment.lanes:
        below //= d.extent
        if d.is_unit:
            unit = unit * d.extent + lanes // below % d.extent
    return np.stack([lanes[unit == u] for u in range(fragment.units)])


ROWS = 8
"""Rows of a matrix that the lanes of a warp hold at once, four lanes each."""
GROUP = 16
"""Rows that a warp holds."""


def _packed(itemsize: int) -> int:
    """Elements in a 32-bit register; of 64 bits one, in two registers."""
    return max(1, 4 // itemsize)


def _warps(m: int) -> tuple[Digit, ...]:
    """Warp w of a warpgroup has rows 16w to 16w + 15."""
    return () if m <= GROUP else (Digit(m // GROUP, row=GROUP),)


def _halves(m: int) -> tuple[Digit, ...]:
    """The two rows of a lane, of which a matrix of 8 rows has one."""
    return () if m == ROWS else (Digit(2, row=ROWS),)


def _moving(digits: tuple[Digit, ...]) -> tuple[Digit, ...]:
    """Those of several values."""
    return tuple(d for d in digits if d.extent > 1)


@cache
def accumulator(m: int, n: int, figure: str) -> Fragment:
    """An m x n accumulator of elements of 32 or 64 bits: n / 2 of them in each thread, n / 4 if m is 8."""
    lanes = (*_warps(m), Digit(ROWS, row=1), Digit(4, column=2))
    registers = (Digit(n // ROWS, column=ROWS), *_halves(m), Digit(2, column=1))
    return Fragment((m, n), lanes, registers if n > ROWS else registers[1:], figure)


@cache
def left(m: int, k: int, itemsize: int, figure: str) -> Fragment:
    """An m x k matrix A; ``itemsize``: bytes of an element, 8, 4 (tf32), 2 or 1."""
    packed = _packed(itemsize)
    lanes = (*_warps(m), Digit(ROWS, row=1), Digit(4, column=packed))
    registers = (Digit(k // (4 * packed), column=4 * packed), *_halves(m), Digit(packed, column=1))
    return Fragment((m, k), lanes, _moving(registers), figure)


def term_digits(itemsize: int) -> tuple[int, int, int]:
    """The digits of a column of an accumulator, by which it becomes a term of :func:`left` in the registers of its lane.

    A lane of four holds pairs of columns that are 8 apart, and of a row of A as many neighboring elements as a register has: of 16 bits two, of 8 bits four. So
    column (pair, lane, element) is term (lane, pair, element). Returns the extents of the digits of a column, the last of which is the least significant.
    """
    packed = _packed(itemsize)
    return max(packed // 2, 1), 4, min(packed, 2)


def term_of_column(column: T, itemsize: int) -> T:
    """The term of A that an accumulator's column is, if accumulators become elements of A in their place: of 16 bits the column itself."""
    pairs, lanes, elements = term_digits(itemsize)
    return _exchanged(column, pairs, lanes, elements)


def column_of_term(term: T, itemsize: int) -> T:
    """The inverse of :func:`term_of_column`."""
    pairs, lanes, elements = term_digits(itemsize)
    return _exchanged(term, lanes, pairs, elements)


def _exchanged(place: T, first: int, second: int, elements: int) -> T:
    """A place ``(.., a, b, element)`` as ``(.., b, a, element)``, of digits of so many values."""
    if 1 in (first, second):
        return place
    a, b = place // (second * elements) % first, place // elements % second
    group = first * second * elements
    return place // group * group + b * (first * elements) + a * elements + place % elements


@cache
def right(k: int, n: int, itemsize: int, figure: str) -> Fragment:
    """A k x n matrix B with n = 8; ``itemsize`` as in :func:`left`."""
    packed = _packed(itemsize)
    lanes = (Digit(n, column=1), Digit(4, row=packed))
    return Fragment((k, n), lanes, _moving((Digit(k // (4 * packed), row=4 * packed), Digit(packed, row=1))), figure)


# -- quad pairs (PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type") ---------------------------------------------
# Lanes 4q to 4q + 3 and 16 + 4q to 16 + 4q + 3 are quad pair q, which multiplies an 8 x 4 by a 4 x 8 matrix of its own.

QUAD, PAIRS = 4, Digit(4)
"""Lanes of a quad; the digit of the lane that numbers the quad pairs of a warp."""


@cache
def quad_pair_left(m: int, k: int, *, along_k: bool, figure: str) -> Fragment:
    """An 8 x 4 matrix A of 16-bit elements; ``along_k``: a lane holds a row (row-major A), not 4 elements of a column."""
    quad, own = (Digit(QUAD, row=1), Digit(k, column=1)) if along_k else (Digit(k, column=1), Digit(QUAD, row=1))
    return Fragment((m, k), (Digit(2, row=QUAD), PAIRS, quad), (own,), figure)


@cache
def quad_pair_right(k: int, n: int, *, along_k: bool, figure: str) -> Fragment:
    """A 4 x 8 matrix B of 16-bit elements; ``along_k``: a lane holds a column (column-major B), not 4 elements of a row."""
    return quad_pair_left(n, k, along_k=along_k, figure=figure).transposed()


@cache
def quad_pair_accumulator(m: int, n: int, itemsize: int, figure: str) -> Fragment:
    """An 8 x 8 accumulator of elements of 4 or 2 bytes: 8 of them in each thread."""
    if itemsize == 2:
        return Fragment((m, n), (Digit(2, row=QUAD), PAIRS, Digit(QUAD, row=1)), (Digit(n, column=1),), figure)
    lanes = (Digit(2, row=QUAD), PAIRS, Digit(2, column=2), Digit(2, row=1))
    return Fragment((m, n), lanes, (Digit(2, column=QUAD), Digit(2, row=2), Digit(2, column=1)), figure)


@cache
def four_matrices() -> Fragment:
    """Four matrices of 16-bit elements as a tile 16 x 16, the left half above the right half: A of a product with k = 16."""
    return left(GROUP, GROUP, 2, "ldmatrix fragment layout for one 8x8 Matrix with 16-bit elements")


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
