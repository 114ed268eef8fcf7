"""Products of 8-bit floats with scales for blocks of 128 elements of k, on the tensor cores of Hopper: the whole schedule by hand.

``a [M, K]`` has a scale for each row and block, ``b [N, K]`` one for each 128 rows and block; N and K are multiples of 128. The products of a block are
summed in the accumulators of the tensor cores, which restart with each block; multiplied by the scales, they are added to float32 sums in registers of
the same layout. The role ``load`` loads the factors and, in a separate ring, the scales of a tile's rows, by bulk copies (TMA). The scale of a tile's
columns, one value, is loaded directly to registers, before the wait for its product. The rest is as in ``gemm.py``.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P

BLOCK = 128


def build(tile_m: int = 128, tile_n: int = 128, stages: int = 4, blocks: int = 4, group: int = 8) -> tf.Fusion:
    """``(a * scale_a) @ (b * scale_b).T`` of [M, K] and [N, K], rounded to bfloat16.

    Args:
        tile_m, tile_n: of the result, per block; 128 rows of two warpgroups, a multiple of 64 columns up to 192.
        stages: slots of the rings.
        blocks: of the persistent grid: one for each multiprocessor.
        group: rows of tiles that are worked on together, for the L2 cache.
    """
    warpgroups, piece, step = 2, 64, 32
    with tf.Fusion("gemm_fp8_scaled") as fusion:
        a = tf.define_tensor([tf.dim("M", multiple_of=4), "128*KB"], dtype=tf.float8_e4m3, name="a")
        b = tf.define_tensor(["128*NB", "128*KB"], dtype=tf.float8_e4m3, name="b")
        scale_a = tf.define_tensor([tf.dim("KB", min=1), "M"], dtype=tf.float32, name="scale_a")
        scale_b = tf.define_tensor([tf.dim("NB", min=1), "KB"], dtype=tf.float32, name="scale_b")
        a_blocks, b_blocks = tf.reshape(a, ["M", "KB", BLOCK]), tf.reshape(b, ["128*NB", "KB", BLOCK])
        of_rows = tf.expand_dims(scale_a.T, 1)
        of_columns = tf.reshape(tf.broadcast_to(tf.expand_dims(scale_b, 1), ["NB", BLOCK, "KB"]), [1, "128*NB", "KB"])
        product = tf.einsum("mkc,nkc->mnk", a_blocks, b_blocks, dtype=tf.float32)
        scale = of_rows * of_columns
        total = tf.einsum("mnk,mnk->mn", product, scale)  # tf.scaled_matmul(a, b.T, scale_a.T, scale_b.T) is the same
        d = tf.cast(total, tf.bfloat16)
        fusion.add_output(d)
    a_s, b_s = a_blocks.cache_after(), b_blocks.cache_after()  # operands: Global to Shared
    scale_a_s = scale.through_view(0)  # [KB, M]: the scales of rows: Global to Shared,
    scale_a_r = scale_a_s.cache_after()  # and Shared to registers
    scale_b_r = scale.through_view(1)  # [N, KB], of which 128 columns have one value: Global to registers
    d_s = d.cache_before()  # the result: Shared to Global,
    d_r = d_s.cache_before()  # and registers to Shared
    for tv in (a_s, b_s, scale_a_s, d_s):
        tv.set_memory_type(MemoryType.Shared)
    scale_b_r.set_memory_type(MemoryType.Local)

    # Tiles in the order of one work axis, distributed over the blocks; all but the result share the loop over blocks of k.
    total.split(0, tile_m).split(2, tile_n).reorder([0, 2, 1, 3, 4])  # [mo, no, m, n, kb]
    total.rasterize((0, 1), tf.tiles.grouped(group)).split(0, blocks)  # [wave, block, m, n, kb]
    total.axis(1).parallelize(P.BIDx)
    total.propagate([d_r, d_s, d], upto=4)
    total.reorder({4: 2}).propagate([product, a_s, b_s, scale_a_s], upto=3)  # [wave, block, kb, m, n]
    tf.parallelize_like(total, [product, a_s, b_s, scale_a_s, d_r, d_s, d])

    # Operands: bulk copies of rows of 128 bytes, swizzled as wgmma reads them; scales of the rows as they lie.
    for tv in (a_s, b_s):
        tv.set_allocation_domain(tf.layouts.swizzled(128)).set_atom(atoms.TMA_LOAD, (3, 4))
    scale_a_s.set_atom(atoms.TMA_LOAD, (3,))
    for tv in (a_s, b_s, scale_a_s):
        tv.circular_buffer(stages)

    # The products of a block: each warpgroup 64 rows.
    product.split(3, tile_m // warpgroups).split(-1, step).reorder({6: 4})  # [wave, block, kb, warpgroup, step, m64, n, k]
    product.set_atom(atoms.wgmma(64, tile_n, step), (5, 6, 7))
    product.axis(3).parallelize(P.TIDy)
    product.axis(4).parallelize(P.Unroll)

    # Their sums: in registers as the tensor cores hold the products; the scales with the threads that need them.
    total.split(3, tile_m // warpgroups)
    total.axis(3).parallelize(P.TIDy)
    total.fragment((4, 5))  # [wave, block, kb, warpgroup, warp, row, pair, n/8, half, element]
    total.split(7, piece // 8).reorder({9: 7})  # [..., pair, half, piece, n/8, element]
    total.propagate([scale_a_r], upto=8)
    total.reorder({7: 10}).propagate([scale_b_r], upto=10)  # [..., pair, piece, n/8, element, half]
    total.propagate([scale])
    tf.parallelize_like(total, [scale_a_r, scale_b_r, scale])

    # The result: pieces of 64 x 64, out of registers by stmatrix and a bulk store.
    for tv in (d_r, d_s, d):
        tv.split(3, piece).split(2, tile_m // warpgroups).reorder({4: 3})  # [wave, block, warpgroup, piece, m64, n64]
        tv.axis(2).parallelize(P.TIDy)
        tv.axis(3).parallelize(P.Unroll)
    d_r.fragment((4, 5))
    d_s.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(2)
    d_s.split(5, 16).split(4, 16).reorder({6: 5})  # [..., m16: a warp, n16, 16, 16]
    d_s.axis(4).parallelize(P.TIDx)
    d_s.axis(5).parallelize(P.Unroll)
    d_s.set_atom(atoms.STMATRIX_X4, (6, 7))
    d.set_atom(atoms.TMA_STORE, (4, 5))

    scale.inline_at(11)
    for tv in (scale_a_r, scale_b_r, scale_a_s, a_s, b_s, product):
        tv.inline_at(3)
    total.inline_at(2)
    d_r.inline_at(4)
    d_s.inline_at(4)

    load = fusion.task([a_s, b_s, scale_a_s], name="load")
    scales, mma = fusion.task([scale_a_r, scale_b_r], name="scales"), fusion.task([product], name="mma")
    promotion, epilogue = fusion.task([scale, total], name="promotion"), fusion.task([d_r, d_s, d], name="epilogue")
    products = fusion.group([scales, mma], name="products")  # in this order
    consumer = fusion.group([products, promotion, epilogue], name="consumer")  # one role: its members run in turn
    fusion.group([load, consumer], name="roles").parallelize(P.TIDy)
    load.registers()
    consumer.registers()
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    for m, n, k in ((128, 128, 256), (100, 256, 384)):
        a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n))
        scale_a, scale_b = (rng.uniform(0.5, 2, shape).astype(np.float32) for shape in ((k // BLOCK, m), (n // BLOCK, k // BLOCK)))
        (out,) = kernel.simulate(a, b, scale_a, scale_b, seed=1)
        x = a.astype(np.float64) * scale_a.T.repeat(BLOCK, 1)
        y = b.astype(np.float64) * scale_b.repeat(BLOCK, 0).repeat(BLOCK, 1)
        error = np.abs(out.astype(np.float64) - x @ y.T) / (np.abs(x) @ np.abs(y).T)
        print(f"{m} x {n} x {k}: largest difference from NumPy {error.max():.1e} of the sizes of the terms")


if __name__ == "__main__":
    main()
