"""The iteration space of a fusion with reductions."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.schedulers.space import find
from taskfuse.testing.tolerance import accepted
from tests.proofs import proved
from tests.schedulers.reduced import x


def test_rows_of_a_view() -> None:
    """Halves of a row, of an input that has it whole: vectors lie side by side in both."""
    with tf.Fusion("groups") as fusion:
        a = x(2, 8, 16)
        fusion.add_output(tf.layer_norm(tf.reshape(a, (2, 2, 4, 16)), None, None, (2, 3)))
    reference, _ = tf.copy_fusion(fusion)
    tf.schedulers.normalization(fusion)
    kernel = tf.lower(fusion)
    proved(kernel)
    assert "width 4" in str(kernel)
    args = [np.random.default_rng(0).normal(size=(2, 8, 16)).astype(np.float32)]
    for found, wanted in zip(kernel.simulate(*args), accepted(reference, args), strict=True):
        assert not len(wanted.wrong(found))


def test_elements_from_other_places_are_walked_along_what_lies_side_by_side() -> None:
    """Pixels of images, each of which is a row of channels: neighbors in memory are pixels, which threads of a warp take."""
    with tf.Fusion("pixels") as fusion:
        a = x(2, 5, 8, 16)
        fusion.add_output(tf.max(tf.reshape(tf.permute(a, [0, 2, 3, 1]), [256, 5]), 1))
    chosen = tf.schedulers.reduction(fusion)
    assert "across" in chosen.explain()
    kernel = tf.lower(fusion)
    proved(kernel)
    args = [np.random.default_rng(0).normal(size=(2, 5, 8, 16)).astype(np.float32)]
    assert np.array_equal(kernel.simulate(*args)[0], args[0].transpose(0, 2, 3, 1).reshape(256, 5).max(1))


def test_groups_of_rows_of_an_input_are_read_in_vectors() -> None:
    with tf.Fusion("groups") as fusion:
        fusion.add_output(tf.max(tf.reshape(x(6, 64), [24, 16]), 1))
    tf.schedulers.reduction(fusion)
    kernel = tf.lower(fusion)
    proved(kernel)
    assert "width 4" in str(kernel)


def test_places_that_a_table_tells_are_no_steps_along_an_axis() -> None:
    """The matrix of each row of a grouped product: where the next element of a row lies is asked of the integers of its index alone."""
    with tf.Fusion("table") as fusion:
        a, b = tf.define_tensor([64, 64], dtype=tf.bfloat16, name="a"), tf.define_tensor([3, 64, 64], dtype=tf.bfloat16, name="b")
        fusion.add_output(tf.logical_not(tf.neg(tf.grouped_matmul_aligned(a, b, tf.table("t0", 4, 64, tf.int64), tile=64))))
    tf.schedulers.normalization(fusion)
    proved(tf.lower(fusion))


@pytest.mark.parametrize(("dtype", "width"), [(tf.bfloat16, 8), (tf.float32, 8), (tf.int8, 16)])
def test_results_of_rows_do_not_lengthen_vectors(dtype: tf.DType, width: int) -> None:
    """Whether a column has a large element is a byte, and there are few of these."""
    with tf.Fusion("columns") as fusion:
        fusion.add_output(tf.max(tf.define_tensor([80, 6400], dtype, name="x"), 0) > 1)
    assert find(fusion).width == width
