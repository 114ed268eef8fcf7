"""A matrix product in tiles: Shared tiles of the operands, a register tile of the result per thread.

The tiles of the result are numbered by one merged axis, a block each. The operands share that loop although each lacks a dimension of it:
``a`` has no columns of the result, ``b`` no rows. ``propagate`` gives each the axis that it lacks as a foreign axis, which takes part in the
loops and in nothing else: no element of ``a`` depends on it, and its tile in Shared memory has no place for it.
"""

import numpy as np

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P

TILE_M, TILE_N, TILE_K = 32, 32, 16  # of a block
ROWS, COLUMNS = 4, 4  # of a thread


def build() -> tf.Fusion:
    """The fusion with its schedule."""
    with tf.Fusion("matmul") as fusion:
        a = tf.define_tensor(["M", "K"], dtype=tf.float32, name="a")
        b = tf.define_tensor(["K", "N"], dtype=tf.float32, name="b")
        c = a @ b
        fusion.add_output(c)
    a_tile, b_tile = a.cache_after(), b.cache_after()
    accumulator = c.cache_before()  # axes [M, N, K]

    # The loops that all share: tiles of the result, then, but for c, steps along K.
    accumulator.split(0, TILE_M).split(2, TILE_N).split(4, TILE_K)  # [mo, m, no, n, ko, k]
    accumulator.reorder([0, 2, 4, 1, 3, 5]).merge(0)  # [mo * no, ko, m, n, k]
    accumulator.propagate([a_tile, b_tile], upto=2)  # [mo * no, ko, m, k] and [mo * no, ko, k, n]
    accumulator.propagate([c], upto=1)  # [mo * no, m, n]

    # A thread computes ROWS x COLUMNS elements.
    accumulator.split(3, COLUMNS).split(2, ROWS).reorder([0, 1, 6, 2, 4, 3, 5])  # [mo * no, ko, k, m/4, n/4, 4, 4]
    c.split(2, COLUMNS).split(1, ROWS).reorder([0, 1, 3, 2, 4])  # [mo * no, m/4, n/4, 4, 4]
    for tv, first in ((accumulator, 3), (c, 1)):
        for axis, p in enumerate((P.TIDy, P.TIDx, P.Unroll, P.Unroll), first):
            tv.axis(axis).parallelize(p)
    # The 8 x 8 threads copy the tiles together.
    for tv in (a_tile, b_tile):
        tv.set_memory_type(MemoryType.Shared)
        tv.split(3, TILE_N // COLUMNS).split(2, TILE_M // ROWS)  # [mo * no, ko, ., 8, ., 8]
        tv.axis(3).parallelize(P.TIDy)
        tv.axis(5).parallelize(P.TIDx)
    for tv in (a_tile, b_tile, accumulator, c):
        tv.axis(0).parallelize(P.BIDx)

    a_tile.inline_at(2)
    b_tile.inline_at(2)
    accumulator.inline_at(1)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    kernel = tf.lower(build())
    print(kernel)
    rng = np.random.default_rng()
    for m, n, k in ((64, 64, 32), (50, 70, 33), (1, 1, 1)):
        a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
        (out,) = kernel.simulate(a, b, seed=1)
        ulp = np.spacing(np.abs(a) @ np.abs(b))  # of a sum of terms that do not cancel
        print(f"{m} x {n} x {k}: largest difference from NumPy {np.max(np.abs(out - a @ b) / ulp):g} ulp of the sum of |a| |b|")


if __name__ == "__main__":
    main()
