"""Interpolation against weights in float64."""

import math

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.reference import Array, evaluated, message, numbers


def matrix(n: int, m: int, mode: str, align_corners: bool) -> Array:
    """The weights of n elements for m."""
    found = np.zeros((m, n))
    for o in range(m):
        if mode == "nearest":
            found[o, o * n // m] = 1
        elif mode == "nearest-exact":
            found[o, (2 * o + 1) * n // (2 * m)] = 1
        elif mode == "bicubic":
            at = o * (n - 1) / max(m - 1, 1) if align_corners else (o + 0.5) * n / m - 0.5
            low, a = math.floor(at), -0.75
            for k in range(low - 1, low + 3):
                d = abs(at - k)
                weight = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
                found[o, min(max(k, 0), n - 1)] += weight
        else:
            at = o * (n - 1) / max(m - 1, 1) if align_corners else max((o + 0.5) * n / m - 0.5, 0)
            low = int(at)
            found[o, low] += 1 - (at - low)
            found[o, min(low + 1, n - 1)] += at - low
    return found


@pytest.mark.parametrize(
    ("mode", "align_corners"), [("nearest", False), ("nearest-exact", False), ("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True)]
)
@pytest.mark.parametrize("size", [(14, 5), (3, 31), (1, 1)])
def test_interpolate(mode: str, align_corners: bool, size: tuple[int, int]) -> None:
    x = numbers((2, 7, 10), "float64")
    rows, columns = (matrix(n, m, mode, align_corners) for n, m in zip(x.shape[1:], size, strict=True))
    expected = np.einsum("ph,qw,bhw->bpq", rows, columns, x)
    np.testing.assert_allclose(evaluated(lambda a: tf.interpolate(a, size, mode, align_corners), x), expected, rtol=1e-12, atol=1e-12)
    symbolic = evaluated(lambda a: tf.interpolate(a, size, mode, align_corners), x, shapes=[["B", "H", "W"]])
    np.testing.assert_allclose(symbolic, expected, rtol=1e-12, atol=1e-12)
    narrow = evaluated(lambda a: tf.interpolate(a, size, mode, align_corners), x.astype(np.float16))
    np.testing.assert_allclose(narrow, expected, rtol=2e-3, atol=4e-3)


def test_nearest_elements_are_those_of_products_in_float32() -> None:
    """Of 10 elements for 14 threads of an element, 7 * (10 / 14) is less than 5 or not, as float32 rounds."""
    for n in range(1, 40):
        for m in (*range(1, 60), 3 * n):
            o = np.arange(m)
            scale = np.float32(n) / np.float32(m)
            expected = np.minimum(np.floor(o.astype(np.float32) * scale).astype(int), n - 1)
            if (expected != o * n // m).any():
                np.testing.assert_array_equal(evaluated(lambda a, m=m: tf.interpolate(a, [m]), np.arange(n)), expected)
                return
    raise AssertionError("no such extents")


def test_doubled_and_symbolic_extents_are_views() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor(["B", "H", "W"])
        y = tf.interpolate(x, [x.shape[1] * 2, x.shape[2] * 2])
        assert str(y.shape) == str((*x.shape[:1], x.shape[1] * 2, x.shape[2] * 2))
        assert type(y.definition).__name__ == "View"


def test_errors() -> None:
    with tf.Fusion("f"):
        x, n = tf.define_tensor([2, tf.dim("W", min=0)], name="x"), tf.define_tensor([4, 4], "int32", name="n")
        assert message(lambda: tf.interpolate(n, [2], "area")) == "interpolate: 'area' is not a mode\nhelp: use one of nearest, nearest-exact, linear, cubic"
        assert message(lambda: tf.interpolate(n, [2], "linear")) == "interpolate: n (int32) is not a float\nhelp: cast to a float first"
        assert message(lambda: tf.interpolate(n, [2, 2, 2])).startswith("interpolate: 3 sizes for n [4, 4]")
        assert message(lambda: tf.interpolate(x, [2])) == "interpolate: the extent W of x [2, W] may be 0\nhelp: declare the extent with tf.dim(..., min=1)"
