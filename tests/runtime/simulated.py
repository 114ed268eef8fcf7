"""Small fusions that run in the simulator."""

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P

X = np.random.default_rng(0).standard_normal((4, 32), dtype=np.float32)


def scaled() -> tf.Fusion:
    with tf.Fusion("scaled") as fusion:
        x = tf.define_tensor(["N", 32], name="x")
        a = tf.define_scalar(tf.float32, name="a")
        fusion.add_output(x * a)
    for tv in fusion.tensors():
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    return fusion
