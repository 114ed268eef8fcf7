"""Two unrelated computations in one kernel, side by side on blocks.

One is a producer and a consumer on threads of their own, joined by a circular buffer; the other a softmax whose row statistics are
reductions over the threads of a block. They form a horizontal group on BIDx: the first M blocks compute the one, the other R blocks the other.
"""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P

COLUMNS = 250  # of the softmax: constant, since each thread keeps its part of the row in registers


def build() -> tf.Fusion:
    """The fusion with its tasks and schedule."""
    with tf.Fusion("horizontal_fusion") as fusion:
        a = tf.define_tensor(["M", "N"], dtype=tf.float32, name="a")
        waves = tf.sin(a)
        bumps = tf.exp(waves)
        fusion.add_output(bumps)

        b = tf.define_tensor(["R", COLUMNS], dtype=tf.float32, name="b")
        probabilities = tf.softmax(b, axis=1)
        fusion.add_output(probabilities)

    make = fusion.task([waves], name="make")
    use = fusion.task([bumps], name="use")
    pipeline = fusion.group([make, use], name="pipeline")
    softmax = fusion.task([probabilities], name="softmax")
    side_by_side = fusion.group([pipeline, softmax], name="side_by_side")

    for tv in fusion.tensors():
        if not tv.is_input and len(tv.loop) == 2:
            tv.split(1, 64)  # [rows, columns/64, 64]
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    waves.circular_buffer(2)
    pipeline.parallelize(P.TIDy)  # vertical
    side_by_side.parallelize(P.BIDx)  # horizontal
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    rng = np.random.default_rng()
    a, b = rng.standard_normal((3, 200)).astype(np.float32), rng.standard_normal((2, COLUMNS)).astype(np.float32)
    refs = fusion.evaluate(a, b)
    for seed in range(8):
        outs = kernel.simulate(a, b, seed=seed)
        worst = max(float(np.max(np.abs(out - ref) / np.spacing(np.abs(ref)))) for out, ref in zip(outs, refs, strict=True))
        print(f"seed {seed}: largest difference from NumPy {worst:g} ulp")


if __name__ == "__main__":
    main()
