"""Numbers in equal steps and functions known at some places, against NumPy and torch."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, check, torch
from tests.ops.reference import evaluated, message

M, X = RNG.normal(size=(3, 4, 6)).astype(np.float32), np.sort(RNG.normal(size=6)).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_linspace(n: int) -> None:
    found = evaluated(lambda x: tf.add(x, tf.linspace(-2.0, 5.0, n)), np.zeros(n, np.float32))
    np.testing.assert_allclose(found, torch.linspace(-2, 5, n).numpy(), rtol=1e-6, atol=1e-6)
    symbolic = evaluated(lambda x: tf.add(x, tf.linspace(-2.0, 5.0, x.shape[0], "float64")), np.zeros(n), shapes=[["N"]])
    np.testing.assert_allclose(symbolic, np.linspace(-2, 5, n), rtol=1e-12)


def test_trapezoid() -> None:
    check(lambda y: tf.trapezoid(y, dx=0.5), lambda y: torch.trapezoid(y, dx=0.5), M, rtol=1e-5)
    check(lambda y, x: tf.trapezoid(y, x), lambda y, x: torch.trapezoid(y, x), M, X, rtol=1e-5)
    check(lambda y, x: tf.trapezoid(y, x, axis=1), lambda y, x: torch.trapezoid(y, x, dim=1), M, M + 1, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (7, 3), (3, 7)])
def test_convolve(m: int, n: int) -> None:
    a, b = RNG.integers(-5, 5, m), RNG.integers(-5, 5, n)
    np.testing.assert_array_equal(evaluated(tf.convolve, a, b), np.convolve(a, b))
    np.testing.assert_allclose(evaluated(tf.convolve, a.astype(np.float32), b.astype(np.float32), shapes=[["M"], ["N"]]), np.convolve(a, b))


def test_interp() -> None:
    xp, fp = np.array([-1.0, 0.0, 0.0, 2.5]), np.array([3.0, 1.0, -1.0, 7.0])
    x = np.array([-5, -1, -0.5, 0, 0.1, 2.4, 2.5, 9, np.nan])
    np.testing.assert_allclose(evaluated(tf.interp, x, xp, fp), np.interp(x, xp, fp), rtol=1e-14)


def test_errors() -> None:
    with tf.Fusion("f"):
        x, v = tf.define_tensor([2, 6], name="x"), tf.define_tensor([4], name="v")
        assert message(lambda: tf.linspace(0, 1, 3, "int32")) == "linspace: int32 is not a float\nhelp: use tf.arange for integers"
        assert message(lambda: tf.convolve(x, v)).startswith("convolve: x [2, 6] and v [4] are not provably nonempty vectors")
        assert message(lambda: tf.interp(x, v, x)).startswith("interp: v [4] and x [2, 6] are not points and their values")
