"""Segmentations: what they say of their kernels, and their code."""

from dataclasses import replace

import numpy as np

import taskfuse as tf
from taskfuse.schedulers.segmenter import choose_segments
from tests.schedulers.oracle import array, checked


def test_one_segment_may_be_all() -> None:
    with tf.Fusion("segment") as fusion:
        x, unread = tf.define_tensor([5000], dtype=tf.uint8, name="x"), tf.define_tensor([2], name="unread")
        top = tf.argmax(x, 0, keepdims=True)
        fusion.add_output(tf.sigmoid(tf.cast(top, tf.float64))[0:1])
        fusion.add_output(tf.pad(top, [(0, 0)]))
    arguments = [np.resize(np.array([3, 1, 4, 1, 5], np.uint8), 5000), array(2)]
    found = checked(fusion, arguments)
    run = tf.compile(fusion)
    for a, b in zip(run(*arguments), fusion.evaluate(*arguments), strict=True):
        np.testing.assert_allclose(a, b)
    assert unread.name in str(fusion)
    assert len(found.steps) == 1
    assert run.kernel is run.kernels[0]
    assert run.certificate.is_proved


def test_several_kernels_and_why() -> None:
    with tf.Fusion("prologue") as fusion:
        a, b = (tf.define_tensor([4096, 4096], dtype=tf.bfloat16, name=name) for name in "ab")
        fusion.add_output(a @ tf.relu(b))
    found = choose_segments(fusion)
    assert (found.scheduler, found.us) == ("segmented", sum(step.schedule.us for step in found.steps))
    assert [(step.arguments, step.outputs) for step in found.steps] == [(("b",), ("tv2",)), (("a", "tv2"), (fusion.outputs[0].name,))]
    lines = found.explain().splitlines()
    assert lines[0].startswith(f"2 kernels, {found.us:.1f} us expected; as one kernel ")
    assert lines[1] == "cut at tv2: 33.6 MB"
    assert found.code.count("fusion = segmented.segments[") == 2


def test_what_is_far_from_the_roofline_of_one_launch_is_said() -> None:
    """A chain of small kernels takes launches, and bytes at cuts, that no single kernel would."""
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([64, 64], name="x")
        for axis in (0, 1, 0, 1):
            x = tf.cumsum(tf.exp(x), axis)
        fusion.add_output(x)
    found = choose_segments(fusion)
    assert found.us > 3 * found.bound > 0
    launches = len(found.steps) * found.launch_us
    assert f"times the roofline of {found.bound:.1f} us, which has one launch and no cuts: launches take {launches:.1f} us" in found.explain()
    near = replace(found, bound=found.us)
    assert "which has one launch" not in near.explain()
