"""Fusions for automatic schedules: axes stand as they lie in memory."""

from __future__ import annotations

import taskfuse as tf
from taskfuse.runtime.memory_order import in_given_order, in_memory_order, is_plain


def example() -> tf.Fusion:
    with tf.Fusion("lying") as fusion:
        x = tf.define_tensor([2, 3, 4], name="x", strides=[12, 1, 3])
        fusion.add_output(tf.exp(x), name="y", into=x)
        fusion.add_output(tf.neg(x), name="z", strides=[1, 2, 6])
    return fusion


def test_axes_are_in_the_order_of_memory() -> None:
    plain = in_memory_order(example())
    assert plain.orders == {"x": (0, 2, 1), "y": (0, 2, 1), "z": (2, 1, 0)}
    assert plain.into == {"y": "x"}
    assert [str(tuple(map(int, tv.shape))) for tv in (*plain.fusion.inputs, *plain.fusion.outputs)] == ["(2, 4, 3)", "(2, 4, 3)", "(4, 3, 2)"]
    assert [tv.name for tv in plain.fusion.outputs] == ["y", "z"]
    assert is_plain(plain.fusion)


def test_a_schedule_keeps_its_axes_and_its_places() -> None:
    plain = in_given_order(example())
    assert not plain.orders
    assert "OUTPUT y into x, z" in str(plain.fusion)
    assert "strides" not in str(plain.fusion)


def test_most_fusions_are_plain() -> None:
    with tf.Fusion("plain") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([3])))
    assert is_plain(fusion)
    fusion.add_output(fusion.inputs[0])
    assert not is_plain(fusion)
