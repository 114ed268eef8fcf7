"""Products of factors whose rows are not multiples of 16 bytes."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers.padded_products import pad_products
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT


def layer(m: int, k: int, n: int, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    with tf.Fusion("layer") as fusion:
        x, w = tf.define_tensor([m, k], dtype=dtype, name="x"), tf.define_tensor([k, n], dtype=dtype, name="w")
        fusion.add_output(tf.gelu(tf.relu(x) @ w))
    return fusion


def form(fusion: tf.Fusion) -> object:
    return pad_products(fusion, Sizes(fusion, None, DEFAULT))


def test_odd_widths_are_padded_by_what_makes_them() -> None:
    """What makes one factor pads it, beside a copy of the other; the product loads bulks, and its epilogue is its own."""
    run = tf.compile(layer(4096, 1023, 777), "sim", cache=False)
    assert run.schedule is not None
    assert "pad_product(1024, [0, 1])" in run.schedule.code
    assert len(run.kernels) == 2
    assert "TMA" in str(run.kernels[-1])
    assert run.schedule.us < 40


def test_a_factor_alone_is_turned() -> None:
    run = tf.compile(layer(4096, 1024, 777), "sim", cache=False)
    assert run.schedule is not None
    assert "pad_product(1024, [1])" in run.schedule.code


def test_a_batch_of_one_is_no_axis() -> None:
    with tf.Fusion("one") as fusion:
        x, w = tf.define_tensor([1, 4096, 1023], dtype=tf.bfloat16), tf.define_tensor([1, 1023, 777], dtype=tf.bfloat16)
        fusion.add_output(x @ w)
    assert form(fusion) is not None


@pytest.mark.parametrize(("m", "k", "n"), [(4096, 1024, 768), (64, 65, 66)])
def test_whole_rows_and_small_products_stay(m: int, k: int, n: int) -> None:
    assert form(layer(m, k, n)) is None


def test_float32_stays() -> None:
    assert form(layer(4096, 1023, 777, tf.float32)) is None


def test_results_are_those_of_the_math() -> None:
    with tf.Fusion("small") as fusion:
        x, w = tf.define_tensor([70, 43], dtype=tf.bfloat16, name="x"), tf.define_tensor([43, 29], dtype=tf.bfloat16, name="w")
        y = tf.matmul(x, w, dtype=tf.float32)
        fusion.add_output(tf.cast(y, tf.bfloat16))
    given = [np.random.default_rng(0).integers(-3, 4, tuple(int(str(e)) for e in tv.shape)).astype(tf.bfloat16.numpy) for tv in fusion.inputs]
    (wanted,) = fusion.evaluate(*given)
    y.pad_product(48, [0, 1])
    (found,) = tf.compile(tf.parse_fusion(str(fusion)), "sim", cache=False)(*given)
    assert np.array_equal(found, wanted)
