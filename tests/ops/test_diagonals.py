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


@pytest.mark.parametrize("k", [-2, 0, 1])
def test_a_diagonal_is_replaced(k: int) -> None:
    x = RNG.normal(size=(4, 3, 6)).astype(np.float32)
    y = np.arange(x.diagonal(k, 0, 2).size, dtype=np.float32).reshape(x.diagonal(k, 0, 2).shape)
    check(lambda x, y: tf.diagonal_scatter(x, y, k, 0, 2), lambda x, y: torch.diagonal_scatter(x, y, k, 0, 2), x, y)
    check(lambda x, y: tf.diagonal_scatter(x, y, k, -1, 0), lambda x, y: torch.diagonal_scatter(x, y, k, -1, 0), x, x.diagonal(k, 2, 0).copy())


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 3), (3, 5), (300, 200)])
def test_indices_of_triangles(rows: int, columns: int) -> None:
    for name in ("tril_indices", "triu_indices"):
        for k in (1 - rows, -1, 0, 2):
            wanted = getattr(torch, name)(rows, columns, k).numpy()
            with tf.Fusion("indices") as fusion:
                if wanted.size:
                    fusion.add_output(getattr(tf, name)(rows, columns, k))
                    np.testing.assert_array_equal(fusion.evaluate()[0], wanted)
                else:
                    assert message(lambda name=name, k=k: getattr(tf, name)(rows, columns, k)).endswith(f"matrix [{rows}, {columns}] has no elements")


def test_symbolic_extents() -> None:
    found = evaluated(lambda x: tf.diag_embed(x, 1), V, shapes=[["N"]])
    np.testing.assert_array_equal(found, np.diag(V, 1))


def test_errors() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor([2, 3, 4], name="x")
        assert message(lambda: tf.diag(x)) == "diag: x [2, 3, 4] is neither a vector nor a matrix\nhelp: use tf.diagonal or tf.diag_embed"
        assert message(lambda: tf.diag_embed(x, 0, 1, 1)).startswith("diag_embed: axis1 and axis2 of x [2, 3, 4] are the same axis")
        wrong = tf.define_tensor([2, 4], name="y")
        assert message(lambda: tf.diagonal_scatter(x, wrong, 0, 1, 2)).startswith("diagonal_scatter: y [2, 4] has not the shape [2, 3] of the diagonal of x")
        assert message(lambda: tf.tril_indices(3, k=True)).startswith("tril_indices: True is not a diagonal")
