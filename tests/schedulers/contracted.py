"""Matrix products of symbolic extents, for tests of how they are found."""

import taskfuse as tf


def tensor(name: str, *shape: int | str | tf.Dim, dtype: tf.DType = tf.bfloat16) -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


def factors() -> tuple[tf.TensorView, tf.TensorView]:
    """[M, K] and [N, K], K contiguous."""
    return tensor("a", "M", tf.dim("K", multiple_of=8)), tensor("b", tf.dim("N", multiple_of=8), "K")


def product() -> tf.TensorView:
    a, b = factors()
    return tf.matmul(a, b.T, dtype=tf.float32)
