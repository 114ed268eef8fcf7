"""Special functions against torch in float64, at the ends of their domains, and in longdouble against constants."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from taskfuse.ir.special_functions import digamma, erfcinv, erfinv, lgamma, zeta

RNG = np.random.default_rng(0)
GREAT = 10.0 ** RNG.uniform(-9, 9, 300)


def of_torch(name: str, *x: Any) -> Any:
    return getattr(torch.special, name)(*(torch.from_numpy(np.asarray(v)) for v in x)).numpy()


@pytest.mark.parametrize(
    ("function", "name", "x", "rel"),
    [
        (lgamma, "gammaln", np.concatenate([RNG.uniform(0, 30, 2000), GREAT, [0.0, -0.0, 1, 2, -1, -7, np.inf, -np.inf, np.nan, 13, 2.5]]), 2e-15),
        (lgamma, "gammaln", RNG.uniform(-0.99, -0.01, 500), 2e-15),
        (digamma, "digamma", np.concatenate([RNG.uniform(2, 30, 2000), GREAT[GREAT > 2], [0.0, -0.0, -1, -7, np.inf, -np.inf, np.nan]]), 1e-14),
        (erfinv, "erfinv", np.concatenate([RNG.uniform(-1, 1, 2000), 1 - 10 ** RNG.uniform(-16, 0, 300), [0, -0.0, 1, -1, 1.5, -2, np.nan, 1e-310]]), 1e-15),
    ],
)
def test_against_torch(function: Callable[..., Any], name: str, x: Any, rel: float) -> None:
    np.testing.assert_allclose(function(x), of_torch(name, x), rtol=rel)
    narrow = x.astype(np.float32)
    np.testing.assert_array_equal(function(narrow), function(narrow.astype(np.float64)).astype(np.float32))


def test_zeros_keep_their_places() -> None:
    near = np.array([1 + 2.0**-40, 2 - 2.0**-40])
    np.testing.assert_allclose(lgamma(near), np.array([-0.5772156649015329, -0.42278433509846713]) * 2.0**-40, rtol=1e-11)
    assert np.signbit(lgamma(np.array([1 + 2.0**-52])))[0]


def test_negative_numbers() -> None:
    x = RNG.uniform(-20, 0, 500)
    np.testing.assert_allclose(lgamma(x), of_torch("gammaln", x), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(digamma(x), of_torch("digamma", x), rtol=1e-11, atol=1e-12)
    assert lgamma(np.array([-1e-320, -1e300])).tolist() == [pytest.approx(736.8272408909739), math.inf]


def test_zeta() -> None:
    s, q = RNG.uniform(1.01, 40, 2000), 10 ** RNG.uniform(-3, 4, 2000)
    np.testing.assert_allclose(zeta(s, q), of_torch("zeta", s, q), rtol=5e-14)
    s, q = RNG.integers(2, 12, 500).astype(np.float64), RNG.uniform(-30, 0, 500)
    np.testing.assert_allclose(zeta(s, q), of_torch("zeta", s, q), rtol=1e-11)
    # infinite terms of both signs
    assert zeta(np.array([709.0, 709.0, 710.0]), np.array([-0.1, -0.9, -0.1])).tolist() == [-math.inf, math.inf, math.inf]
    assert zeta(np.array([1001.0]), np.array([-0.5])).tolist() == zeta(np.array([1001.0]), np.array([1.5])).tolist()
    assert zeta(np.array([2.0]), np.array([1e200])).tolist() == [1e-200]


def test_erfcinv_is_the_inverse() -> None:
    p = np.concatenate([10 ** RNG.uniform(-300, 0, 500), RNG.uniform(0, 2, 500)])
    y = erfcinv(p)
    np.testing.assert_allclose([math.erfc(v) for v in y], p, rtol=3e-13)
    np.testing.assert_allclose(y[p > 1e-3], -erfcinv(2 - p[p > 1e-3]), rtol=1e-9)
    assert erfcinv(np.array([0.0, 2.0, 1.0])).tolist() == [math.inf, -math.inf, 0]
    assert np.isnan(erfcinv(np.array([-0.1, 2.1, np.nan]))).all()
    assert erfcinv(np.array([5e-324]))[0] == pytest.approx(27.213293210812948, abs=1e-14)


def test_in_longdouble() -> None:
    one = np.ones(1, np.longdouble)
    pi = 4 * np.arctan(one)
    assert abs(digamma(one)[0] + np.longdouble("0.57721566490153286060651209008")) < 1e-18
    assert abs(lgamma(one / 2)[0] - np.log(pi[0]) / 2) < 1e-18
    assert abs(zeta(2 * one, one)[0] - pi[0] ** 2 / 6) < 1e-18
