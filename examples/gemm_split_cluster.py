"""``a @ b.T`` on the tensor cores of Hopper with K in parts: each block of a cluster multiplies one part, and they sum the results through Shared memory.

For a long K and few tiles of the result. ``rfactor`` splits the product in two: the partial sum of each block, and the sum of the partial sums. The former is
copied from registers to memory that all blocks of the cluster can access (``MemoryType.Cluster``), where each block has its own part. The rows of the sum are
bound to ``CIDx``, too, so that each block adds up a share of the tile, always in the order of the parts.
"""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P


def build(k: int = 512, parts: int = 4, tile_m: int = 128, tile_n: int = 64, stages: int = 4) -> tf.Fusion:
    """The product of bfloat16 [M, k] and [N, k], summed in float32; N and k are multiples of 8.

    Args:
        k: the length that is summed over.
        parts: of it, which are the blocks of a cluster.
        tile_m, tile_n: of the result, per cluster; 128 rows of two warpgroups, 64 or 128 columns.
        stages: slots of the operands' ring.
    """
    tile_k, step, warpgroups, vector = 64, 16, 2, 4
    with tf.Fusion("split") as fusion:
        a = tf.define_tensor(["M", k], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([tf.dim("N", multiple_of=8), k], dtype=tf.bfloat16, name="b")
        total = tf.matmul(a, b.T, dtype=tf.float32)
        d = tf.cast(total, tf.bfloat16)
        fusion.add_output(d)
    a_s, b_s = a.cache_after(), b.cache_after()
    for tv in (a_s, b_s):
        tv.set_memory_type(MemoryType.Shared)
    total.split(2, -(-k // tile_k // parts) * tile_k).split(3, tile_k)  # [m, n, part, ko, k]; past the end of k copies bring zeros
    acc = total.rfactor([3, 4])  # the sum of one part
    part = acc.cache_after()
    part.set_memory_type(MemoryType.Cluster)
    held = part.cache_before()  # all of it is read from the accumulators under no branch
    near = part.cache_after()  # vectors of the parts, in registers
    d_r = d.cache_before()

    acc.split(0, tile_m).split(2, tile_n).reorder([0, 2, 4, 5, 1, 3, 6])  # [mo, no, part, ko, m, n, k]
    for axis, p in enumerate((P.BIDy, P.BIDx, P.CIDx)):
        acc.axis(axis).parallelize(p)
    acc.propagate([a_s, b_s], upto=4)
    tf.parallelize_like(acc, [a_s, b_s])
    for tv in (a_s, b_s):
        tv.set_allocation_domain(tf.layouts.swizzled(128)).circular_buffer(stages)
        tv.set_atom(atoms.TMA_LOAD, (4, 5))
    acc.split(4, tile_m // warpgroups).split(-1, step).reorder({7: 5})  # [mo, no, part, ko, warpgroup, step, m64, n, k]
    acc.set_atom(atoms.wgmma(64, tile_n, step), (6, 7, 8))
    acc.axis(4).parallelize(P.TIDy)
    acc.axis(5).parallelize(P.Unroll)
    acc.in_flight(1)

    # The part of a block, from registers as the tensor cores hold it; rows begin in different banks.
    for tv in (held, part):
        tv.split(0, tile_m).split(2, tile_n).reorder([0, 2, 4, 1, 3])  # [mo, no, part, m, n]
        if tv is part:
            tv.set_allocation_domain(tf.layouts.padded(8))
        tv.split(3, tile_m // warpgroups)
        for axis, p in enumerate((P.BIDy, P.BIDx, P.CIDx, P.TIDy)):
            tv.axis(axis).parallelize(p)
        tv.fragment((4, 5))
    part.axis(-1).parallelize(P.Vectorize)

    # The sum: each block has a share of the rows, each thread vectors of them.
    at_once = warpgroups * 128 * vector // tile_n
    for tv in (near, total, d_r, d):
        tv.split(0, tile_m).split(2, tile_n).reorder([0, 2, 1, 3, *range(4, len(tv.loop))])  # [mo, no, m, n, (part)]
        tv.split(2, tile_m // parts).split(4, vector)  # [mo, no, share, m, n, vector, (part)]
        tv.split(3, tile_m // parts // at_once).split(3, at_once // warpgroups)  # [mo, no, share, warpgroup, row, m, n, vector, (part)]
        for axis, p in enumerate((P.BIDy, P.BIDx, P.CIDx, P.TIDy, P.TIDx)):
            tv.axis(axis).parallelize(p)
        tv.axis(6).parallelize(P.TIDx)
    for tv in (near, total):
        tv.reorder({8: 7})
        tv.axis(7).parallelize(P.Unroll)
    for tv in (near, d):
        tv.axis(-1).parallelize(P.Vectorize)

    a_s.inline_at(4)
    b_s.inline_at(4)
    near.inline_at(8)
    total.inline_at(7)
    d_r.inline_at(7)
    load, mma = fusion.task([a_s, b_s], name="load"), fusion.task([acc, held, part], name="mma")
    epilogue = fusion.task([near, total, d_r, d], name="epilogue")
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
    for m, n in ((128, 128), (100, 136)):
        a, b = (rng.standard_normal((rows, 512)).astype(ml_dtypes.bfloat16) for rows in (m, n))
        (out,) = kernel.simulate(a, b, seed=1)
        exact = a.astype(np.float64) @ b.astype(np.float64).T
        ulp = np.exp2(np.floor(np.log2(np.maximum(np.abs(exact), 2.0**-20))) - 7)  # of bfloat16
        print(f"{m} x {n} x 512: largest difference from NumPy {np.max(np.abs(out.astype(np.float64) - exact) / ulp):.3f} ulp of bfloat16")


if __name__ == "__main__":
    main()
