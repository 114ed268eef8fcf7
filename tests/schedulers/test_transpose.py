"""Elementwise functions of inputs of which some are contiguous along another axis."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers import TransposeConfig
from tests.schedulers.automatic import transposed
from tests.schedulers.oracle import array, checked


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8, tf.float64])
def test_transposes_have_vectors_on_both_sides(dtype: tf.DType) -> None:
    found = checked(transposed(dtype, 64, 192), [(np.arange(64 * 192) % 100).reshape(64, 192).astype(dtype.numpy)])
    config = found.steps[0].schedule.config
    assert isinstance(config, TransposeConfig)
    assert config.vector == config.turned == 16 // dtype.itemsize


def test_transposes_of_any_size() -> None:
    found = checked(transposed(tf.float32, "M", "N"), [array(45, 70)])
    assert found.steps[0].schedule.scheduler == "transpose"


def test_a_matrix_and_its_transpose() -> None:
    with tf.Fusion("both") as fusion:
        x, y, b = tf.define_tensor(["N", "N"], name="x"), tf.define_tensor(["N", "N"], name="y"), tf.define_tensor(["N"], name="b")
        fusion.add_output(x + x.T * y + tf.exp(b))
        fusion.add_output(x - y.T)
    assert checked(fusion, [array(33, 33), array(33, 33), array(33)]).steps[0].schedule.scheduler == "transpose"


@pytest.mark.parametrize("end", [1, 5])
def test_a_padded_transpose_passes_through_tiles(end: int) -> None:
    with tf.Fusion("padded") as fusion:
        x = tf.define_tensor([63, 70], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.pad(x.T, ((0, 0), (0, end))))
    found = checked(fusion, [array(63, 70, dtype=tf.bfloat16)])
    assert found.steps[0].schedule.scheduler == "transpose"
    assert found.steps[0].schedule.config.turned == 1
