"""Matrix products of quad pairs: the kernels of "Automatic Kernel Generation for Volta Tensor Cores" (Bhaskaracharya et al., 2020), as schedules.

``mma.sync.m8n8k4`` multiplies an 8 x 4 by a 4 x 8 matrix in each of the four quad pairs of a warp. A macro-MMA is a few splits: quad pairs are two values
of the rows and two of the columns, so that a warp multiplies 16 x 8 by 8 x 16; with two tiles of each in a quad pair, 32 x 8 by 8 x 32. Around it are tiles
of blocks and warps, a strip-mined k, and k split between warps of a block, which combine their sums at the end. Operands go from Global memory to
registers, where a prologue computes, to swizzled Shared memory, to the fragments of the instructions, each ahead of its use; the result goes through
Shared memory, too, so that threads store 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse import MemoryType, TensorView, atoms
from taskfuse import ParallelType as P

CHUNK = 8
"""Elements of 16 bytes."""
WARP = 32


class Program(Enum):
    """What is computed around the product."""

    PLAIN = "a @ b"
    PROLOGUE = "relu(a) @ b"
    EPILOGUE = "relu(a @ b + bias)"
    ADD = "a @ b + c @ d"


@dataclass(frozen=True)
class Tiles:
    """How the work is divided.

    Attributes:
        block: rows, columns and terms of a step that the warps of a block share.
        warp: those of a warp. Warps divide the terms of a step where a block has more than a warp: split-K inside the block.
        macro: rows and columns of a macro-MMA, 16 or 32.
        ahead: slots of the rings in registers before Shared memory, in Shared memory, and of fragments.
    """

    block: tuple[int, int, int] = (128, 128, 32)
    warp: tuple[int, int, int] = (64, 64, 32)
    macro: int = 16
    ahead: tuple[int, int, int] = (1, 2, 2)

    @property
    def warps(self) -> tuple[int, int, int]:
        """Along the rows, the columns and the terms."""
        rows, columns, terms = (b // w for b, w in zip(self.block, self.warp, strict=True))
        return rows, columns, terms


SMALL = Tiles((32, 32, 16), (16, 16, 16))
"""Tiles to look at."""


@dataclass(frozen=True)
class Factor:
    """An operand on its way from Global memory to the instructions.

    Attributes:
        read: in registers, as Global memory has it.
        made: in registers, after the prologue; ``read`` if there is none.
        tile: in Shared memory.
        held: in registers, as fragments.
        is_left: A, not B.
        along_k: terms are contiguous: A is row-major, B column-major.
    """

    read: TensorView
    made: TensorView
    tile: TensorView
    held: TensorView
    is_left: bool
    along_k: bool

    @property
    def copies(self) -> tuple[TensorView, ...]:
        """What stands before the fragments."""
        return (self.read, self.tile) if self.made is self.read else (self.read, self.made, self.tile)


def build(
    program: Program = Program.PLAIN, a: str = "row", b: str = "col", tiles: Tiles = SMALL, atom: atoms.Atom | None = None, dtype: tf.DType = tf.float16
) -> tf.Fusion:
    """``a @ b`` of [M, K] and [K, N], summed in float32, rounded to ``dtype``; extents are multiples of the block's tile.

    Args:
        a, b: "row" or "col": an operand that is column-major is the transpose of what is given.
        atom: the instruction that multiplies; ``None``: ``mma(8, 8, 4, a, b)``.
    """
    atom = atom or atoms.mma(8, 8, 4, a, b)
    rows, columns, terms = (tf.dim(name, multiple_of=n) for name, n in zip("MNK", tiles.block, strict=True))
    products = [("a", "b"), ("c", "d")] if program is Program.ADD else [("a", "b")]
    with tf.Fusion("gemm_quad_pairs") as fusion:
        inputs = [
            (
                tf.define_tensor([rows, terms] if a == "row" else [terms, rows], dtype=dtype, name=left),
                tf.define_tensor([terms, columns] if b == "row" else [columns, terms], dtype=dtype, name=right),
            )
            for left, right in products
        ]
        made = [(tf.relu(left) if program is Program.PROLOGUE else left, right) for left, right in inputs]
        sums = [tf.matmul(x if a == "row" else x.T, y if b == "row" else y.T, dtype=tf.float32) for x, y in made]
        wide: list[TensorView] = []
        bias = None
        if program is Program.ADD:
            wide = [sums[0] + sums[1]]
        elif program is Program.EPILOGUE:
            bias = tf.cast(tf.define_tensor([columns], dtype=dtype, name="bias"), tf.float32)
            wide = [sums[0] + bias]
            wide.append(tf.relu(wide[0]))
        result = tf.cast((sums + wide)[-1], dtype)
        fusion.add_output(result)
    chunks = result.cache_before()  # in registers, 16 bytes each
    turned = chunks.cache_before()  # in Shared memory
    rounded = turned.cache_before()  # in registers, as the sums
    schedule = Schedule(fusion, tiles, atom, a == "row", b == "col")
    factors = [
        [
            schedule.factor(given, after, is_left, along_k)
            for given, after, is_left, along_k in zip(before, later, (True, False), (a == "row", b == "col"), strict=True)
        ]
        for before, later in zip(inputs, made, strict=True)
    ]
    for acc, of in zip(sums, factors, strict=True):
        schedule.product(acc, of, [*wide, rounded, turned, chunks, result])
    schedule.epilogue(sums, wide, rounded, turned, chunks, result)
    if bias is not None:
        wide[0].propagate([bias])
        tf.parallelize_like(wide[0], [bias])
        fusion.inline_most([bias])
    return fusion


@dataclass(frozen=True)
class Schedule:
    """The scheduling calls; ``along_k`` says of A and B whether their terms are contiguous."""

    fusion: tf.Fusion
    tiles: Tiles
    atom: atoms.Atom
    along_k_a: bool
    along_k_b: bool

    @property
    def is_of_pairs(self) -> bool:
        """Whether quad pairs execute the atom."""
        return self.atom.units > 1

    def factor(self, given: TensorView, made: TensorView, is_left: bool, along_k: bool) -> Factor:
        """The copies of an operand."""
        read = given.cache_after()
        tile = (read if made is given else made).cache_after()
        return Factor(read, read if made is given else made, tile, tile.cache_after(), is_left, along_k)

    def product(self, acc: TensorView, factors: list[Factor], after: list[TensorView]) -> None:
        """The loops of a product: blocks, steps, warps, strips of k, macro-MMAs, instructions."""
        tiles, (m, n, k) = self.tiles, self.atom.tile or (0, 0, 0)
        strip = 2 * k if self.is_of_pairs else k
        for axis, size in ((0, tiles.block[0]), (2, tiles.block[1]), (4, tiles.block[2])):
            acc.split(axis, size)
        acc.reorder([0, 2, 4, 1, 3, 5])  # [mo, no, ko, m, n, k]
        acc.axis(0).parallelize(P.BIDx)
        acc.axis(1).parallelize(P.BIDy)
        acc.propagate([copy for factor in factors for copy in factor.copies], upto=3)
        if not after[0].schedule.transforms:
            acc.propagate(after, upto=2)
        pairs = 2 if self.is_of_pairs else 1
        acc.split(5, strip).split(5, tiles.warp[2] // strip)
        acc.split(4, tiles.warp[1]).split(5, tiles.macro).split(6, tiles.macro // pairs)
        acc.split(3, tiles.warp[0]).split(4, tiles.macro).split(5, tiles.macro // pairs)
        # from [mo, no, ko | mw, mi, mq, m | nw, ni, nq, n | kw, ks, k] to [mo, no, ko, kw, mw, nw, ks, mq, nq, mi, ni, m, n, k]
        acc.reorder([0, 1, 2, 11, 3, 7, 12, 5, 9, 4, 8, 6, 10, 13])
        acc.propagate([factor.held for factor in factors], upto=9)
        self.tiles_of_a_pair(acc, 12, n, self.along_k_b)
        self.tiles_of_a_pair(acc, 11, m, self.along_k_a)
        acc.split(15, k).reorder([*range(9), 15, 9, 11, 10, 13, 12, 14, 16])  # [..., strip, mi, mt, ni, nt, m, n, k]
        acc.set_atom(self.atom, (-3, -2, -1))
        for tv in (acc, *(factor.held for factor in factors)):
            for axis, p in ((0, P.BIDx), (1, P.BIDy), (3, P.TIDz), (4, P.TIDy), (5, P.TIDy), (6, P.Unroll)):
                tv.axis(axis).parallelize(p)
        for axis in (7, 8):
            acc.axis(axis).parallelize(P.TIDx if self.is_of_pairs else P.Unroll)
        for axis in range(9, 14):
            acc.axis(axis).parallelize(P.Unroll)
        acc.inline_at(2)
        for factor in factors:
            self.fill(factor)
            self.hold(factor)
        tf.parallelize_like(acc, [copy for factor in factors for copy in factor.copies])

    def tiles_of_a_pair(self, tv: TensorView, axis: int, size: int, along_k: bool) -> None:
        """Rows or columns of a quad pair (or a warp) as [tile, size of the instruction].

        Where they are contiguous in memory, a lane holds as many as a vector has: those of its half of every tile, one tile after the other.
        """
        if along_k or not self.is_of_pairs:
            tv.split(axis, size)
        else:
            tv.split(axis, self.tiles.macro // 4).split(axis + 1, size // 2).reorder({axis: axis + 1}).merge(axis + 1)

    def fill(self, factor: Factor) -> None:
        """From Global memory to swizzled Shared memory: 16 bytes of every thread at a time, a step ahead."""
        rows, columns, terms = self.tiles.warps
        width = self.tiles.block[2 if factor.along_k else 0 if factor.is_left else 1]
        factor.tile.set_memory_type(MemoryType.Shared)
        factor.tile.set_allocation_domain(tf.layouts.swizzled(min(2 * width, 128)))
        for copy in factor.copies:
            copy.split(4, CHUNK).merge(3).split(3, WARP).split(3, rows * columns).split(3, terms)  # [mo, no, ko, trips, z, y, x, 8]
            for axis, p in ((3, P.Unroll), (4, P.TIDz), (5, P.TIDy), (6, P.TIDx)):
                copy.axis(axis).parallelize(p)
            copy.axis(7).parallelize(P.Unroll if copy is factor.made and copy is not factor.read else P.Vectorize)
            copy.inline_at(3)
        if factor.made is not factor.read:
            factor.made.inline_at(4)
        for copy, slots in zip((factor.read, factor.tile), self.tiles.ahead, strict=False):
            if slots > 1:
                copy.circular_buffer(slots)

    def hold(self, factor: Factor) -> None:
        """From Shared memory to fragments, a strip ahead. Here [..., ks, mq, nq] are followed by rows and terms in the order of memory."""
        held = factor.held
        if not self.is_of_pairs:
            if not factor.along_k:
                held.reorder({9: 11})
            held.axis(9).parallelize(P.Unroll)
            held.set_atom(atoms.LDMATRIX_X4, (10, 11))
            if not factor.is_left:
                held.set_allocation_domain(tf.layouts.fragment(halves_first=True))
        elif factor.along_k:
            held.split(10, CHUNK).split(11, 4)  # [..., tiles, tile, half, quad, k]
            held.reorder([*range(7), 11, 7, 8, 12, 9, 10, 13])
        else:
            held.split(9, 4).split(12, self.tiles.macro // 4)  # [..., strip, quad, tiles, half, rows of a lane]
            held.reorder([*range(7), 12, 7, 8, 10, 9, 11, 13])
        if self.is_of_pairs:
            for axis, p in ((7, P.TIDx), (8, P.TIDx), (9, P.TIDx), (10, P.TIDx), (11, P.Unroll), (12, P.Unroll), (13, P.Vectorize)):
                held.axis(axis).parallelize(p)
        held.inline_at(7)
        held.circular_buffer(self.tiles.ahead[2])

    def epilogue(self, sums: list[TensorView], wide: list[TensorView], rounded: TensorView, turned: TensorView, chunks: TensorView, result: TensorView) -> None:
        """From the sums through Shared memory to Global memory."""
        tiles, (m, n, _) = self.tiles, self.atom.tile or (0, 0, 0)
        pairs = 2 if self.is_of_pairs else 1
        turned.set_memory_type(MemoryType.Shared)
        turned.set_allocation_domain(tf.layouts.padded(CHUNK))
        for tv in (*wide, rounded, turned):
            tv.split(3, tiles.warp[1]).split(4, tiles.macro).split(5, tiles.macro // pairs)
            tv.split(2, tiles.warp[0]).split(3, tiles.macro).split(4, tiles.macro // pairs)
            self.tiles_of_a_pair(tv, 9, n, self.along_k_b)
            self.tiles_of_a_pair(tv, 5, m, self.along_k_a)
            # from [mo, no | mw, mi, mq, mt, m | nw, ni, nq, nt, n] to [mo, no, mw, nw, mi, mt, ni, nt, mq, nq, m, n]
            tv.reorder([0, 1, 2, 7, 3, 5, 8, 10, 4, 9, 6, 11])
            for axis, p in ((2, P.TIDy), (3, P.TIDy), *((axis, P.Unroll) for axis in range(4, 8))):
                tv.axis(axis).parallelize(p)
            tv.fragment((8, 9, 10, 11) if self.is_of_pairs else (10, 11), self.atom)
            for axis in (-3, -2, -1):
                tv.axis(axis).parallelize(P.Unroll)
        rows, columns, terms = tiles.warps
        for tv in (chunks, result):
            tv.split(3, CHUNK).merge(2).split(2, WARP).split(2, rows * columns).split(2, terms)  # [mo, no, trips, z, y, x, 8]
            for axis, p in ((3, P.TIDz), (4, P.TIDy), (5, P.TIDx), (6, P.Vectorize)):
                tv.axis(axis).parallelize(p)
        tf.parallelize_like(sums[0], [*wide, rounded, turned, chunks, result])
        self.fusion.inline_most([*wide, rounded])
        turned.inline_at(2)
        chunks.inline_at(3)


def main() -> None:
    """Print a loop nest, simulate every program on small integers, and print the difference from NumPy."""
    print(tf.lower(build()))
    rng = np.random.default_rng()
    m, n, k = 32, 64, 32
    for program in Program:
        x, y = (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (n, k)))
        bias = rng.integers(-4, 5, n).astype(np.float16)
        more = {Program.EPILOGUE: [bias], Program.ADD: [x, y]}.get(program, [])
        (out,) = tf.lower(build(program)).simulate(x, y, *more, seed=1)
        exact = expected(program, x.astype(np.float64), y.astype(np.float64).T, bias)
        print(f"{program.value}: largest difference from NumPy {np.max(np.abs(out.astype(np.float64) - exact)):g}")


def expected(program: Program, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], bias: npt.NDArray[np.float16]) -> npt.NDArray[np.float64]:
    """The same in float64; the second product of a sum is of the same operands."""
    match program:
        case Program.PROLOGUE:
            return np.maximum(x, 0) @ y
        case Program.EPILOGUE:
            return np.maximum(x @ y + bias, 0)
        case _:
            return x @ y * (2 if program is Program.ADD else 1)


if __name__ == "__main__":
    main()
