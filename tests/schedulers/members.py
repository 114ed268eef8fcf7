"""Small fusions with schedules of their own, to be run side by side."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse import ParallelType as P

Extents = tuple[int | str | tf.Dim, int | str | tf.Dim]


def pointwise(n: int | str = 1000, name: str = "pointwise", threads: int = 64) -> tf.Fusion:
    """tanh(2 x + y) of [n], a thread per element."""
    with tf.Fusion(name) as fusion:
        x, y = tf.define_tensor([n], name="x"), tf.define_tensor([n], name="y")
        fusion.add_output(tf.tanh(x * 2.0 + y))
    for tv in computed(fusion):
        tv.split(0, threads).axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def softmax(m: int | str | tf.Dim = 3, n: int = 100, name: str = "softmax", threads: int = 32) -> tf.Fusion:
    """softmax of the rows of [m, n], a block per row."""
    with tf.Fusion(name) as fusion:
        fusion.add_output(tf.softmax(tf.define_tensor([m, n], name="x"), axis=1))
    return by_rows(fusion, threads)


def row_sum(m: int | str = 3, n: int | str = 100, name: str = "row_sum", threads: int = 32) -> tf.Fusion:
    """Sums of the rows of [m, n], a block per row."""
    with tf.Fusion(name) as fusion:
        fusion.add_output(tf.sum(tf.define_tensor([m, n], name="x"), axis=1))
    return by_rows(fusion, threads)


def by_rows(fusion: tf.Fusion, threads: int) -> tf.Fusion:
    """A block for each row of every tensor, the row spread over threads."""
    for tv in computed(fusion):
        tv.axis(0).parallelize(P.BIDx)
        if len(tv.loop) == 2:
            tv.split(1, threads).axis(2).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def computed(fusion: tf.Fusion) -> list[tf.TensorView]:
    """All tensors but the inputs."""
    return [tv for tv in fusion.tensors() if not tv.is_input]


def numbers(shapes: Sequence[Sequence[int]]) -> list[NDArray[np.float32]]:
    """Small integers: sums of a few of them are exact."""
    rng = np.random.default_rng(0)
    return [rng.integers(-4, 5, tuple(shape)).astype(np.float32) for shape in shapes]
