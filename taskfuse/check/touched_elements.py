"""The elements that threads of a launch access: in bounds of their buffer, and beginning at an aligned address."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from taskfuse.check.alignment import of_tile
from taskfuse.check.refuted import Refuted
from taskfuse.check.thread_values import ThreadValues
from taskfuse.check.tiles import BufferLayouts, tile_elements
from taskfuse.ir.medium import MEDIA
from taskfuse.ir.scalar import ZERO, Expr, evaluate
from taskfuse.ir.shared_layouts import swizzle_period
from taskfuse.ir.types import MemoryType
from taskfuse.kir import Kernel, stmt_text
from taskfuse.kir.declarations import TensorMapParam, TensorParam
from taskfuse.kir.nodes import Stmt
from taskfuse.kir.operands import Access, Descriptor
from taskfuse.kir.products import Wgmma
from taskfuse.target import TMA_BYTES, WARPGROUP

Ints = NDArray[np.int64]


class TouchedElements:
    """The layout of buffers and tensors in one launch.

    Attributes:
        memory: memory of buffers and outputs.
        sizes: bytes of an element.
        maps: the boxes of bulk copies.
    """

    def __init__(self, kernel: Kernel, symbols: Mapping[str, int], values: ThreadValues) -> None:
        self.values = values
        self._kernel = kernel
        self.memory = {b.name: b.memory for b in kernel.buffers} | {
            p.name: MemoryType.Global for p in kernel.params if isinstance(p, TensorParam) and (p.is_output or p.name in kernel.in_place.values())
        }
        storage = BufferLayouts.of(kernel)
        self._shapes, self.sizes, self.maps = storage.shapes, storage.sizes, storage.maps
        self._origins = places(kernel, symbols)
        self._extents: dict[str, tuple[int, ...]] = {}

    def shape(self, buffer: str) -> tuple[int, ...]:
        """The extents of a buffer or tensor."""
        found = self._extents.get(buffer)
        if found is None:
            found = self._extents[buffer] = tuple(int(evaluate(e, self.values.env)) for e in self._shapes[buffer])
        return found

    def elements(self, access: Access, ids: Ints, width: int = 1) -> Ints:
        """Row-major offsets of the first of ``width`` elements. Raises :class:`Refuted` outside the buffer."""
        place = np.zeros(len(ids), np.int64)
        for axis, (e, extent) in enumerate(zip(access.index, self.shape(access.buffer), strict=True)):
            values = self.values.of(e, ids)
            last = values + (width - 1 if axis == len(access.index) - 1 else 0)
            bad = (values < 0) | (last >= extent)
            if bad.any():
                t = int(ids[int(np.argmax(bad))])
                raise Refuted(
                    access.buffer,
                    f"index {last[bad][0] if values[bad][0] >= 0 else values[bad][0]} of axis {axis} is outside 0..{extent}",
                    f"thread {t}" + (f" in {self.values.role}" if self.values.role else ""),
                )
            place = place * extent + values
        return place

    def begin_at(self, stmt: Stmt, access: Access, ids: Ints, multiple: int, first: Ints | None = None, below: int = 1) -> None:
        """Raises :class:`Refuted` if an access, or ``first`` bytes past the beginning of its buffer, is not at a multiple of some bytes.

        Args:
            below: the greatest allowed remainder.
        """
        if not len(ids):
            return
        bytes_ = self._origins[access.buffer][1] + (self.elements(access, ids) * self.sizes[access.buffer] if first is None else first)
        behind = f", nor less than {below} behind one" if below > 1 else ""
        where = "Shared memory" if self.memory.get(access.buffer) is MemoryType.Shared else access.buffer
        what = f"of {where}, which is not a multiple of the {multiple} that it needs{behind}"
        self._check(stmt, access.buffer, ids, bytes_ % multiple >= below, bytes_, what)

    def _check(self, stmt: Stmt, buffer: str, ids: Ints, bad: NDArray[np.bool_], bytes_: Ints, what: str) -> None:
        """Raises :class:`Refuted` where ``bad``."""
        if bad.any():
            k = int(np.argmax(bad))
            who = f"thread {int(ids[k])}" + (f" in {self.values.role}" if self.values.role else "")
            raise Refuted(buffer, f"an access begins at byte {int(bytes_[k])} {what}", f"{who}: " + stmt_text(stmt, self._kernel))

    def box_in_shared(self, stmt: Stmt, access: Access, box: TensorMapParam, coords: tuple[Expr, ...], ids: Ints) -> Ints:
        """The first elements of boxes in Shared memory. Raises :class:`Refuted` if one does not fit, or is misaligned."""
        if 0 in self.shape(box.tensor):
            raise Refuted(box.tensor, "a transfer of an empty tensor: it has no map", f"thread {int(ids[0])}: " + stmt_text(stmt, self._kernel))
        first, size = self.elements(access, ids), self.sizes[access.buffer]
        bytes_ = int(np.prod(box.box)) * size
        whole = int(np.prod(self.shape(access.buffer))) * size
        ends = f"of {access.buffer}, and its box of {bytes_} bytes ends past the {whole} bytes of the buffer"
        self._check(stmt, access.buffer, ids, first * size + bytes_ > whole, first * size, ends)
        self.begin_at(stmt, access, ids, swizzle_period(box.swizzle))
        last = self.values.of(coords[-1], ids) * self.sizes[box.tensor]
        odd = f"of the last axis of {box.tensor}, which is not a multiple of {TMA_BYTES}"
        self._check(stmt, box.tensor, ids, last % TMA_BYTES != 0, last, odd)
        return first

    def tiles(self, stmt: Wgmma, d: Descriptor, rows: int, ids: Ints) -> list[Ints]:
        """The elements of tiles, of the first thread of each warpgroup. Raises :class:`Refuted` if one does not fit, or is misaligned."""
        size = self.sizes[d.base.buffer]
        start = self.elements(d.base, ids) * size + self.values.of(d.offset, ids)
        whole = int(np.prod(self.shape(d.base.buffer)))
        for need in of_tile(d, rows, stmt.k, ZERO, size):
            if need.begins:
                self.begin_at(stmt, d.base, ids, need.of, start, need.below)
            elif int(evaluate(need.bytes, {})) % need.of:
                raise Refuted(d.base.buffer, f"{need.what} is {need.bytes}, not a multiple of {need.of}", stmt_text(stmt, self._kernel))
        found: dict[int, Ints] = {}
        for at in np.unique(start).tolist():
            found[at] = tile_elements(d, rows, stmt.k, size, at)
            ends = f"of {d.base.buffer}, and its tile of {rows} x {stmt.k} elements reaches past the {whole * size} bytes of the buffer"
            self._check(stmt, d.base.buffer, ids, (start == at) & (at < 0 or int(found[at].max()) >= whole), start, ends)
        nothing = np.arange(0)
        return [found[at] if t % WARPGROUP == 0 else nothing for t, at in zip(ids.tolist(), start.tolist(), strict=True)]

    def boxes(self, box: TensorMapParam, coords: tuple[Expr, ...], ids: Ints) -> list[Ints]:
        """The elements of a tensor in the box of each thread."""
        at = np.stack([self.values.of(c, ids) for c in coords])
        return [self._box(box, at[:, k]) for k in range(len(ids))]

    def _box(self, box: TensorMapParam, at: Ints) -> Ints:
        shape = self.shape(box.tensor)
        lines = [o + np.arange(e) * step for o, e, step in zip(at.tolist(), box.box, box.step, strict=True)]
        grids = np.meshgrid(*(line[(line >= 0) & (line < n)] for line, n in zip(lines, shape, strict=True)), indexing="ij")
        place = np.zeros(grids[0].size, np.int64)
        for g, n in zip(grids, shape, strict=True):
            place = place * n + g.reshape(-1)
        return place


def places(kernel: Kernel, symbols: Mapping[str, int]) -> dict[str, tuple[str, int, int]]:
    """Address space, first byte and element size of every buffer; Shared ones in one space, those of clusters apart from them."""
    found: dict[str, tuple[str, int, int]] = {p.name: (p.into or p.name, 0, p.dtype.itemsize) for p in kernel.params if isinstance(p, TensorParam)}
    end = 0
    for b in kernel.buffers:
        found[b.name] = (b.name, 0, b.dtype.itemsize)
        if MEDIA[b.memory].is_placed:
            first = -(-end // b.align) * b.align if b.offset is None else int(evaluate(b.offset, symbols))
            end = max(end, first + int(evaluate(b.bytes_of_block, symbols)))
            if not MEDIA[b.memory].is_by_rank:
                found[b.name] = ("shared", first, b.dtype.itemsize)
    return found
