"""A transpose in tiles of 32 x 32 that need not divide the matrix, through a Shared tile swizzled by XOR.

A tile is read row by row and stored column by column, both with neighboring threads on neighboring addresses. Element (m, n) of a tile lies
at column n ^ m of row m, so that the 32 threads that read a column find it in 32 different banks.
"""

import numpy as np

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P

TILE = 32
ROWS = 8  # rows of a tile that the 32 x 8 threads of a block move at a time


def build() -> tf.Fusion:
    """The fusion with its schedule."""
    with tf.Fusion("transpose") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        y = tf.copy(x.T)
        fusion.add_output(y)
    tile = x.cache_after()

    y.split(0, TILE).split(2, TILE).reorder([0, 2, 1, 3])  # [N/32, M/32, n, m]
    y.propagate([tile], upto=2)  # [N/32, M/32, m, n]
    tile.set_memory_type(MemoryType.Shared)
    for tv in (y, tile):
        tv.split(2, ROWS)  # [N/32, M/32, 4, 8, 32]
        for axis, p in enumerate((P.BIDy, P.BIDx, P.Unroll, P.TIDy, P.TIDx)):
            tv.axis(axis).parallelize(p)
    tile.set_allocation_domain(tf.allocation(tile).merge(2).swizzle(2, 3))  # [N/32, M/32, m, n ^ m]
    tile.inline_at(2)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    for shape in ((64, 32), (45, 70), (1, 3)):
        x = np.random.default_rng().standard_normal(shape).astype(np.float32)
        (out,) = kernel.simulate(x, seed=1)
        print(f"{shape}: largest difference from NumPy {np.max(np.abs(out - x.T)):g}")


if __name__ == "__main__":
    main()
