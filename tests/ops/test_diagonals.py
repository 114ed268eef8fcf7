"""Matrices with a diagonal, against torch and NumPy."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import evaluated, message

V, A = (RNG.normal(size=shape).astype(np.float32) for shape in ((5,), (4, 6)))


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_diagonals(k: int) -> None:
    for x in (V, A):
        check(lambda x: tf.diag(x, k), lambda x: torch.diag(x, k), x)
    check(lambda x: tf.diag_embed(x, k, 0, 2), lambda x: torch.diag_embed(x, k, 0, 2), A)
    check(lambda x: tf.diag_embed(x, k), lambda x: torch.diag_embed(x, k), A > 0)


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_ones(k: int) -> None:
    for name in ("eye", "tri"):
        found = evaluated(lambda x, name=name: tf.add(getattr(tf, name)(4, 6, k, "int32"), tf.cast(x, "int32")), np.zeros((4, 6), np.float32))
        np.testing.assert_array_equal(found, getattr(np, name)(4, 6, k))


def test_symbolic_extents() -> None:
    found = evaluated(lambda x: tf.diag_embed(x, 1), V, shapes=[["N"]])
    np.testing.assert_array_equal(found, np.diag(V, 1))


def test_errors() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor([2, 3, 4], name="x")
        assert message(lambda: tf.diag(x)) == "diag: x [2, 3, 4] is neither a vector nor a matrix\nhelp: use tf.diagonal or tf.diag_embed"
        assert message(lambda: tf.diag_embed(x, 0, 1, 1)).startswith("diag_embed: axis1 and axis2 of x [2, 3, 4] are the same axis")
