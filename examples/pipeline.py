"""A pipeline of three roles: prepare, bend, finish; each passes its tiles to the next through a circular buffer.

The rows are spread over blocks; along a row, a serial loop goes over tiles of 32 columns. The three tasks form a vertical group on TIDy, so
three sets of 32 threads work on three different tiles at a time, at most ``stages`` tiles ahead of each other.
"""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P

TILE = 32


def build(stages: int = 3) -> tf.Fusion:
    """The fusion with its tasks and schedule; the rings have ``stages`` slots."""
    with tf.Fusion("pipeline") as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32, name="x")
        scale = tf.define_tensor(["N"], dtype=tf.float32, name="scale")
        scaled = x * scale
        bent = tf.gelu_tanh(scaled)
        shifted = bent - 0.5
        squares = bent * bent
        energy = tf.sum(squares, axis=1)
        fusion.add_output(shifted)
        fusion.add_output(energy)

    roles = fusion.group(
        [
            fusion.task([scaled], name="prepare"),
            fusion.task([bent], name="bend"),
            fusion.task([shifted, squares, energy], name="finish"),
        ],
        name="roles",
    )
    for tv in fusion.tensors():
        if not tv.is_input and len(tv.loop) == 2:
            tv.split(1, TILE)  # [M, N/32, 32]
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    scaled.circular_buffer(stages)
    bent.circular_buffer(stages)
    roles.parallelize(P.TIDy)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    rng = np.random.default_rng()
    x, scale = rng.standard_normal((2, 333)).astype(np.float32), rng.standard_normal(333).astype(np.float32)
    refs = fusion.evaluate(x, scale)
    for seed in range(8):
        outs = kernel.simulate(x, scale, seed=seed)
        worst = max(float(np.max(np.abs(out - ref) / np.abs(ref))) for out, ref in zip(outs, refs, strict=True))
        print(f"seed {seed}: largest relative difference from NumPy {worst:g}")


if __name__ == "__main__":
    main()
