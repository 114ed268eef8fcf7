"""Norms of channels, against torch."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import message

F = torch.nn.functional
X = RNG.normal(size=(2, 6, 4, 5)).astype(np.float32)
MEAN, WEIGHT, BIAS = (RNG.normal(size=6).astype(np.float32) for _ in range(3))
VAR = np.abs(MEAN) + np.float32(0.1)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm(groups: int) -> None:
    check(lambda x, w, b: tf.group_norm(x, groups, w, b), lambda x, w, b: F.group_norm(x, groups, w, b), X, WEIGHT, BIAS, rtol=1e-5, atol=2e-6)
    check(lambda x: tf.group_norm(x, groups), lambda x: F.group_norm(x, groups), X[:, :, 0].copy(), rtol=1e-5, atol=2e-6)


def test_instance_norm() -> None:
    check(tf.instance_norm, lambda x, w, b: F.instance_norm(x, weight=w, bias=b), X, WEIGHT, BIAS, rtol=1e-5, atol=2e-6)


def test_batch_norm() -> None:
    check(tf.batch_norm, F.batch_norm, X, MEAN, VAR, WEIGHT, BIAS, rtol=1e-5, atol=2e-6)
    check(tf.batch_norm, F.batch_norm, X[:, :, 0, 0].copy(), MEAN, VAR, rtol=1e-5, atol=2e-6)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, v = tf.define_tensor([2, 6], name="x"), tf.define_tensor([4], name="v")
        assert message(lambda: tf.group_norm(v, 1)) == "group_norm: v [4] has no channel dimension\nhelp: give [N, C, ...]"
        assert message(lambda: tf.group_norm(x, 4)).startswith("group_norm: 4 groups do not divide the 6 channels of x [2, 6]")
        assert message(lambda: tf.batch_norm(x, v, v)).startswith("batch_norm: v [4] does not have one element per channel of x [2, 6]")
        assert message(lambda: tf.instance_norm(x)).startswith("instance_norm: x [2, 6] has one element per channel")
