"""Fusions that are scheduled automatically."""

import taskfuse as tf


def founding(*shape: int | str, dim: int = 0) -> tf.Fusion:
    with tf.Fusion("founding") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        parts = [tf.cos(tf.sin(x)), tf.relu(tf.tan(x)), tf.sigmoid(tf.exp(x)), tf.tanh(tf.log(x))]
        fusion.add_output(tf.neg(tf.cat(parts, dim)))
    return fusion


def transposed(dtype: tf.DType, *shape: int | str) -> tf.Fusion:
    with tf.Fusion("transposed") as fusion:
        x = tf.define_tensor(list(shape), dtype=dtype, name="x")
        fusion.add_output(tf.copy(x.T))
    return fusion
