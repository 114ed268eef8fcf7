"""Reductions of a few terms that make many elements of few."""

import numpy as np

import taskfuse as tf
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.short_sums import unroll_short_sums
from taskfuse.target import DEFAULT


def nearest(rows: int, columns: int, coordinates: int) -> tf.Fusion:
    """The nearest of some points, in two directions."""
    with tf.Fusion("nearest") as fusion:
        a, b = (tf.define_tensor([n, coordinates], name=name) for n, name in ((rows, "a"), (columns, "b")))
        y = tf.sum(tf.abs(tf.expand_dims(a, 1) - tf.expand_dims(b, 0)), 2)
        fusion.add_output(tf.min(y, 0))
    return fusion


def form(fusion: tf.Fusion) -> object:
    return unroll_short_sums(fusion, Sizes(fusion, None, DEFAULT))


def test_sums_of_coordinates_are_elementwise() -> None:
    """One kernel, which stores no distances."""
    run = tf.compile(nearest(2048, 2048, 3), "sim", cache=False)
    assert run.schedule is not None
    assert "unroll_reduction" in run.schedule.code
    assert len(run.kernels) == 1
    small = nearest(40, 24, 3)
    given = [np.random.default_rng(0).random(tuple(int(str(e)) for e in tv.shape), np.float32) for tv in small.inputs]
    assert np.allclose(tf.compile(small, "sim", cache=False)(*given)[0], small.evaluate(*given)[0], rtol=1e-5)


def test_long_sums_and_those_that_make_fewer_elements_stay() -> None:
    assert form(nearest(2048, 2048, 3)) is not None
    assert form(nearest(2048, 2048, 8)) is None
    with tf.Fusion("rows") as fusion:
        fusion.add_output(tf.exp(tf.sum(tf.define_tensor([4096, 4]), 1)))
    assert form(fusion) is None
