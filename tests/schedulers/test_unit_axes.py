"""Statistics with a last axis of one element, where neighbors in memory are along the axis before."""

import numpy as np

import taskfuse as tf
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.unit_axes import without_unit_axes
from tests.schedulers.oracle import array, checked


def weights(n: int, c: int, side: int, *, is_turned: bool) -> tf.Fusion:
    """The gradient of a norm's weights: over an image whose channels come first, or last."""
    with tf.Fusion("weights") as fusion:
        shape = [n, c, side, side] if is_turned else [n, side, side, c]
        x = tf.define_tensor(shape, dtype=tf.bfloat16, name="x")
        mean = tf.define_tensor([n, side, side, 1], name="mean")
        last = tf.cast(tf.permute(x, [0, 2, 3, 1]) if is_turned else x, tf.float32)
        fusion.add_output(tf.sum(last * last - mean, (0, 1, 2)))
    return fusion


def test_means_of_pixels_are_read_without_their_axis() -> None:
    fusion = weights(2, 4, 8, is_turned=True)
    found = without_unit_axes(fusion)
    assert found is not None
    given = [array(2, 4, 8, 8, dtype=tf.bfloat16), array(2, 8, 8, 1)]
    assert np.array_equal(found.fusion.evaluate(*given)[0], fusion.evaluate(*given)[0])
    checked(fusion, given)


def test_means_of_rows_stay() -> None:
    assert without_unit_axes(weights(2, 4, 8, is_turned=False)) is None


def test_vectors_of_pixels_take_vectors_of_means() -> None:
    step = choose_segments(weights(32, 96, 56, is_turned=True)).steps[0]
    assert [list(map(str, tv.shape)) for tv in step.fusion.inputs if tv.dtype is tf.float32] == [["32", "56", "56"]]
