"""Rows of integers in order, by counting and by merging."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ops.merge import LONGEST, merged, ordered
from tests.ops.reference import evaluated, message

ROWS = np.random.default_rng(0).permutation(4 * 700).reshape(4, 700).astype(np.uint32)


@pytest.mark.parametrize("length", [1, 5, 256, 257, 700])
def test_rows_in_order(length: int) -> None:
    x = ROWS[:, :length]
    np.testing.assert_array_equal(evaluated(lambda a: ordered("sort", a), x), np.sort(x))


@pytest.mark.parametrize("first", [1, 40, 128, 200])
def test_the_first_of_rows(first: int) -> None:
    np.testing.assert_array_equal(evaluated(lambda a: ordered("topk", a, first), ROWS), np.sort(ROWS)[:, :first])


def test_symbolic_extents() -> None:
    n = tf.dim("N", max=600)
    np.testing.assert_array_equal(evaluated(lambda a: ordered("sort", a), ROWS[:, :500], shapes=[[4, n]]), np.sort(ROWS[:, :500]))
    with tf.Fusion("f"):
        x = tf.define_tensor([4, "N"], "uint32", name="x")
        assert message(lambda: ordered("sort", x)) == f"sort: rows of x [4, N] are not provably at most {LONGEST} long\nhelp: give facts with tf.dim(..., max=)"


def test_a_merge_is_proved_and_right() -> None:
    x = np.array([[[9, 4], [7, 1]], [[3, 2], [8, 5]]], np.uint32)
    with tf.Fusion("rows") as fusion:
        fusion.add_output(merged(tf.define_tensor(x.shape, "uint32"), 4))
    run = tf.compile(fusion)
    assert [kernel.verify().is_proved for kernel in run.kernels] == [True]
    np.testing.assert_array_equal(run(x)[0], [[[9, 7, 4, 1]], [[8, 5, 3, 2]]])
