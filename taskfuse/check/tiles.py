"""Boxes and tiles: which bytes of a Shared buffer one instruction of an engine accesses, from its first byte on.

A box of a bulk copy lies row-major from its first byte on. A tile of ``wgmma`` is what its descriptor's strides reach
(:mod:`taskfuse.ir.shared_layouts`). A swizzle permutes bytes only within aligned spans of its own size, so the bytes between two multiples of the
span stay there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from taskfuse.check.statement_tree import Node
from taskfuse.check.tables import distinct
from taskfuse.ir.scalar import Expr, const
from taskfuse.ir.shared_layouts import Ints, operand_offsets, swizzled
from taskfuse.kir import Kernel
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import TmaLoad, TmaStore
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import Wgmma


@dataclass(frozen=True, slots=True)
class TouchedBytes:
    """Bytes of a Shared buffer that one instruction accesses.

    Attributes:
        access: its first element; ``start``: its byte in the buffer.
        bytes: from there to the end of the last element.
        span: bytes of the swizzle, 1 without one.
        what: its name in messages.
    """

    access: Access
    start: Expr
    bytes: int
    span: int
    what: str


@dataclass(frozen=True, slots=True)
class BufferLayouts:
    """Shapes and element sizes of a kernel's buffers and tensors, and its tensor maps."""

    shapes: dict[str, tuple[Expr, ...]]
    sizes: dict[str, int]
    maps: dict[str, TensorMapParam]

    @staticmethod
    def of(kernel: Kernel) -> BufferLayouts:
        """The layouts of a kernel."""
        holders = [*(p for p in kernel.params if isinstance(p, TensorParam)), *kernel.buffers]
        maps = {p.name: p for p in kernel.params if isinstance(p, TensorMapParam)}
        return BufferLayouts({h.name: h.shape for h in holders}, {h.name: h.dtype.itemsize for h in holders}, maps)

    def byte(self, access: Access) -> Expr:
        """The byte offset of an element in its buffer."""
        return row_major(access.index, self.shapes[access.buffer]) * self.sizes[access.buffer]


def row_major(index: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """The row-major offset of an element."""
    place: Expr = const(0)
    for e, extent in zip(index, shape, strict=True):
        place = place * extent + e
    return place


def blocks(node: Node, storage: BufferLayouts) -> Iterator[TouchedBytes]:
    """The boxes and tiles of Shared memory that a statement accesses."""
    match node.stmt:
        case TmaLoad(out=access, map=name) | TmaStore(source=access, map=name):
            box = storage.maps[name]
            size = math.prod(box.box) * storage.sizes[access.buffer]
            yield TouchedBytes(access, storage.byte(access), size, max(box.swizzle, 1), "box")
        case Wgmma(a=a, b=b, n=n, k=k, row=row):
            for d, rows in ((a, row.m), (b, n)):
                if isinstance(d, Descriptor):
                    size = tile_bytes(d, rows, k, storage.sizes[d.base.buffer])
                    yield TouchedBytes(d.base, storage.byte(d.base) + d.offset, size, max(d.swizzle, 1), "tile")
        case _:
            return


def tile_bytes(d: Descriptor, rows: int, k: int, itemsize: int) -> int:
    """Bytes from the first of a tile of ``rows`` x ``k`` elements to the end of its last, before the swizzle."""
    return int(operand_offsets(rows, k, itemsize, d.swizzle, d.lbo, d.sbo, d.major).max()) + itemsize


def tile_elements(d: Descriptor, rows: int, k: int, itemsize: int, start: int) -> Ints:
    """The elements of a buffer in a tile that begins at byte ``start``."""
    places = start + operand_offsets(rows, k, itemsize, d.swizzle, d.lbo, d.sbo, d.major).reshape(-1)
    return distinct(swizzled(places, d.swizzle) // itemsize)
