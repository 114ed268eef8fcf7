"""``a @ b.T`` on the tensor cores of any GPU since Ampere, in one role: the threads fill their own pipeline ahead.

Four warps share a tile of the result, 64 x 64 each. All of them copy the tiles of the operands (``cp.async``), ``stages - 1`` steps along k ahead of
the product; within a step, they load the factors of the next instructions to registers (``ldmatrix``) while
the tensor cores compute the previous ones (``mma.sync``). Both are ``circular_buffer``: prologues, waits and slots are derived.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P

TILE, TILE_K, WARP_TILE, STEP = 128, 64, 64, 16


def build(stages: int = 3, registers: int = 2, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    """``a @ b.T`` of [M, K] and [N, K], summed in float32, rounded to ``dtype``; K is a multiple of 64, N one of 8.

    Args:
        stages: slots of the operands' rings in Shared memory.
        registers: slots of the factors' rings in registers.
        dtype: of the operands and the result: 16 bits.
    """
    with tf.Fusion("gemm_multistage") as fusion:
        a = tf.define_tensor(["M", tf.dim("K", multiple_of=TILE_K)], dtype=dtype, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), "K"], dtype=dtype, name="b")
        acc = tf.matmul(a, b.T, dtype=tf.float32)
        d = tf.cast(acc, dtype)
        fusion.add_output(d)
    rounded = d.cache_before()
    tiles = [a.cache_after(), b.cache_after()]  # Global to Shared
    factors = [tile.cache_after() for tile in tiles]  # Shared to registers

    acc.split(0, TILE).split(2, TILE).split(4, TILE_K).reorder([0, 2, 4, 1, 3, 5])  # [mo, no, ko, m, n, k]
    acc.axis(0).parallelize(P.BIDx)
    acc.axis(1).parallelize(P.BIDy)
    acc.propagate(tiles, upto=3)
    acc.propagate([rounded, d], upto=2)
    # A warp's part, in steps along k: [mo, no, ko, rows of warps, columns of warps, step, m16, n8, 16, 8, 16]
    acc.split(5, STEP).split(4, WARP_TILE).split(3, WARP_TILE).reorder([0, 1, 2, 3, 5, 7, 4, 6, 8])
    acc.propagate(factors, upto=6)
    acc.split(7, 8).split(6, 16).reorder([0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10])
    acc.set_atom(atoms.mma(16, 8, 16), (-3, -2, -1))
    for tv in (acc, *factors):
        tv.axis(3).parallelize(P.TIDy)
        tv.axis(4).parallelize(P.TIDz)
        tv.axis(5).parallelize(P.Unroll)
    for axis in (6, 7):
        acc.axis(axis).parallelize(P.Unroll)
    tf.parallelize_like(acc, [*tiles, *factors, rounded, d])

    for tile in tiles:  # 16 bytes of each of 128 threads at a time
        tile.set_memory_type(MemoryType.Shared)
        tile.set_allocation_domain(tf.layouts.swizzled(128))
        tile.split(4, 8).split(3, 16).split(4, 4).split(4, 2)  # [mo, no, ko, 8, 2, 2, 4, k8, 8]
        for axis, p in ((4, P.TIDz), (5, P.TIDy)):
            tile.axis(axis).parallelize(p)
        tile.merge(6)
        tile.axis(6).parallelize(P.TIDx)
        tile.set_atom(atoms.CP_ASYNC, (7,))
        tile.inline_at(3)
        tile.circular_buffer(stages)
    for factor in factors:
        factor.split(6, 16)
        factor.axis(6).parallelize(P.Unroll)
        factor.set_atom(atoms.LDMATRIX_X4, (7, 8))
        factor.inline_at(6)
        factor.circular_buffer(registers)
    factors[1].set_allocation_domain(tf.layouts.fragment(halves_first=True))

    for tv in (rounded, d):
        tv.split(3, WARP_TILE).split(2, 16).split(2, WARP_TILE // 16).reorder({5: 3})  # [mo, no, rows, columns, m16, 16, n64]
        tv.axis(2).parallelize(P.TIDy)
        tv.axis(3).parallelize(P.TIDz)
        tv.axis(4).parallelize(P.Unroll)
        tv.fragment((5, 6))
    d.axis(-1).parallelize(P.Vectorize)
    acc.inline_at(2)
    rounded.inline_at(5)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    for m, n, k in ((128, 128, 256), (100, 136, 192), (1, 8, 64)):
        a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        (out,) = kernel.simulate(a, b, seed=1)
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        ulp = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-20))) - 7)  # of bfloat16
        print(f"{m} x {n} x {k}: largest difference from NumPy {np.max(np.abs(out.astype(np.float64) - exact) / ulp):.3f} ulp of bfloat16")


if __name__ == "__main__":
    main()
