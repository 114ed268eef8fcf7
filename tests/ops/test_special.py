"""Special functions composed of others, against torch."""

import numpy as np
import pytest

import taskfuse as tf
from tests.ops.of_torch import RNG, X, check, torch
from tests.ops.reference import evaluated, message

Y = np.abs(np.roll(X, 7))
P = RNG.uniform(0, 1, 50).astype(np.float32)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_products_with_logarithms(name: str) -> None:
    check(getattr(tf, name), getattr(torch.special, name), X, Y)


@pytest.mark.parametrize("name", ["entr", "sinc", "ndtr"])
def test_of_all_numbers(name: str) -> None:
    check(getattr(tf, name), getattr(torch.special, name), X)


@pytest.mark.parametrize("name", ["ndtri", "logit"])
def test_of_parts(name: str) -> None:
    check(getattr(tf, name), getattr(torch.special, name), P, rtol=1e-5)


def test_logit_clamps() -> None:
    check(lambda x: tf.logit(x, 0.1), lambda x: torch.logit(x, 0.1), X)


def test_logarithms_of_sums() -> None:
    check(tf.logaddexp2, torch.logaddexp2, X, Y)
    check(tf.logaddexp, torch.logaddexp, X, Y)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_polygamma(n: int) -> None:
    x = X[np.isfinite(X) & (np.rint(X) != X)]
    check(lambda v: tf.polygamma(n, v), lambda v: torch.polygamma(n, v.double()).float(), x, rtol=1e-5)
    check(lambda v: tf.polygamma(n, v), lambda v: torch.polygamma(n, v), Y[Y > 0.1].astype(np.float64)[:40], rtol=1e-12)


def test_polygamma_at_its_poles() -> None:
    np.testing.assert_array_equal(evaluated(lambda x: tf.polygamma(1, x), np.array([0.0, -2.0, np.nan])), [np.inf, np.inf, np.nan])


def test_mvlgamma() -> None:
    check(lambda x: tf.mvlgamma(x, 3), lambda x: torch.mvlgamma(x, 3), Y[np.isfinite(Y)] + 2)


@pytest.mark.parametrize("name", ["deg2rad", "rad2deg"])
def test_angles(name: str) -> None:
    check(getattr(tf, name), getattr(torch, name), X)


def test_heaviside() -> None:
    np.testing.assert_array_equal(evaluated(tf.heaviside, X, Y), np.heaviside(X, Y))
    whole = np.array([-2, 0, 3], np.int32)
    np.testing.assert_array_equal(evaluated(lambda x: tf.heaviside(x, 7), whole), [0, 7, 1])
    np.testing.assert_array_equal(evaluated(lambda x: tf.heaviside(x, 0.5), whole), [0, 0.5, 1])


def test_errors() -> None:
    with tf.Fusion("f"):
        x = tf.define_tensor([4], name="x")
        assert message(lambda: tf.polygamma(-1, x)) == "polygamma: -1 is not an order of a derivative\nhelp: use an integer of at least 0"
        assert message(lambda: tf.mvlgamma(x, 0)) == "mvlgamma: 0 is not a number of dimensions\nhelp: use an integer of at least 1"
