"""Fusions with stages of a software pipeline, and with turns."""

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.schedulers import AttentionConfig


def staged(stages: int = 3, rows: int | str = "N") -> tf.Fusion:
    """Two roles; the result of a row is computed one trip behind what it is made of."""
    with tf.Fusion("staged") as f:
        x = tf.define_tensor([rows if isinstance(rows, int) else tf.dim(rows, min=0), 32], name="x")
        a = tf.exp(x)
        b = tf.sin(a)
        y = tf.neg(b)
        f.add_output(y)
    for tv in (a, b, y):
        tv.axis(1).parallelize(P.TIDx)
    a.circular_buffer(stages)
    for tv in (b, a):
        tv.inline_at(1)
    y.pipeline_stage(1)
    f.group([f.task([a], "load"), f.task([b, y], "use")], "pair").parallelize(P.TIDy)
    return f


def in_turn(count: int = 2, width: int = 32) -> tf.Fusion:
    """Instances of one axis, of which one after another computes a row."""
    with tf.Fusion("in_turn") as f:
        x = tf.define_tensor([tf.dim("N", min=0), count, width], name="x")
        a = tf.exp(x)
        y = tf.neg(a)
        f.add_output(y)
    for tv in (a, y):
        tv.axis(1).parallelize(P.TIDy)
        tv.axis(2).parallelize(P.TIDx)
    a.inline_at(1)
    a.take_turns(P.TIDy)
    return f


def walk() -> tf.Fusion:
    """Attention with heads of 32, two warpgroups and chunks of 64 keys, whose products run ahead, issued in turn."""
    with tf.Fusion("walk") as f:
        q, k, v = (tf.define_tensor([1, n, 32], dtype=tf.bfloat16, name=name) for n, name in (("M", "q"), ("N", "k"), ("N", "v")))
        f.add_output(tf.scaled_dot_product_attention(q, k, v))
    tf.schedulers.attention(f, AttentionConfig(2, 64, 2, is_pipelined=True, in_turn=True))
    return f
