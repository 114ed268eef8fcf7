"""Gathers that a thread waits for."""

import pytest

import taskfuse as tf
from taskfuse.schedulers.gathers import waited
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import H200


def steps(rows: int, length: int) -> float:
    with tf.Fusion("f") as fusion:
        table, x = tf.define_tensor([rows, 127]), tf.define_tensor([rows, length])
        fusion.add_output(tf.searchsorted(table, x))
    return waited(fusion, Sizes(fusion, {}, H200))


def test_steps_of_a_bisection_follow_one_another_in_each_wave_of_threads() -> None:
    assert steps(8, 1024) == 6  # the first reads the middle
    assert steps(1024, 1024) == pytest.approx(6 * 2**20 / (132 * 2048))


def test_of_rows_at_one_index_each_a_wave_is_waited_for() -> None:
    with tf.Fusion("f") as fusion:
        index = tf.take(tf.define_tensor([100], tf.int32), tf.define_tensor([1 << 20], tf.int32), 0)
        fusion.add_output(tf.take(tf.define_tensor([100, 64]), index, 0))
    assert waited(fusion, Sizes(fusion, {}, H200)) == pytest.approx(2**20 / (132 * 2048))
