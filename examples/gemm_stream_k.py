"""``a @ b.T`` of few tiles and long sums, on the tensor cores of Hopper: blocks share tiles (stream-K).

``tf.tiles.stream_k(blocks)`` gives all blocks equally many steps of k, wherever tiles begin: the steps of a block may belong to several tiles, its
*items*, and those of a tile to several blocks. The role ``load`` loads the operands of each item by bulk copies (TMA), the role ``mma`` multiplies (wgmma)
and stores the item's sums in a workspace. After a barrier of the grid, ``join`` adds the sums of each tile in the order of k, so the result is the same in
every run. ``tf.tiles.split_k(parts)`` instead gives each tile the same number of blocks.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P
from taskfuse.tiles import SplitK, StreamK


def build(
    m: int = 128,
    n: int = 192,
    k: int = 512,
    order: SplitK | StreamK | None = None,
    tile: tuple[int, int] = (64, 64),
    stages: int = 4,
    warpgroups: int = 1,
) -> tf.Fusion:
    """``a @ b.T`` of [m, k] and [n, k] in bfloat16, with sums in float32.

    Args:
        m, n, k: of the product; how blocks share tiles depends on their number, so they are numbers. Rows of operands are multiples of 16 bytes.
        order: who computes what; by default stream-K on 5 blocks.
        tile: rows and columns of a tile: 64 rows of each warpgroup, a multiple of 8 columns up to 256.
        stages: slots of the operands' ring.
        warpgroups: that share a tile by rows.
    """
    step, rows = 64, tile[0] // warpgroups
    with tf.Fusion("gemm_stream_k") as fusion:
        a = tf.define_tensor([m, k], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([n, k], dtype=tf.bfloat16, name="b")
        total = tf.matmul(a, b.T, dtype=tf.float32)
        d = tf.cast(total, tf.bfloat16)
        fusion.add_output(d)
    a_s, b_s, parts, terms = total.chunk_product(order or tf.tiles.stream_k(5), (*tile, step))
    acc = parts.cache_before()

    # The parts: blocks, items of a block, steps of k. The loop over the steps ends where the item does.
    acc.split(4, step).reorder({4: 2})  # [block, item, ko, m, n, k]
    for tv in (a_s, b_s):
        tv.split(3, step).reorder({3: 2})  # [block, item, ko, m or n, k]
        tv.set_memory_type(MemoryType.Shared)
        tv.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(stages)
        tv.set_atom(atoms.TMA_LOAD, (3, 4))
    for tv in (a_s, b_s, acc, parts):
        tv.axis(0).parallelize(P.BIDx)
    acc.split(3, rows).split(-1, 16).reorder({6: 4})  # [block, item, ko, warpgroup, k16, m64, n, k]
    acc.set_atom(atoms.wgmma(64, tile[1], 16), (5, 6, 7))
    acc.axis(3).parallelize(P.TIDy)
    acc.axis(4).parallelize(P.Unroll)
    acc.in_flight(1)
    parts.split(2, rows)  # [block, item, warpgroup, m64, n]
    parts.axis(2).parallelize(P.TIDy)
    parts.fragment((3, 4))
    parts.set_allocation_domain(tf.layouts.rowmajor())
    a_s.inline_at(3)
    b_s.inline_at(3)
    acc.inline_at(2)

    # The sums: elements of tiles, distributed over all blocks.
    for tv in (terms, total, d):
        tv.split(1, tile[1]).split(0, tile[0]).reorder({1: 2}).merge(0).merge(1).split(1, 256)  # [tile, piece, element of a piece]
        tv.merge(0).split(0, parts.shape[0]).split(2, 128)  # [trip, block, y, x]
        for k_, p in ((1, P.BIDx), (2, P.TIDy), (3, P.TIDx)):
            tv.axis(k_).parallelize(p)
    for tv in (terms, total):
        tv.axis(4).parallelize(P.Unroll)
    terms.inline_at(5)
    total.inline_at(4)

    load, mma = fusion.task([a_s, b_s], name="load"), fusion.task([acc, parts], name="mma")
    fusion.task([terms, total, d], name="join")
    fusion.group([load, mma], name="roles").parallelize(P.TIDy)
    load.registers()
    mma.registers()
    return fusion


def main() -> None:
    """Print who computes what, the loop nest, and the difference from NumPy on random input, with five blocks that come to it in any order."""
    print(tf.tiles.stream_k(5).shares(tiles=6, steps=8).explain())
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    a, b = (rng.standard_normal((rows, 512)).astype(ml_dtypes.bfloat16) for rows in (128, 192))
    outs = [kernel.simulate(a, b, seed=seed)[0] for seed in (1, 2)]
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    ulp = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-20))) - 7)  # of bfloat16
    print(f"largest difference from NumPy {np.max(np.abs(outs[0].astype(np.float64) - exact) / ulp):.3f} ulp of bfloat16")
    print(f"the same words in both runs: {(outs[0] == outs[1]).all()}")


if __name__ == "__main__":
    main()
