"""A product in tiles."""

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P


def tiled(n: int | str) -> tf.Fusion:
    """``n`` float32 through Shared memory, in one block."""
    with tf.Fusion("tiled") as fusion:
        x = tf.define_tensor([n], dtype=tf.float32, name="x")
        fusion.add_output(tf.flip(x * 2, 0) + 1)
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.split(0, 256)
            tv.axis(1).parallelize(P.TIDx)
    fusion.tensors()[1].set_memory_type(MemoryType.Shared)
    return fusion
