"""Layouts in Shared memory of the copy engine and of tensor cores: swizzles, and the operands of wgmma.

Sources: PTX ISA, "Tensor swizzling modes", "Asynchronous Warpgroup Level Matrix Shared Memory Layout". Addresses count bytes from a multiple of the
swizzle's period.
"""

from __future__ import annotations

from enum import Enum
from functools import cache

import numpy as np
import numpy.typing as npt

from taskfuse.ir.scalar import Expr, evaluate, private, xor
from taskfuse.target import BANK_BYTES, BANKS

Ints = npt.NDArray[np.int64]

CHUNK = 16
"""Bytes that a swizzle moves as a unit, and bytes of a row of a core matrix."""
ROWS = 8
"""Rows of a core matrix; also the number of spans after which a swizzle repeats."""
LINE = BANKS * BANK_BYTES
"""Bytes of a line: all banks of Shared memory, after which a swizzle permutes chunks differently. A box of a bulk copy begins at a multiple of it."""
SPANS = (32, 64, 128)
"""Bytes of the span in which a swizzle permutes chunks."""
SWIZZLES = (0, *SPANS)
"""As :data:`SPANS`, with 0 for no swizzle."""


class Major(Enum):
    """The contiguous axis of a wgmma operand in Shared memory."""

    K = "K"
    MN = "MN"


def swizzle_period(span: int) -> int:
    """Bytes after which a swizzle repeats, the alignment that it needs; without a swizzle, that of a box."""
    return ROWS * span or LINE


def operand_alignment(span: int) -> int:
    """Alignment in bytes of the buffer of a wgmma operand: the period of its swizzle; without one, that of a core matrix's row."""
    return swizzle_period(span) if span else CHUNK


def swizzled(addresses: Ints, span: int) -> Ints:
    """Byte addresses under a swizzle: the chunks of a span are permuted by the number of their line. An involution.

    128: address bits [4:7) ^= [7:10), 64: [4:6) ^= [7:9), 32: [4] ^= [7]; 0: none.
    """
    return addresses ^ (addresses // LINE % (span // CHUNK) * CHUNK) if span > CHUNK else addresses


def swizzled_place(address: Expr, span: int) -> Expr:
    """As :func:`swizzled`, for an expression."""
    if span <= CHUNK:
        return address
    return address // LINE * LINE + xor(address % LINE // CHUNK, address // LINE % (span // CHUNK)) * CHUNK + address % CHUNK


def operand_offset(row: Expr, column: Expr, itemsize: int, swizzle: int, lbo: int, sbo: int, major: Major) -> Expr:
    """Bytes from the first element of a wgmma operand to one of its elements, before the swizzle; ``column`` is along k.

    K-major: 8 rows of a span (of a core matrix without a swizzle) follow each other, groups of 8 are ``sbo`` apart, core matrices along k ``lbo``.
    MN-major: 8 columns of k of a span of rows follow each other, groups of 8 along k are ``sbo`` apart, spans ``lbo``; without a swizzle the two
    offsets change places.
    """
    if major is Major.MN:
        n, (along, across) = (swizzle or CHUNK) // itemsize, (lbo, sbo) if swizzle else (sbo, lbo)
        return row % n * itemsize + row // n * along + column % ROWS * (swizzle or CHUNK) + column // ROWS * across
    if swizzle:
        return row % ROWS * swizzle + row // ROWS * sbo + column * itemsize
    return row % ROWS * CHUNK + row // ROWS * sbo + column * itemsize % CHUNK + column * itemsize // CHUNK * lbo


@cache
def operand_offsets(rows: int, k: int, itemsize: int, swizzle: int, lbo: int, sbo: int, major: Major) -> Ints:
    """As :func:`operand_offset`, for all elements of an operand: ``[rows, k]``."""
    row, column = private("operand.row"), private("operand.column")
    offset = operand_offset(row, column, itemsize, swizzle, lbo, sbo, major)
    return np.asarray(evaluate(offset, {row.name: np.arange(rows)[:, None], column.name: np.arange(k)[None, :]}), np.int64)
