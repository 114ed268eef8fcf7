"""Roles that are blocks: one block computes gates, step by step; other blocks scale rows by them as soon as they are available.

The two tasks form a vertical group on BIDx. Their boundary is a ring in Global memory of ``stages`` slots, which semaphores guard: a slot is full
when the producing block has released it, and empty when all ``blocks`` consuming ones have. All blocks of the grid run at once.
"""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P

WIDTH = 64


def build(blocks: int = 4, stages: int = 3) -> tf.Fusion:
    """``y[t, m, n] = x[t, m, n] * tanh(exp(g[t, n]))`` with its tasks and schedule.

    Args:
        blocks: that scale rows; each takes every ``blocks``-th row of a step.
        stages: how many steps the gates may be ahead.
    """
    with tf.Fusion("block_roles") as fusion:
        g = tf.define_tensor(["T", "N"], dtype=tf.float32, name="g")
        x = tf.define_tensor(["T", "M", "N"], dtype=tf.float32, name="x")
        raised = tf.exp(g)
        gates = tf.tanh(raised)
        y = x * tf.expand_dims(gates, 1)
        fusion.add_output(y)

    y.split(1, blocks)
    y.axis(2).parallelize(P.BIDx)  # [T, M/blocks, blocks, N]
    for tv in (raised, gates, y):
        tv.split(-1, WIDTH)
        tv.axis(-1).parallelize(P.TIDx)
    raised.inline_at(3)
    gates.inline_at(1)  # one step fills one slot
    gates.circular_buffer(stages)
    fusion.group([fusion.task([raised, gates], name="gate"), fusion.task([y], name="scale")], name="roles").parallelize(P.BIDx)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    rng = np.random.default_rng()
    g, x = rng.standard_normal((6, 100)).astype(np.float32), rng.standard_normal((6, 7, 100)).astype(np.float32)
    (ref,) = fusion.evaluate(g, x)
    for seed in range(8):
        (out,) = kernel.simulate(g, x, seed=seed)
        print(f"seed {seed}: largest difference from NumPy {np.max(np.abs(out - ref)):g}")


if __name__ == "__main__":
    main()
