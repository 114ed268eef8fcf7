"""Groups in groups in groups: horizontal on TIDy, inside it vertical on TIDz, inside that horizontal on TIDy again.

    outer, horizontal on TIDy          TIDy extent 3 + 1
      rotate, vertical on TIDz         TIDz extent 2
        waves, horizontal on TIDy      TIDy extent 1 + 2
          sine, cosine
        combine
      side

TIDy is divided twice: ``outer`` gives its first three indices to ``rotate`` and the last to ``side``; ``waves`` gives the first of those
three to ``sine`` and two to ``cosine``, which works with twice as many threads. A channel passes the results of ``waves`` to ``combine``.
"""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P

TILE = 32


def build() -> tf.Fusion:
    """The fusion with its tasks and schedule."""
    with tf.Fusion("nested_groups") as fusion:
        angle = tf.define_tensor(["M", "N"], dtype=tf.float32, name="angle")
        radius = tf.define_tensor(["M", "N"], dtype=tf.float32, name="radius")
        sine, cosine = tf.sin(angle), tf.cos(angle)
        rotated = tf.hypot(sine, cosine)
        area = tf.square(radius)
        for tv in (rotated, area):
            fusion.add_output(tv)

    waves = fusion.group([fusion.task([sine], name="sine"), fusion.task([cosine], name="cosine")], name="waves")
    rotate = fusion.group([waves, fusion.task([rotated], name="combine")], name="rotate")
    outer = fusion.group([rotate, fusion.task([area], name="side")], name="outer")
    waves.parallelize(P.TIDy)
    rotate.parallelize(P.TIDz)
    outer.parallelize(P.TIDy)

    for tv in (sine, rotated, area):
        tv.split(1, TILE)  # [M, N/32, 32]
        tv.axis(2).parallelize(P.TIDx)
    cosine.split(1, TILE).split(2, TILE // 2)  # [M, N/32, 2, 16]
    cosine.axis(2).parallelize(P.TIDy)
    cosine.axis(3).parallelize(P.TIDx)
    for tv in (sine, cosine, rotated, area):
        tv.axis(0).parallelize(P.BIDx)
    sine.inline_at(2).circular_buffer(2)
    cosine.inline_at(2).circular_buffer(2)
    return fusion


def main() -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    rng = np.random.default_rng()
    angle, radius = (rng.standard_normal((2, 77)).astype(np.float32) for _ in range(2))
    refs = fusion.evaluate(angle, radius)
    for seed in range(8):
        outs = kernel.simulate(angle, radius, seed=seed)
        worst = max(float(np.max(np.abs(out - ref) / np.spacing(np.abs(ref)))) for out, ref in zip(outs, refs, strict=True))
        print(f"seed {seed}: largest difference from NumPy {worst:g} ulp")


if __name__ == "__main__":
    main()
