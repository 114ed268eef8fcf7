"""Fusions whose products are of one tile, and products of a computed factor."""

import taskfuse as tf


def of_several(form: str, m: int | str, n: int, k: int) -> tf.Fusion:
    """``gated``: products with two factors, and a bias; ``added``: of unlike k; ``taps``: of shifted rows of one input with three matrices."""
    half = tf.bfloat16
    with tf.Fusion(form) as fusion:
        if form == "taps":
            assert isinstance(m, int)
            x, w = tf.define_tensor([2, m + 2, k], half, name="x"), tf.define_tensor([3, k, n], half, name="w")
            fusion.add_output(x[:, :m] @ w[0] + x[:, 1 : m + 1] @ w[1] + x[:, 2:] @ w[2])
            return fusion
        x, up = tf.define_tensor([m, k], half, name="x"), tf.define_tensor([n, k], half, name="up")
        first = tf.matmul(x, up.T, dtype=tf.float32)
        if form == "gated":
            second = tf.matmul(x, tf.define_tensor([n, k], half, name="gate").T, dtype=tf.float32)
            fusion.add_output(tf.cast(tf.silu(first) * second + tf.define_tensor([n], name="bias"), half), first)
        else:
            y, down = tf.define_tensor([m, 2 * k], half, name="y"), tf.define_tensor([n, 2 * k], half, name="down")
            fusion.add_output(first + tf.matmul(y, down.T, dtype=tf.float32))
    return fusion


def of_computed(m: int, n: int, k: int) -> tf.Fusion:
    """``silu(2 * a) @ b``, in float32 between."""
    with tf.Fusion("computed") as fusion:
        a, b = tf.define_tensor([m, k], tf.bfloat16, name="a"), tf.define_tensor([k, n], tf.bfloat16, name="b")
        fusion.add_output(tf.cast(tf.silu(tf.cast(a, tf.float32) * 2.0), tf.bfloat16) @ b)
    return fusion
