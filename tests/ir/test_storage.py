"""What expressions really read, and what outputs need, behind views and assemblies."""

import taskfuse.ops as tf
from taskfuse.dtypes import float32
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.storage import needed, producers


def test_producers_are_storage_tensors_each_once() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 4], dtype=float32)
        a = tf.sin(x)
        b = a + tf.permute(a, (1, 0))
        both = tf.cat([tf.cos(b), tf.exp(x)], dim=0, form="scatter")
        fusion.add_output(both)
    assert producers(fusion, x) == ()
    assert producers(fusion, b) == (a,)
    assert [tv.name for tv in producers(fusion, both)] == ["tv4", "tv5"]


def test_needed_leaves_out_views_assemblies_and_dead_code() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor([4, 4], dtype=float32)
        early = tf.sin(x)
        tf.cos(early)
        turned = tf.permute(early, (1, 0))
        parts = [tf.exp(turned), tf.neg(x)]
        fusion.add_output(tf.cat(parts, dim=0, form="scatter"))
        stored = tf.permute(x, (1, 0))
        fusion.add_output(stored)
    assert [e.output for e in needed(fusion)] == [early, *parts, stored]  # a view that is an output is a copy
