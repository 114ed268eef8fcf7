"""``a @ b.T`` on the tensor cores of Hopper by clusters of two blocks, which share the tiles of ``b``.

Unlike in gemm.py, the rows of tiles are split by two, and the inner axis is bound to CIDx: the blocks of a cluster compute tiles one above the
other. ``b`` has no rows of the result, so both blocks need the same tile of it: each loads half, by a copy that is written to both
(``TMA_LOAD_MULTICAST``). A slot is then empty when the consumers of both blocks have read it.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P


def build(tile_m: int = 128, tile_n: int = 128, stages: int = 4, clusters: int = 2, group: int = 8, cluster: int = 2) -> tf.Fusion:
    """The product of bfloat16 [M, K] and [N, K], summed in float32, with its tasks and schedule; N and K are multiples of 8.

    Args:
        tile_m, tile_n: of the result, per block; 128 rows of two warpgroups, a multiple of 64 columns up to 256.
        stages: slots of the operands' ring.
        clusters: of the persistent grid.
        group: pairs of rows of tiles that are worked on together, for the L2 cache.
        cluster: blocks in a cluster.
    """
    tile_k, warpgroups, piece = 64, 2, 64
    with tf.Fusion("cluster") as fusion:
        a = tf.define_tensor(["M", tf.dim("K", multiple_of=8)], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), "K"], dtype=tf.bfloat16, name="b")
        acc = tf.matmul(a, b.T, dtype=tf.float32)
        d = tf.cast(acc, tf.bfloat16)
        fusion.add_output(d)
    a_s, b_s = a.cache_after(), b.cache_after()
    d_s = d.cache_before()
    d_r = d_s.cache_before()
    for tv in (a_s, b_s, d_s):
        tv.set_memory_type(MemoryType.Shared)

    acc.split(0, tile_m).split(0, cluster).split(3, tile_n).split(5, tile_k)  # [mo, rank, m, no, n, ko, k]
    acc.reorder([0, 3, 1, 5, 2, 4, 6]).rasterize((0, 1), tf.tiles.grouped(group)).split(0, clusters)  # [wave, cluster, rank, ko, m, n, k]
    acc.axis(1).parallelize(P.BIDx)
    acc.axis(2).parallelize(P.CIDx)
    acc.propagate([a_s, b_s], upto=4)
    acc.propagate([d_r, d_s, d], upto=3)
    tf.parallelize_like(acc, [a_s, b_s, d_r, d_s, d])
    for tv, atom in ((a_s, atoms.TMA_LOAD), (b_s, atoms.TMA_LOAD_MULTICAST)):
        tv.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(stages)
        tv.set_atom(atom, (4, 5))

    acc.split(4, tile_m // warpgroups).split(-1, 16).reorder({7: 5})  # [wave, cluster, rank, ko, warpgroup, k16, m64, n, k]
    acc.set_atom(atoms.wgmma(64, tile_n, 16), (-3, -2, -1))
    acc.axis(4).parallelize(P.TIDy)
    acc.axis(5).parallelize(P.Unroll)
    acc.in_flight(1)
    for tv in (d_r, d_s, d):
        tv.split(4, piece).split(3, tile_m // warpgroups).reorder([0, 1, 2, 3, 5, 4, 6])  # [wave, cluster, rank, warpgroup, piece, m64, n64]
        tv.axis(3).parallelize(P.TIDy)
        tv.axis(4).parallelize(P.Unroll)
    d_r.fragment((5, 6))
    d_s.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(2)
    d_s.split(6, 16).split(5, 16).reorder({7: 6})  # [..., m16: a warp, n16, 16, 16]
    d_s.axis(5).parallelize(P.TIDx)
    d_s.axis(6).parallelize(P.Unroll)
    d_s.set_atom(atoms.STMATRIX_X4, (7, 8))
    d.set_atom(atoms.TMA_STORE, (5, 6))
    for tv, depth in ((a_s, 4), (b_s, 4), (acc, 3), (d_r, 5), (d_s, 5)):
        tv.inline_at(depth)

    load, mma, epilogue = fusion.task([a_s, b_s], name="load"), fusion.task([acc], name="mma"), fusion.task([d_r, d_s, d], name="epilogue")
    consumer = fusion.group([mma, epilogue], name="consumer")
    fusion.group([load, consumer], name="roles").parallelize(P.TIDy)
    load.registers()
    consumer.registers()
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    for m, n, k in ((512, 256, 128), (300, 136, 200), (1, 8, 8)):
        a, b = (rng.standard_normal((rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        (out,) = kernel.simulate(a, b, seed=1)
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        difference = np.max(np.abs(out.astype(np.float64) - exact)) / np.max(np.abs(exact))
        print(f"{m} x {n} x {k}: largest difference from NumPy {difference:.4f} of the largest element")


if __name__ == "__main__":
    main()
