"""Activations of a few pieces or factors, against torch."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, X, check, torch
from tests.ops.reference import message

F = torch.nn.functional
M = RNG.normal(size=(3, 4, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    ["hardtanh", "relu6", "hardsigmoid", "hardswish", "mish", "selu", "celu", "softsign", "tanhshrink", "logsigmoid", "hardshrink", "softshrink"],
)
def test_of_one_number(name: str) -> None:
    check(getattr(tf, name), getattr(F, name), X)


def test_parameters() -> None:
    check(lambda x: tf.hardtanh(x, -0.5, 2), lambda x: F.hardtanh(x, -0.5, 2), X)
    check(lambda x: tf.celu(x, 0.5), lambda x: F.celu(x, 0.5), X)
    check(lambda x: tf.threshold(x, 0.3, 0.7), lambda x: F.threshold(x, 0.3, 0.7), X)
    check(lambda x: tf.softshrink(x, 1.5), lambda x: F.softshrink(x, 1.5), X)
    check(lambda x: tf.hardshrink(x, 1.5), lambda x: F.hardshrink(x, 1.5), X)
    whole = np.arange(-4, 9, dtype=np.int32)
    check(tf.relu6, F.relu6, whole)
    check(lambda x: tf.threshold(x, 2, 7), lambda x: F.threshold(x, 2, 7), whole)


def test_prelu() -> None:
    check(tf.prelu, F.prelu, M, np.array([0.1, 0.2, 0.3, 0.4], np.float32))
    check(tf.prelu, F.prelu, M[0, 0], np.array([0.1], np.float32))


def test_glu() -> None:
    check(tf.glu, F.glu, M)
    check(lambda x: tf.glu(x, 1), lambda x: F.glu(x, 1), M)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor([3, 4], name="x"), tf.define_tensor([4], "int32", name="n")
        assert message(lambda: tf.glu(x, 0)) == "glu: dimension 0 of x [3, 4] does not divide into halves\nhelp: give an even extent"
        assert message(lambda: tf.hardshrink(n)) == "hardshrink: n (int32) is not a float\nhelp: cast to a float first"
        assert message(lambda: tf.celu(x, 0)) == "celu: alpha is 0\nhelp: use a number other than 0, such as 1"
