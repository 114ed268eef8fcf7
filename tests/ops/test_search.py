"""Places that data decides, against NumPy."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.reference import evaluated, message, numbers


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
@pytest.mark.parametrize("n", [1, 7, 8, 20])
def test_searchsorted(dtype: str, n: int) -> None:
    table, values = np.sort(numbers((n,), dtype, high=9)), numbers((3, 5), dtype, 1, high=10)
    if dtype == "float32":
        values[0, :2] = np.nan, np.inf
    shapes: list[list[Any]]
    for shapes in ([[n], [3, 5]], [["N"], ["A", "B"]], [[tf.dim("N", max=25)], [3, 5]]):
        for right, side in ((False, "left"), (True, "right")):
            found = evaluated(lambda t, v, right=right: tf.searchsorted(t, v, right), table, values, shapes=shapes)
            assert found.dtype == np.int64
            np.testing.assert_array_equal(found, np.searchsorted(table, values, "left" if side == "left" else "right"))


def test_a_table_for_each_row() -> None:
    table, values = np.sort(numbers((4, 6), "float32")), numbers((4, 9), "float32", 1)
    expected: list[Any] = [np.searchsorted(t, v) for t, v in zip(table, values, strict=True)]
    np.testing.assert_array_equal(evaluated(lambda t, v: tf.searchsorted(t, v), table, values), expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_histc(dtype: str) -> None:
    x = np.array([*np.linspace(-2, 4, 49), -1, 3, np.nan, np.inf]).astype(dtype)
    found = evaluated(lambda a: tf.histc(a, 8, -1, 3), x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.histogram(x[np.isfinite(x)].astype(np.float64), 8, (-1, 3))[0])


@pytest.mark.parametrize("size", [2, 60])
def test_nonzero(size: int) -> None:
    x = numbers((4, 5, 3), "float32", low=-1, high=1).round()
    expected = np.argwhere(x)[:size]
    found = evaluated(lambda a: tf.nonzero(a, size, fill=-7), x)
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert (found[len(expected) :] == -7).all()


def test_a_kernel() -> None:
    table, values = np.sort(numbers((5,), "float32")), numbers((4,), "float32", 1)
    with tf.Fusion("search") as fusion:
        fusion.add_output(tf.searchsorted(tf.define_tensor([5]), tf.define_tensor([4])))
    run = tf.compile(fusion)
    assert [kernel.verify().is_proved for kernel in run.kernels] == [True]
    np.testing.assert_array_equal(run(table, values)[0], np.searchsorted(table, values))


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor([4, 5], name="x"), tf.define_tensor([3], "int32", name="n")
        assert message(lambda: tf.searchsorted(x, n)) == (
            "searchsorted: x [4, 5] is neither one table nor one per row of n [3]\nhelp: give a 1-d table, or one for each row"
        )
        assert message(lambda: tf.histc(n, 3, 0, 1)) == "histc: n (int32) is not a float\nhelp: cast to a float first, or use tf.bincount"
        assert message(lambda: tf.histc(x, 3, 1, 1)).startswith("histc: the range [1, 1] is empty")
        assert message(lambda: tf.nonzero(tf.sum(x), 3)).startswith("nonzero: ")


def test_bucketize_and_isin() -> None:
    x, table = numbers((5, 7), "int32"), np.array([-3, -1, 0, 2, 2], np.int32)
    for right in (False, True):
        found = evaluated(lambda a, b, right=right: tf.bucketize(a, b, right), x, table)
        np.testing.assert_array_equal(found, np.searchsorted(table, x, "right" if right else "left"))
    np.testing.assert_array_equal(evaluated(tf.isin, x, table), np.isin(x, table))
    with tf.Fusion("f"):
        a = tf.define_tensor([2, 3], name="a")
        assert message(lambda: tf.bucketize(a, a)) == "bucketize: a [2, 3] is not 1-d\nhelp: use tf.searchsorted for a table of each row"
