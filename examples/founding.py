"""The founding example: four independent branches side by side on threads, feeding a concatenation on other threads.

Four tasks form a horizontal group on TIDy; that group and the concatenation form a vertical group on TIDz, joined by a circular buffer.
"""

import sys
from pathlib import Path

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P


def build(blocks: int | None = None, stages: int = 1) -> tf.Fusion:
    """The fusion with its tasks and schedule.

    Args:
        blocks: of a persistent grid, each of which takes every ``blocks``-th row of axis B; ``None``: one block per row.
        stages: slots of the ring; more than one let the branches work ahead of the concatenation, if the grid is persistent.
    """
    with tf.Fusion("cat") as fusion:
        tv0 = tf.define_tensor(["B", "S", "T"], dtype=tf.float32)
        tv1, tv2, tv3, tv4 = tf.sin(tv0), tf.tan(tv0), tf.exp(tv0), tf.log(tv0)
        tv5, tv6, tv7, tv8 = tf.cos(tv1), tf.relu(tv2), tf.sigmoid(tv3), tf.tanh(tv4)
        tv9 = tf.cat([tv5, tv6, tv7, tv8], dim=1)
        tv10 = tf.neg(tv9)
        fusion.add_output(tv10)

    t1, t2, t3, t4 = (fusion.task([a, b]) for a, b in ((tv1, tv5), (tv2, tv6), (tv3, tv7), (tv4, tv8)))
    t5 = fusion.task([tv9, tv10])
    group1 = fusion.group([t1, t2, t3, t4])
    group2 = fusion.group([t5])
    group3 = fusion.group([group1, group2])
    for tv in fusion.tensors():  # every axis of every tensor: [BIDx, TIDy, TIDx], or [trip, BIDx, TIDy, TIDx]
        first = 0
        if blocks is not None and not tv.is_input:
            tv.split(0, blocks)
            first = 1
        for axis, p in enumerate((P.BIDx, P.TIDy, P.TIDx), first):
            tv.axis(axis).parallelize(p)
    fusion.inline_most()
    for tv in (tv5, tv6, tv7, tv8):
        tv.circular_buffer(stages)
    group1.parallelize(P.TIDy)  # horizontal
    group3.parallelize(P.TIDz)  # vertical
    return fusion


def main(folder: str | None = None) -> None:
    """Print the loop nest, simulate it on random input, and print the difference from NumPy; draw the fusion and a run of it into ``folder``."""
    fusion = build()
    kernel = tf.lower(fusion)
    print(kernel)
    x = np.random.default_rng().uniform(0.1, 1.0, (6, 5, 8)).astype(np.float32)
    (ref,) = fusion.evaluate(x)
    worst = 0.0
    for seed in range(8):
        (out,) = kernel.simulate(x, seed=seed)
        worst = max(worst, float(np.max(np.abs(out - ref) / np.spacing(np.abs(ref)))))
    print(f"simulated {x.shape} under 8 interleavings: largest difference from NumPy {worst:g} ulp")
    if folder is not None:
        pictures = Path(folder)
        pictures.mkdir(parents=True, exist_ok=True)
        fusion.draw(pictures / "fusion.svg")
        tf.lower(build(blocks=2, stages=2)).timeline(x).draw(pictures / "timeline.svg")
        print(f"drawn: {pictures / 'fusion.svg'}, and a persistent form of it over time: {pictures / 'timeline.svg'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
