"""``relu(a @ b.T + bias)`` on the tensor cores of Hopper: the whole schedule by hand, with the calls that tf.schedulers.matmul makes.

A persistent kernel of three warpgroups. The role ``load`` starts bulk copies (TMA) of tiles of the operands into a ring in Shared memory. The
role ``consumer``, two warpgroups that share a tile of the result by rows, multiplies from the ring (wgmma, accumulators in registers), and stores
the tile in pieces of 64 x 64: bias, relu and rounding in registers, stmatrix to a small ring, bulk store. Meanwhile ``load``
fills the ring for the next tile.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P


def build(
    tile_m: int = 128, tile_n: int = 128, stages: int = 4, blocks: int = 4, group: int = 8, dtype: tf.DType = tf.bfloat16, *, dynamic: bool = False
) -> tf.Fusion:
    """``relu(a @ b.T + bias)`` of [M, K] and [N, K], with sums and bias in float32, rounded to bfloat16; rows are multiples of 16 bytes.

    Args:
        tile_m, tile_n: of the result, per block; 128 rows of two warpgroups, a multiple of 64 columns up to 256.
        stages: slots of the operands' ring.
        blocks: of the persistent grid: one for each multiprocessor.
        group: rows of tiles that are worked on together, for the L2 cache.
        dtype: of the operands: 16 bits, or an 8-bit float.
        dynamic: a block takes the next tile when it has finished one; else every ``blocks``-th.
    """
    tile_k, step = 128 // dtype.itemsize, 32 // dtype.itemsize  # rows of 128 bytes, of which an instruction takes 32
    warpgroups, piece = 2, 64
    with tf.Fusion("gemm") as fusion:
        a = tf.define_tensor(["M", tf.dim("K", multiple_of=16 // dtype.itemsize)], dtype=dtype, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), "K"], dtype=dtype, name="b")
        bias = tf.define_tensor(["N"], dtype=tf.float32, name="bias")
        acc = tf.matmul(a, b.T, dtype=tf.float32)  # b.T is a view: no code
        total = acc + bias
        positive = tf.relu(total)
        d = tf.cast(positive, tf.bfloat16)
        fusion.add_output(d)
    a_s, b_s = a.cache_after(), b.cache_after()  # operands: Global to Shared
    d_s = d.cache_before()  # the result: Shared to Global,
    d_r = d_s.cache_before()  # and registers to Shared
    bias_r = bias.cache_after()
    math = [total, positive, d_r]
    for tv in (a_s, b_s, d_s):
        tv.set_memory_type(MemoryType.Shared)

    # Tiles in the order of one work axis, distributed over the blocks; operands share the loop over k, too.
    acc.split(0, tile_m).split(2, tile_n).split(4, tile_k).reorder([0, 2, 1, 3, 4, 5])  # [mo, no, m, n, ko, k]
    acc.rasterize((0, 1), tf.tiles.grouped(group)).split(0, blocks)  # [wave, block, m, n, ko, k]
    if dynamic:
        acc.rasterize((1,), tf.tiles.dynamic())
    acc.axis(1).parallelize(P.BIDx)
    acc.propagate([bias_r, *math, d_s, d], upto=4)  # [wave, block, m, n]; bias has no m of its own
    acc.reorder({4: 2}).propagate([a_s, b_s], upto=3)  # [wave, block, ko, m or n, k]
    tf.parallelize_like(acc, [a_s, b_s, bias_r, *math, d_s, d])

    # Operands: bulk copies of rows of 128 bytes, swizzled as wgmma reads them.
    for tv in (a_s, b_s):
        tv.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(stages)
        tv.set_atom(atoms.TMA_LOAD, (3, 4))

    # The product: each warpgroup 64 rows; one batch of wgmma is in flight while the next is issued.
    acc.split(3, tile_m // warpgroups).split(-1, step).reorder({6: 4})  # [wave, block, ko, warpgroup, step, m64, n, k]
    acc.set_atom(atoms.wgmma(64, tile_n, step), (5, 6, 7))
    acc.axis(3).parallelize(P.TIDy)
    acc.axis(4).parallelize(P.Unroll)
    acc.in_flight(1)

    # The epilogue: pieces of 64 x 64, in registers as the tensor cores hold the sums.
    for tv in (bias_r, *math, d_s, d):
        tv.split(3, piece).split(2, tile_m // warpgroups).reorder({4: 3})  # [wave, block, warpgroup, piece, m64, n64]
        tv.axis(2).parallelize(P.TIDy)
        tv.axis(3).parallelize(P.Unroll)
    for tv in (bias_r, *math):
        tv.fragment((4, 5))
    bias_r.axis(-1).parallelize(P.Vectorize)
    d_s.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(2)
    d_s.split(5, 16).split(4, 16).reorder({6: 5})  # [..., m16: a warp, n16, 16, 16]
    d_s.axis(4).parallelize(P.TIDx)
    d_s.axis(5).parallelize(P.Unroll)
    d_s.set_atom(atoms.STMATRIX_X4, (6, 7))
    d.set_atom(atoms.TMA_STORE, (4, 5))

    a_s.inline_at(3)
    b_s.inline_at(3)
    acc.inline_at(2)
    bias_r.inline_at(9)
    total.inline_at(10)
    positive.inline_at(10)
    d_r.inline_at(4)
    d_s.inline_at(4)

    load, mma, epilogue = fusion.task([a_s, b_s], name="load"), fusion.task([acc], name="mma"), fusion.task([bias_r, *math, d_s, d], name="epilogue")
    consumer = fusion.group([mma, epilogue], name="consumer")  # one role: its tasks run in turn
    fusion.group([load, consumer], name="roles").parallelize(P.TIDy)
    load.registers()
    consumer.registers()
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    for m, n, k in ((256, 256, 128), (100, 136, 200), (1, 8, 8)):
        a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        bias = rng.standard_normal(n).astype(np.float32)
        (out,) = kernel.simulate(a, b, bias, seed=1)
        exact = np.maximum(a.astype(np.float64) @ b.astype(np.float64).T + bias, 0)
        ulp = np.exp2(np.floor(np.log2(np.maximum(exact, 2.0**-20))) - 7)  # of bfloat16
        print(f"{m} x {n} x {k}: largest difference from NumPy {np.max(np.abs(out.astype(np.float64) - exact) / ulp):.3f} ulp of bfloat16")


if __name__ == "__main__":
    main()
