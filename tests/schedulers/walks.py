"""Rows in one walk that several tests schedule."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse.schedulers import OnlineConfig


def along(shape: list[int | str], axis: int, build: Callable[[tf.TensorView, int], tf.TensorView]) -> tf.Fusion:
    with tf.Fusion("rows") as fusion:
        fusion.add_output(build(tf.define_tensor(shape, name="x"), axis))
    return fusion


def cross_entropy(rows: int | str = "N", classes: int = 256) -> tf.Fusion:
    with tf.Fusion("cross_entropy") as fusion:
        x, target = tf.define_tensor([rows, classes], name="x"), tf.define_tensor([rows], tf.int64, name="target")
        picked = tf.take_along_axis(tf.log_softmax(x, 1), tf.expand_dims(target, 1), 1)
        fusion.add_output(tf.neg(tf.squeeze(picked, 1)))
    return fusion


CASES: dict[str, tuple[Callable[[], tf.Fusion], OnlineConfig]] = {
    "cross entropy": (cross_entropy, OnlineConfig(32, 2, 2)),
    "softmax": (lambda: along(["N", 512], 1, tf.softmax), OnlineConfig(64, 1, 2)),
    "short steps": (lambda: along(["N", 100], 1, tf.log_softmax), OnlineConfig(32, 1, 2)),
    "middle": (lambda: along([2, 21, 64], 1, tf.softmax), OnlineConfig(4, 8, 2)),
    "of any length": (lambda: along(["N", "K"], 1, tf.logsumexp), OnlineConfig(32, 2, 2)),
}
