"""Fusions without tasks, as ``fusion.partition()`` gets them."""

import taskfuse as tf


def branches(dim: int = 1) -> tf.Fusion:
    """The founding example without tasks and schedule."""
    with tf.Fusion("cat") as fusion:
        x = tf.define_tensor(["B", "S", "T"], name="tv0")
        made = [tf.sin(x), tf.tan(x), tf.exp(x), tf.log(x)]
        ends = [op(tv) for op, tv in zip((tf.cos, tf.relu, tf.sigmoid, tf.tanh), made, strict=True)]
        fusion.add_output(tf.neg(tf.cat(ends, dim=dim)))
    return fusion


def product(m: int | str = "M", n: int | str = "N", k: int | str = "K") -> tf.Fusion:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([m, k], dtype=tf.bfloat16, name="a"), tf.define_tensor([n, k], dtype=tf.bfloat16, name="b")
        sums = tf.matmul(a, b.T, dtype=tf.float32)
        fusion.add_output(tf.cast(tf.relu(sums + tf.define_tensor([n], name="bias")), tf.bfloat16))
    return fusion
