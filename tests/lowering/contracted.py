"""Products by wgmma, scheduled by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse import DType, Fusion, Kernel, MemoryType, TensorView, atoms
from taskfuse import ParallelType as P

Array = npt.NDArray[Any]


SHARED = MemoryType.Shared


def product(a_shape: tuple[int, int], b_shape: tuple[int, int], dtype: DType, majors: str, result: DType, out: DType) -> tuple[Fusion, TensorView]:
    """``d = a @ b.T`` with a [M, K] and b [N, K]; ``majors``: K or M (the rows are contiguous) for each operand."""
    with Fusion("product") as fusion:
        a = tf.define_tensor(a_shape if majors[0] == "K" else a_shape[::-1], dtype=dtype, name="a")
        b = tf.define_tensor(b_shape if majors[1] == "K" else b_shape[::-1], dtype=dtype, name="b")
        acc = tf.matmul(a if majors[0] == "K" else a.T, b.T if majors[1] == "K" else b, dtype=result)
        fusion.add_output(tf.copy(acc) if out is result else tf.cast(acc, out))
    return fusion, acc


def by_tiles(
    dtype: DType,
    majors: str = "KK",
    result: DType = tf.float32,
    out: DType = tf.float32,
    *,
    late: int = 0,
    stages: int = 2,
    n: int = 64,
    shape: tuple[int, int, int] = (128, 128, 0),
) -> Fusion:
    """One role loads tiles by bulk copies, one or two warpgroups multiply them and store from registers."""
    k = 32 // dtype.itemsize
    depth = shape[2] or 8 * k
    fusion, acc = product((shape[0], depth), (shape[1], depth), dtype, majors, result, out)
    d = fusion.outputs[0]
    tiles = [tv.cache_after() for tv in fusion.inputs]
    for tile in tiles:
        tile.set_memory_type(SHARED)
    acc.split(0, 128).split(2, n).split(4, 4 * k).reorder([0, 2, 4, 1, 3, 5])  # [mo, no, ko, m, n, k]
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(1).parallelize(P.BIDy)
    acc.propagate(tiles, upto=3)
    acc.propagate([d], upto=2)
    tf.parallelize_like(acc, [*tiles, d])
    for tile, major in zip(tiles, majors, strict=True):
        if major != "K":
            tile.split(4, 64).reorder([0, 1, 2, 4, 3, 5])  # a box has rows of 128 bytes
        tile.set_allocation_domain(tf.layouts.swizzled(128))
        tile.set_atom(atoms.TMA_LOAD, (-2, -1))
        tile.circular_buffer(stages)
    acc.split(3, 64).split(-1, k).reorder([0, 1, 2, 3, 6, 4, 5, 7])
    acc.set_atom(atoms.wgmma(64, n, k), (-3, -2, -1))
    acc.axis(3).parallelize(P.TIDy)
    acc.axis(4).parallelize(P.Unroll)
    acc.in_flight(late)
    d.split(2, 64).fragment((3, 4))
    d.axis(2).parallelize(P.TIDy)
    for tile in tiles:
        tile.inline_at(3)
    acc.inline_at(2)
    fusion.group([fusion.task(tiles, name="load"), fusion.task([acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def through_registers(stages: int = 2, k: int = 128, shared: int = 3, slots: int = 1, steps: int = 2, late: int = 1) -> Fusion:
    """relu(a) @ b.T: the first factor goes from Shared memory through registers, where it is changed, to wgmma.

    Args:
        shared: loops around the ring in Shared memory.
        slots: of a ring in registers, each for ``steps`` of the four products along k in a slot of the other ring.
        late: batches that may hold slots in registers while the next one is filled.
    """
    with Fusion("registers") as fusion:
        a, b = (tf.define_tensor([128, k], dtype=tf.bfloat16, name=name) for name in "ab")
        changed = tf.relu(a)
        acc = tf.matmul(changed, b.T, dtype=tf.float32)
        d = tf.copy(acc)
        fusion.add_output(d)
    a_s, b_s = a.cache_after(), b.cache_after()
    a_r = a_s.cache_after()
    acc.split(0, 64).split(2, 64).split(4, 64).reorder([0, 2, 4, 1, 3, 5])
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(1).parallelize(P.BIDy)
    acc.propagate([a_s, b_s, a_r, changed], upto=3)
    acc.propagate([d], upto=2)
    tf.parallelize_like(acc, [a_s, b_s, a_r, changed, d])
    for tile in (a_s, b_s):
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(stages)
        tile.set_atom(atoms.TMA_LOAD, (3, 4))
    acc.split(-1, 16).reorder([0, 1, 2, 5, 3, 4, 6])
    a_r.split(4, 16).split(3, 16).reorder([0, 1, 2, 5, 3, 4, 6])  # [mo, no, ko, step, warp, 16, 16]
    changed.split(4, 16).reorder([0, 1, 2, 4, 3, 5])
    step = 3
    if slots > 1:
        for tv in (acc, a_r, changed):
            tv.split(3, steps)
            tv.axis(3).parallelize(P.Unroll)
        changed.circular_buffer(slots)
        step = 4
    for tv in (acc, a_r, changed):
        tv.axis(step).parallelize(P.Unroll)
    acc.set_atom(atoms.wgmma(64, 64, 16), (-3, -2, -1))
    acc.in_flight(late if slots > 1 else 0)
    a_r.axis(step + 1).parallelize(P.TIDx)
    a_r.set_atom(atoms.LDMATRIX_X4, (step + 2, step + 3))
    changed.fragment((step + 1, step + 2))
    d.fragment((2, 3))
    for tv in (a_s, b_s):
        tv.inline_at(shared)
    for tv in (a_r, changed):
        tv.inline_at(3 + (slots > 1) if shared == 3 else 2)
    acc.inline_at(2)
    fusion.group([fusion.task([a_s, b_s], name="load"), fusion.task([a_r, changed, acc, d], name="mma")], name="roles").parallelize(P.TIDy)
    return fusion


def registers_in_one_role(stages: int) -> Fusion:
    """The first factor goes through registers, which each step along k loads again; the role that multiplies copies the tiles, too."""
    with Fusion("one_role") as fusion:
        a, b = (tf.define_tensor([64, 80], dtype=tf.bfloat16, name=name) for name in "ab")
        acc = tf.matmul(a, b.T, dtype=tf.float32)
        d = tf.copy(acc)
        fusion.add_output(d)
    tiles = [a.cache_after(), b.cache_after()]
    a_r = tiles[0].cache_after()
    acc.split(2, 16).reorder([2, 0, 1, 3])
    acc.propagate([*tiles, a_r], upto=1)
    acc.set_atom(atoms.wgmma(64, 64, 16), (1, 2, 3))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.swizzled(32))
        tile.split(1, 32)
        tile.axis(2).parallelize(P.TIDx)
        tile.circular_buffer(stages)
        tile.inline_at(1)
    a_r.split(1, 16)
    a_r.axis(1).parallelize(P.TIDx)
    a_r.set_atom(atoms.LDMATRIX_X4, (2, 3))
    a_r.inline_at(1)
    d.fragment((0, 1))
    return fusion


def by_warps(dtype: DType = tf.bfloat16, warps: int = 2, padding: int = 0) -> Fusion:
    """ldmatrix and mma.sync: all warps load a tile, then each multiplies 16 rows of it; ``padding``: places between the rows of a tile."""
    fusion, acc = product((64, 64), (32, 64), dtype, "KK", tf.float32, tf.float32)
    d = fusion.outputs[0]
    tiles = [tv.cache_after() for tv in fusion.inputs]
    factors = [tile.cache_after() for tile in tiles]
    acc.split(0, 16 * warps).split(2, 16).split(4, 32).reorder([0, 2, 4, 1, 3, 5])
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(1).parallelize(P.BIDy)
    acc.propagate(tiles, upto=3)
    acc.propagate([d], upto=2)
    acc.split(5, 16).split(4, 8).split(3, 16).reorder([0, 1, 2, 3, 7, 5, 4, 6, 8])  # [mo, no, ko, warp, step, n/8, 16, 8, 16]
    acc.propagate(factors, upto=5)
    acc.set_atom(atoms.mma(16, 8, 16), (-3, -2, -1))
    acc.axis(5).parallelize(P.Unroll)
    for tv in (acc, *factors):
        tv.axis(3).parallelize(P.TIDy)
        tv.axis(4).parallelize(P.Unroll)
    tf.parallelize_like(acc, [*tiles, *factors, d])
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.set_allocation_domain(tf.layouts.padded(padding))
        tile.merge(3, 4).split(3, 8).split(3, 32).split(3, warps)
        for axis, p in ((4, P.TIDy), (5, P.TIDx), (6, P.Serial if padding % 8 else P.Vectorize)):
            tile.axis(axis).parallelize(p)
        tile.inline_at(3)
    for factor in factors:
        factor.set_atom(atoms.LDMATRIX_X4, (5, 6))
        factor.inline_at(5)
    factors[1].set_allocation_domain(tf.layouts.fragment(halves_first=True))
    d.split(2, 16).fragment((3, 4))
    d.axis(2).parallelize(P.TIDy)
    acc.inline_at(2)
    return fusion


F32, BF16 = tf.float32, tf.bfloat16


CASES: dict[str, Callable[[], Fusion]] = {
    **{f"wgmma {d}": lambda d=d: by_tiles(d) for d in (tf.bfloat16, tf.float16, tf.float8_e4m3, tf.float8_e5m2, tf.float32)},
    "wgmma int8": lambda: by_tiles(tf.int8, result=tf.int32, out=tf.int32),
    "wgmma cast": lambda: by_tiles(tf.float16, out=tf.float16),
    **{f"wgmma {m}": lambda m=m: by_tiles(BF16, m) for m in ("KM", "MK", "MM")},
    **{f"wgmma late {k} of {s}": lambda k=k, s=s: by_tiles(BF16, late=k, stages=s, shape=(128, 64, 320)) for k, s in ((1, 2), (1, 4), (2, 3), (2, 4))},
    **{f"wgmma n{n}": lambda n=n: by_tiles(BF16, n=n) for n in (8, 32, 128)},
    "wgmma of remainders": lambda: by_tiles(BF16, shape=(100, 72, 88)),
    "wgmma of padded remainders": lambda: padded_remainder(),
    "wgmma from registers": through_registers,
    "wgmma from a ring in registers": lambda: through_registers(slots=2),
    **{f"wgmma from registers, one tile under {n} loops": lambda n=n: through_registers(1, 64, n) for n in (0, 1, 2)},
    **{f"wgmma from registers in one role, {n} slots": lambda n=n: registers_in_one_role(n) for n in (1, 2, 3)},
    "mma.sync": by_warps,
    "mma.sync of padded rows": lambda: by_warps(padding=8),
    "mma.sync float16": lambda: by_warps(tf.float16, warps=4),
}


@cache
def lowered(name: str) -> tuple[Fusion, Kernel]:
    """A case and its kernel."""
    fusion = CASES[name]()
    return fusion, tf.lower(fusion)


def factors(fusion: Fusion, seed: int) -> list[Array]:
    """Small numbers, whose products and sums are exact."""
    rng = np.random.default_rng(seed)
    scale = 1 if fusion.inputs[0].dtype is tf.int8 else 2
    return [(rng.integers(-4, 5, [int(str(e)) for e in tv.shape]) / scale).astype(tv.dtype.numpy) for tv in fusion.inputs]


def padded_remainder(computed: bool = False, inlined: bool = True) -> Fusion:
    """The reduction ends inside a step, and threads copy its tiles.

    Args:
        computed: one of the factors is a function, which need not be 0 where its operand is.
        inlined: each step has tiles of its own, with room past the end.
    """
    with Fusion("remainder") as fusion:
        a, b = (tf.define_tensor([64, 40], dtype=BF16, name=name) for name in "ab")
        tiles = [tf.exp(a) if computed else tf.copy(a), tf.copy(b)]
        acc = tf.matmul(tiles[0], tiles[1].T, dtype=F32)
        d = tf.copy(acc)
        fusion.add_output(d)
    acc.split(2, 16).reorder([2, 0, 1, 3])
    acc.propagate(tiles, upto=1)
    acc.set_atom(atoms.wgmma(64, 64, 16), (1, 2, 3))
    for tile in tiles:
        tile.set_memory_type(SHARED)
        tile.split(1, 32)
        tile.axis(2).parallelize(P.TIDx)
        tile.set_allocation_domain(tf.layouts.swizzled(32) if inlined else tf.layouts.rowmajor())
        tile.inline_at(1 if inlined else 0)
    d.fragment((0, 1))
    return fusion
