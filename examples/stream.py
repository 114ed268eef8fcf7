"""A streaming pipeline: the copy engine loads tiles, warps compute, the copy engine stores tiles.

Three roles of one persistent kernel: ``load`` starts a bulk tensor copy (TMA) for each tile, ``compute`` reads the tile from Shared memory in
vectors and writes the result to another ring, ``store`` starts the copy back. Each block takes every ``blocks``-th tile; the rings let the
three roles work on different tiles at the same time.
"""

import numpy as np

import taskfuse as tf
from taskfuse import MemoryType, atoms
from taskfuse import ParallelType as P


def build(blocks: int = 4, rows: int = 8, columns: int = 64, warps: int = 4, stages: int = 3) -> tf.Fusion:
    """``y = relu(2*x - 1)`` of an [M, N] float32 tensor, N a multiple of 4, with its tasks and schedule.

    Args:
        blocks: of the persistent grid.
        rows, columns: of a tile; their product is a multiple of 128 * warps.
        warps: of the compute role; the others take one each.
        stages: slots of both rings.
    """
    vector = 4
    with tf.Fusion("stream") as fusion:
        x = tf.define_tensor(["M", tf.dim("N", multiple_of=vector)], name="x")
        y = tf.relu(2.0 * x - 1.0)
        fusion.add_output(y)
    x_s = x.cache_after()  # x_s = copy(x): the load
    y_s = y.cache_before()  # y = copy(y_s): the store
    y_r = y_s.cache_before()  # y_s = copy(y_r): from registers
    x_r = x_s.cache_after()  # x_r = copy(x_s): a copy to registers
    math = [tv for tv in fusion.tensors() if tv not in {x, x_s, x_r, y_s, y}]  # what computes, in registers
    for tv in (x_s, y_s):
        tv.set_memory_type(MemoryType.Shared)

    y.split(0, rows)
    y.split(2, columns)
    y.reorder([0, 2, 1, 3])
    y.merge(0, 1)
    y.split(0, blocks)  # [trip, block, row, column]
    y.axis(1).parallelize(P.BIDx)
    others = [x_s, x_r, *math, y_s]
    y.propagate(others)
    tf.parallelize_like(y, others)
    for tv in (x_r, *math, y_s):
        tv.merge(2, 3)
        tv.split(2, vector)
        tv.split(2, 32)
        tv.split(2, warps)  # [trip, block, step, warp, lane, vector]
        tv.axis(2).parallelize(P.Unroll)
        tv.axis(3).parallelize(P.TIDy)
        tv.axis(4).parallelize(P.TIDx)
    x_r.axis(5).parallelize(P.Vectorize)
    y_s.axis(5).parallelize(P.Vectorize)
    x_s.set_atom(atoms.TMA_LOAD, (2, 3))
    y.set_atom(atoms.TMA_STORE, (2, 3))
    x_s.inline_at(2)
    y_s.inline_at(2)
    for tv in (x_r, *math):
        tv.inline_at(5 if tv in {x_r, y_r} else 6)  # vectors meet outside the vector axis, what computes inside
    x_s.circular_buffer(stages)
    y_s.circular_buffer(stages)

    load, compute, store = fusion.task([x_s], name="load"), fusion.task([x_r, *math, y_s], name="compute"), fusion.task([y], name="store")
    fusion.group([load, compute, store], name="roles").parallelize(P.TIDy)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    x = np.random.default_rng().standard_normal((37, 200)).astype(np.float32)
    (ref,) = fusion.evaluate(x)
    for seed in range(8):
        (out,) = kernel.simulate(x, seed=seed)
        print(f"seed {seed}: largest difference from NumPy {np.max(np.abs(out - ref)):g}")


if __name__ == "__main__":
    main()
