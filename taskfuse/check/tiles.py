"""Boxes and tiles: which bytes of a Shared buffer one instruction of an engine touches, from the byte where it begins.

A box of a bulk copy lies row-major from its first byte on. A tile of ``wgmma`` is what its descriptor's strides reach (PTX ISA, "Strides", "Asynchronous
Warpgroup Level Matrix Shared Memory Layout"). A swizzle moves bytes within aligned spans of its own size alone, so that what lies between two multiples
of the span stays there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.program import Node
from taskfuse.ir.scalar import Expr, const, evaluate, sym, xor
from taskfuse.kir import Kernel
from taskfuse.kir.nodes import Access, Descriptor, Major, TensorMapParam, TensorParam, TmaLoad, TmaStore, Wgmma

Ints = NDArray[np.int64]
CORE = 16  # bytes of a row of a core matrix
ROWS = 8  # of a core matrix, or of a period of a swizzle
LINE = 128  # bytes after which a swizzle exchanges other chunks


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes of a Shared buffer that one instruction touches.

    Attributes:
        access: its first element; ``start``: the byte of the buffer where it begins.
        bytes: from there to behind the last.
        span: bytes of the swizzle, 1 without one.
        what: what it is called.
    """

    access: Access
    start: Expr
    bytes: int
    span: int
    what: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Shapes and element sizes of a kernel's buffers and tensors, and its tensor maps."""

    shapes: dict[str, tuple[Expr, ...]]
    sizes: dict[str, int]
    maps: dict[str, TensorMapParam]

    @staticmethod
    def of(kernel: Kernel) -> Storage:
        """That of a kernel."""
        holders = [*(p for p in kernel.params if isinstance(p, TensorParam)), *kernel.buffers]
        maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        return Storage({h.name: h.shape for h in holders}, {h.name: h.dtype.itemsize for h in holders}, maps)

    def byte(self, access: Access) -> Expr:
        """The byte of its buffer where an element begins."""
        return row_major(access.index, self.shapes[access.buffer]) * self.sizes[access.buffer]


def row_major(index: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The row-major place of an element."""
    place: Expr = const(0)
    for e, extent in zip(index, shape, strict=True):
        place = place * extent + e
    return place


def blocks(node: Node, storage: Storage) -> Iterator[Block]:
    """The blocks of Shared memory that a statement touches."""
    match node.stmt:
        case TmaLoad(out=access, map=name) | TmaStore(source=access, map=name):
            box = storage.maps[name]
            size = math.prod(box.box) * storage.sizes[access.buffer]
            yield Block(access, storage.byte(access), size, max(box.swizzle, 1), "box")
        case Wgmma(a=a, b=b, n=n, k=k, row=row):
            for d, rows in ((a, row.m), (b, n)):
                if isinstance(d, Descriptor):
                    size = tile_bytes(d, rows, k, storage.sizes[d.base.buffer])
                    yield Block(d.base, storage.byte(d.base) + d.offset, size, max(d.swizzle, 1), "tile")
        case _:
            return


def tile_bytes(d: Descriptor, rows: int, k: int, itemsize: int) -> int:
    """Bytes from the first of a tile of ``rows`` x ``k`` elements to behind its last, before the swizzle."""
    return int(tile_offsets(rows, k, itemsize, d.swizzle, d.lbo, d.sbo, d.major).max()) + itemsize


def tile_offset(row: Expr, column: Expr, itemsize: int, swizzle: int, lbo: int, sbo: int, major: Major) -> Expr:
    """Bytes from the first element of a tile of ``wgmma`` to one of its elements, before the swizzle; ``column`` is along k.

    K-major: 8 rows of a span (of a core matrix of 16 bytes without a swizzle) follow each other, groups of 8 are ``sbo`` apart, core matrices along k
    ``lbo``. MN-major: 8 columns of k of a span of rows follow each other, groups of 8 along k are ``sbo`` apart, spans ``lbo``; without a swizzle the
    two offsets change places.
    """
    if major is Major.MN:
        n, (along, across) = (swizzle or CORE) // itemsize, (lbo, sbo) if swizzle else (sbo, lbo)
        return row % n * itemsize + row // n * along + column % ROWS * (swizzle or CORE) + column // ROWS * across
    if swizzle:
        return row % ROWS * swizzle + row // ROWS * sbo + column * itemsize
    return row % ROWS * CORE + row // ROWS * sbo + column * itemsize % CORE + column * itemsize // CORE * lbo


@cache
def tile_offsets(rows: int, k: int, itemsize: int, swizzle: int, lbo: int, sbo: int, major: Major) -> Ints:
    """The same for all elements of a tile: ``[rows, k]``."""
    offset = tile_offset(sym("row"), sym("column"), itemsize, swizzle, lbo, sbo, major)
    return np.asarray(evaluate(offset, {"row": np.arange(rows)[:, None], "column": np.arange(k)[None, :]}), np.int64)


def swizzled(places: Ints, span: int) -> Ints:
    """Bytes under a swizzle of ``span`` bytes, counted from a multiple of its period: 16-byte chunks of a span are exchanged, by the number of their line.

    128: [4:7) ^= [7:10), 64: [4:6) ^= [7:9), 32: [4] ^= [7] (PTX ISA, "Swizzling modes").
    """
    return places ^ (places // LINE % (span // CORE) * CORE if span > 1 else 0)


def swizzled_place(place: Expr, span: int) -> Expr:
    """The same of an expression."""
    if span <= 1:
        return place
    return place // LINE * LINE + xor(place % LINE // CORE, place // LINE % (span // CORE)) * CORE + place % CORE


def tile_elements(d: Descriptor, rows: int, k: int, itemsize: int, start: int) -> Ints:
    """The elements of a buffer that a tile touches which begins at byte ``start``."""
    places = start + tile_offsets(rows, k, itemsize, d.swizzle, d.lbo, d.sbo, d.major).reshape(-1)
    return np.unique(swizzled(places, max(d.swizzle, 1)) // itemsize)
