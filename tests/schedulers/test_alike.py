"""What elements have in common is computed once, for a thread or for a vector."""

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse.schedulers.segmenter import choose_segments
from tests.schedulers.oracle import array, checked


def test_what_all_elements_have_in_common_is_computed_once() -> None:
    """The corrections of a step of an optimizer take long; a sum of two scalars does not, and stays with the elements."""
    with tf.Fusion("step") as fusion:
        x, step = tf.define_tensor([8, 64], name="x"), tf.define_tensor([], name="step")
        fusion.add_output(x / (1.0 - tf.pow(0.9, step)) + tf.pow(0.99, step))
    (found,) = checked(fusion, [array(8, 64), np.float32(3.0).reshape(())]).steps
    assert found.schedule.scheduler == "pointwise"
    text = str(tf.lower(found.fusion))
    assert "pow" not in text[text.index("FOR") :]
    with tf.Fusion("short") as fusion:
        x, step = tf.define_tensor([8, 64], name="x"), tf.define_tensor([], name="step")
        fusion.add_output(x * (step + 1.0))
    (found,) = choose_segments(fusion).steps
    assert "drop_axes" not in found.schedule.code


def test_a_gather_at_a_computed_place_of_a_row_loads_vectors() -> None:
    """The place is computed once for all of a vector; an index that changes along the last axis has each element loaded alone."""
    with tf.Fusion("rows") as fusion:
        table, image, row = tf.define_tensor([64, 32], tf.bfloat16), tf.define_tensor([6], tf.int64), tf.define_tensor([6, 10], tf.int64)
        places = tf.reshape(image * 8, [6, 1]) + row
        fusion.add_output(tf.reshape(tf.take(table, tf.reshape(places, [60]), axis=0), [6, 10, 32]) * 2)
    tf.schedulers.pointwise(fusion)
    kernel = tf.lower(fusion)
    assert "width 8 at" in str(kernel)
    assert kernel.verify().is_proved
    given = np.ones((64, 32), ml_dtypes.bfloat16) * np.arange(64, dtype=ml_dtypes.bfloat16)[:, None], np.arange(6), np.arange(60).reshape(6, 10) % 10
    assert np.array_equal(kernel.simulate(*given, seed=1)[0], fusion.evaluate(*given)[0])
