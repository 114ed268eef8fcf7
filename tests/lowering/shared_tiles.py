"""Products of bfloat16 whose groups of rows end in a tile that two warpgroups share."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig

GROUPS, ROWS, COLUMNS, TERMS = 3, 256, 64, 192
CONFIG = MatmulConfig(128, 64, stages=2, group=1, blocks=2)


def ragged(*, passed: bool = False) -> tf.Fusion:
    """Groups of rows; their product may be passed on by a function."""
    with tf.Fusion("ragged") as fusion:
        a, b = tf.define_tensor((ROWS, TERMS), tf.bfloat16, name="a"), tf.define_tensor((GROUPS, TERMS, COLUMNS), tf.bfloat16, name="b")
        y = tf.grouped_matmul(a, b, tf.table("offsets", GROUPS + 1, ROWS, rising=True), tf.float32)
        fusion.add_output(tf.cast(tf.relu(y) if passed else y, tf.bfloat16))
    tf.schedulers.matmul(fusion, CONFIG)
    return fusion


def padded() -> tf.Fusion:
    """The first rows of each group."""
    with tf.Fusion("padded") as fusion:
        a, b = tf.define_tensor((GROUPS, ROWS, TERMS), tf.bfloat16, name="a"), tf.define_tensor((GROUPS, TERMS, COLUMNS), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul_masked(a, b, tf.table("counts", GROUPS, ROWS)))
    tf.schedulers.matmul(fusion, replace(CONFIG, layers=True))
    return fusion


@cache
def kernel(name: str) -> tf.Kernel:
    return tf.lower({"ragged": ragged, "relu": lambda: ragged(passed=True), "padded": padded}[name]())
