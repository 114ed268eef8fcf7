"""Contractions of tensor cores whose reduced axis is spread over threads and blocks."""

from __future__ import annotations

from dataclasses import dataclass

import taskfuse as tf
from taskfuse import DType, Fusion, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P

INDICES = (P.BIDx, P.BIDz, P.TIDx, P.TIDy, P.TIDz, P.CIDx)


@dataclass(frozen=True)
class Product:
    """``d = a @ b.T (+ bias)`` by an atom, with the tiles of k spread over an index.

    Attributes:
        along: the index; the tiles of k are split into [parts, rest] over it.
        parts: how many of its values get a part.
        tiles: of k.
        rows, columns: tiles of the result.
        n: columns of a tile.
        order: of [rows, part, step, columns], outermost first.
        rows_on: the index of the tiles of rows.
    """

    atom: str
    along: P
    parts: int = 2
    tiles: int = 0
    rows: int = 1
    columns: int = 1
    n: int = 16
    dtype: DType = tf.bfloat16
    bias: bool = False
    order: tuple[int, int, int, int] = (0, 1, 2, 3)
    rows_on: P = P.Serial
    inner: bool = False

    def fusion(self) -> Fusion:
        """The fusion with its schedule."""
        height, k = (64, 32 // self.dtype.itemsize) if self.atom == "wgmma" else (16, 32 // self.dtype.itemsize)
        depth = k if self.atom == "mma" else 4 * k
        tiles = self.tiles or self.parts
        wide = tf.float32 if self.dtype.is_float else tf.int32
        with Fusion("product") as fusion:
            a = tf.define_tensor([height * self.rows, depth * tiles], dtype=self.dtype, name="a")
            b = tf.define_tensor([self.n * self.columns, depth * tiles], dtype=self.dtype, name="b")
            acc = tf.matmul(a, b.T, dtype=wide)
            c = tf.define_tensor([self.n * self.columns], dtype=wide, name="c") if self.bias else None
            d = tf.copy(acc) if c is None else acc + tf.broadcast_to(tf.expand_dims(c, (0,)), acc.shape)
            fusion.add_output(d)
        n = self.n if self.atom == "wgmma" else 8
        acc.split(0, height).split(2, self.n).split(4, depth).split(4, self.parts, inner=self.inner)  # [rows, m, columns, n, part, step, k]
        part, step = (5, 4) if self.inner else (4, 5)
        if self.atom == "wgmma":
            acc.split(6, k).reorder([*((0, part, step, 2)[at] for at in self.order), 6, 1, 3, 7])
            acc.set_atom(atoms.wgmma(64, n, k), (-3, -2, -1))
        else:
            acc.split(3, n).reorder([*((0, part + 1, step + 1, 2)[at] for at in self.order), 3, 1, 4, 7])
            acc.set_atom(atoms.mma(16, n, k), (-3, -2, -1))
        acc.axis(4).parallelize(P.Unroll)
        for axis, p in ((self.order.index(1), self.along), (self.order.index(0), self.rows_on)):
            acc.axis(axis).parallelize(p)
        (self._by_warps if self.atom == "mma" else self._by_warpgroups)(a, b, k)
        d.split(0, height).split(2, self.n).reorder([0, 2, 1, 3]).fragment((2, 3))
        d.axis(0).parallelize(self.rows_on)
        return fusion

    def _by_warpgroups(self, a: TensorView, b: TensorView, k: int) -> None:
        for tile in (a.cache_after(), b.cache_after()):
            tile.set_memory_type(MemoryType.Shared)
            tile.split(1, 4 * k).reorder([1, 0, 2])
            tile.set_allocation_domain(tf.layouts.swizzled(128))
            tile.split(1, 16).axis(2).parallelize(P.TIDx)

    def _by_warps(self, a: TensorView, b: TensorView, k: int) -> None:
        step = P.Unroll
        for source, rows in ((a, self.rows_on), (b, P.Unroll)):
            tile = source.cache_after()
            tile.set_memory_type(MemoryType.Shared)
            tile.split(0, 16).axis(1).parallelize(P.TIDx)
            factor = tile.cache_after()
            factor.split(0, 16).split(2, k).split(2, self.parts, inner=self.inner)  # [rows, 16, part, step, k]
            part, rest = (3, 2) if self.inner else (2, 3)
            factor.reorder([part, 0, rest, 1, 4] if self.order.index(1) < self.order.index(0) else [0, part, rest, 1, 4])
            at = 0 if self.order.index(1) < self.order.index(0) else 1
            for axis, p in ((at, self.along), (1 - at, P.Unroll if rows is P.Serial else rows), (2, step)):
                factor.axis(axis).parallelize(p)
            factor.set_atom(atoms.LDMATRIX_X4, (-2, -1))
            if source is b:
                factor.set_allocation_domain(tf.layouts.fragment(halves_first=True))


CASES = {
    "several tiles of a thread": Product("wgmma", P.BIDz, rows=2, columns=2, bias=True),
    "several tiles of a warp": Product("mma", P.TIDy, rows=2, columns=2, bias=True),
    "parts outside the tiles": Product("wgmma", P.TIDy, rows=2, columns=2, order=(1, 0, 3, 2)),
    "more registers than have room at once": Product("wgmma", P.TIDy, n=64),
    "integers": Product("wgmma", P.TIDz, dtype=tf.int8, n=32, tiles=4),
    "integers of other blocks": Product("wgmma", P.CIDx, dtype=tf.int8, n=32, tiles=5, bias=True),
    "rows on blocks": Product("mma", P.BIDy, rows=3, rows_on=P.BIDx, tiles=4, inner=True),
    "rows on the same index, inside": Product("wgmma", P.TIDy, rows=2, rows_on=P.TIDy, order=(1, 0, 2, 3)),
    "rows on the same index, inside, of blocks": Product("wgmma", P.BIDx, rows=2, rows_on=P.BIDx, tiles=3, order=(1, 0, 2, 3)),
    "an uneven number of steps": Product("wgmma", P.BIDz, parts=3, tiles=5),
    "steps outside the parts": Product("wgmma", P.TIDy, parts=2, tiles=5, order=(2, 1, 0, 3), inner=True),
    "parts without a step": Product("wgmma", P.BIDz, parts=4, tiles=5),
    "threads without a step": Product("wgmma", P.TIDy, parts=4, tiles=5),
    "warpgroups of one index": Product("wgmma", P.TIDx, parts=2, tiles=3),
    "warpgroups of one index without a step": Product("wgmma", P.TIDx, parts=4, tiles=5),
}
UNEVEN = ("steps outside the parts", "threads without a step", "warpgroups of one index", "warpgroups of one index without a step")
"""Of threads whose parts have other numbers of steps."""
