"""Products by packed weights, written as sums."""

import taskfuse as tf


def bits(rows: int | str = 12, groups: int = 5, group: int = 64) -> tf.Fusion:
    """A vector by weights of 4 bits, two in a byte, with scales of groups; the vector is widened before its pairs are viewed."""
    with tf.Fusion("bits") as fusion:
        x = tf.define_tensor([groups * group * 2], tf.bfloat16, name="x")
        w, scales = tf.define_tensor([rows, groups * group], tf.uint8, name="w"), tf.define_tensor([rows, groups], tf.bfloat16, name="scales")
        both, pairs = tf.reshape(w, [rows, groups, group]), tf.reshape(tf.cast(x, tf.float32), [groups, group, 2])
        low, high = (tf.cast(half, tf.float32) - 8.0 for half in (tf.bitwise_and(both, 15), tf.right_shift(both, 4)))
        sums = tf.sum(low * pairs[:, :, 0] + high * pairs[:, :, 1], 2) * tf.cast(scales, tf.float32)
        fusion.add_output(tf.cast(tf.sum(sums, 1), tf.bfloat16))
    return fusion
