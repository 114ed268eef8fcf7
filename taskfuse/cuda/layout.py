"""Layouts of array arguments: the assumptions that a launch may make, and tests for overlaps.

Strides are in elements, of either sign. The stride of an axis of extent 1 is irrelevant, as are all strides of an empty array.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from taskfuse.kir.variant import ArgumentLayout

INT32_LIMIT = 1 << 31
DENSE_ALIGNMENT = 16  # bytes: the widest vector


class Layout(NamedTuple):
    """The layout of an array's elements, relative to element [0, ..., 0].

    Attributes:
        shape: extents.
        strides: in elements; irrelevant ones are those of row-major order.
        itemsize: bytes of an element.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @staticmethod
    def of(shape: Sequence[int], strides: Sequence[int], itemsize: int) -> Layout:
        """The layout with strides ``strides`` in elements; irrelevant strides are replaced."""
        dense = row_major(shape)
        if 0 in shape:
            return Layout(tuple(shape), dense, itemsize)
        kept = (d if n == 1 else s for n, s, d in zip(shape, strides, dense, strict=True))
        return Layout(tuple(shape), tuple(kept), itemsize)

    @property
    def is_empty(self) -> bool:
        return 0 in self.shape

    @property
    def is_row_major(self) -> bool:
        """Row-major without gaps."""
        return self.strides == row_major(self.shape)

    @property
    def reach(self) -> tuple[int, int]:
        """The least and the greatest offset of an element, in elements. (0, -1) for an empty array."""
        if self.is_empty:
            return 0, -1
        steps = [(n - 1) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)

    @property
    def byte_range(self) -> tuple[int, int]:
        """The bytes from the first to the end of the last element, relative to the address of element [0, ..., 0]."""
        low, high = self.reach
        return low * self.itemsize, (high + 1) * self.itemsize

    @property
    def fits_int32(self) -> bool:
        """True if every partial sum of the products index · stride fits 32 bits."""
        low, high = self.reach
        return high - low < INT32_LIMIT

    def form(self, alignment: int, vector_bytes: int) -> ArgumentLayout:
        """The form that a text may assume.

        Args:
            alignment: a power of two that divides the base address, 16 at most.
            vector_bytes: a multiple of the size of every vector copied from or to the array; 0 without vectors.
        """
        if self.is_empty or (self.is_row_major and (alignment >= DENSE_ALIGNMENT or not vector_bytes)):
            return ArgumentLayout.DENSE
        if not self.shape or self.strides[-1] != 1:
            return ArgumentLayout.STRIDED
        if not vector_bytes:
            return ArgumentLayout.ROWS
        rows = (n * self.itemsize for n, extent in zip(self.strides[:-1], self.shape[:-1], strict=True) if extent > 1)
        aligned = alignment % vector_bytes == 0 and all(row % vector_bytes == 0 for row in rows)
        return ArgumentLayout.ROWS if aligned else ArgumentLayout.STRIDED

    @property
    def overlaps_itself(self) -> bool:
        """True if two elements have the same address: a nonzero d with |d_k| < extent_k has sum of d_k · stride_k = 0."""
        axes = sorted(((abs(s), n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1), reverse=True)
        return not self.is_empty and _collides(axes, 0, nonzero=False)


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of row-major order without gaps. Empty axes count 1."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def alignment_of(address: int) -> int:
    """The greatest power of two up to 16 that divides ``address``."""
    return math.gcd(address, DENSE_ALIGNMENT)


def vector_bytes_of(widths: Iterable[int]) -> int:
    """The alignment of a base address for vectors of these sizes in bytes; 0 without vectors."""
    return math.lcm(*widths) if (widths := tuple(widths)) else 0


def ranges_overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """True if two half-open ranges of addresses have a byte in common."""
    return max(a[0], b[0]) < min(a[1], b[1])


def _collides(axes: list[tuple[int, int]], rest: int, *, nonzero: bool) -> bool:
    """True if differences d_k of ``axes`` (stride, extent; greatest stride first) sum to ``-rest``, with one of them, or one chosen before, not 0."""
    if not axes:
        return nonzero and rest == 0
    (stride, extent), inner = axes[0], axes[1:]
    reach = sum((n - 1) * s for s, n in inner)
    if stride > reach and not nonzero:
        return _collides(inner, rest, nonzero=False)  # a step along this axis is more than the others can undo
    if stride == 0:
        return rest == 0
    if rest % math.gcd(*(s for s, _ in axes)):
        return False
    low, high = max(-((rest + reach) // stride), 1 - extent), min((reach - rest) // stride, extent - 1)
    if not nonzero:
        low = 0  # of d and -d, one will do
    return any(_collides(inner, rest + d * stride, nonzero=nonzero or d != 0) for d in range(low, high + 1))
