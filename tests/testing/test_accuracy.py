"""Errors in units in the last place: references, distances, samples, bounds."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from taskfuse.dtypes import DType, bfloat16, float8_e4m3, float8_e5m2, float16, float32, float64
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.testing.accuracy import BOUNDS, bound, moderate, reference, samples, terms, ulps

X = np.array([-20.0, -9.5, -3.0, -1.0, -0.25, -1e-9, 0.0, 1e-9, 0.5, 1.0, 2.9, 3.1, 9.9, 30.0])


def close(name: str, expected: list[float], rel: float = 1e-15) -> None:
    found = reference(ELEMENTWISE[name], [X]).astype(np.float64)
    assert found == pytest.approx(expected, rel=rel, abs=1e-300)


# -- references -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "exact"), [("erf", math.erf), ("erfc", math.erfc)])
def test_references_agree_with_the_library(name: str, exact: Callable[[float], float]) -> None:
    close(name, [exact(float(x)) for x in X])


def test_compositions() -> None:
    sigmoid = [1 / (1 + math.exp(-x)) for x in X]
    close("sigmoid", sigmoid)
    close("silu", [x * s for x, s in zip(X, sigmoid, strict=True)])
    close("gelu", [x * math.erfc(-x / math.sqrt(2)) / 2 for x in X], 1e-13)  # the factor of float64 is not exact


def test_the_sum_of_a_product_is_rounded_once() -> None:
    a, b, c = np.array([1 + 2.0**-30]), np.array([1 - 2.0**-30]), np.array([-1.0])
    assert float(reference(ELEMENTWISE["fma"], [a, b, c])[0]) == -(2.0**-60)
    assert a[0] * b[0] + c[0] == 0.0


def test_not_a_number_stays_so() -> None:
    for name in ("erf", "erfc", "gelu", "silu"):
        assert np.isnan(reference(ELEMENTWISE[name], [np.array([np.nan])]))[0]


# -- distances --------------------------------------------------------------------------------------------------------------------------------


def distance(got: float, exact: float, dtype: DType = float32) -> float:
    return float(ulps(np.array([got]).astype(dtype.numpy), np.array([exact], np.longdouble), dtype)[0])


def test_a_distance_is_in_the_last_place_of_the_exact_value() -> None:
    assert distance(1.0, 1.0) == 0
    assert distance(1 + 2.0**-23, 1.0) == 1
    assert distance(1.0, 1 + 2.0**-24) == 0.5
    assert distance(2.0, 2 - 2.0**-23) == 1  # of the place below 2
    assert distance(0.0, 2.0**-149) == 1  # subnormals share the last place
    assert distance(0.0, -0.0) == 0


def test_not_a_number() -> None:
    assert distance(math.nan, math.nan) == 0
    assert distance(math.nan, 1.0) == math.inf
    assert distance(1.0, math.nan) == math.inf


def test_infinity_is_the_power_after_the_greatest_number() -> None:
    greatest = float(np.finfo(np.float32).max)
    assert distance(math.inf, greatest) == 1
    assert distance(math.inf, 1e300) == 0
    assert distance(-math.inf, math.inf) > 1e6


def test_a_dtype_without_infinity_has_none() -> None:
    assert distance(math.nan, 500.0, float8_e4m3) == 0
    assert distance(448.0, 500.0, float8_e4m3) == math.inf
    assert distance(448.0, 450.0, float8_e4m3) < 0.5
    assert distance(math.inf, 1e6, float8_e5m2) == 0


# -- bounds and samples -----------------------------------------------------------------------------------------------------------------------


def test_bounds_count_from_the_exact_value() -> None:
    f32, f64 = BOUNDS["exp"]
    assert bound("exp", float32) == f32 + 0.5
    assert bound("exp", float64) == f64 + 0.5
    assert 0.5 < bound("exp", bfloat16) < bound("exp", float16) < 0.6  # rounded once more
    with pytest.raises(KeyError):
        bound("add", float32)


def test_all_values_of_a_small_dtype() -> None:
    (found,) = samples(ELEMENTWISE["exp"], bfloat16, 1 << 16)
    assert len(np.unique(found.view(np.uint16))) == 1 << 16


def test_special_values_in_all_combinations() -> None:
    a, b = samples(ELEMENTWISE["pow"], float32, 5000, seed=1)
    assert len(a) == len(b) == 5000
    pairs = {(str(x), str(y)) for x, y in zip(a, b, strict=True)}
    assert {("inf", "nan"), ("-0.0", "inf"), ("nan", "0.0")} <= pairs
    again = samples(ELEMENTWISE["pow"], float32, 5000, seed=1)
    assert a.tobytes() == again[0].tobytes()
    assert a.tobytes() != samples(ELEMENTWISE["pow"], float32, 5000, seed=2)[0].tobytes()


def test_moderate_magnitudes() -> None:
    found = moderate([np.array([1 / 256, 8.0, 0.0, 1.0, np.nan]), np.array([-1.0, -1.0, 1.0, 9.0, 1.0])])
    assert found.tolist() == [True, True, False, False, False]


def test_functions_with_zeros_are_measured_by_what_they_add() -> None:
    x = np.array([1.4616321449683623, -0.5, 3.0])
    assert (terms(ELEMENTWISE["digamma"], [x]) >= 0.5).all()
    assert terms(ELEMENTWISE["lgamma"], [x])[[0, 2]].tolist() == [0, 0]
    assert terms(ELEMENTWISE["lgamma"], [np.array([-2.4570247382208006])])[0] > 1
    assert terms(ELEMENTWISE["exp"], [x]).tolist() == [0, 0, 0]
    exact = reference(ELEMENTWISE["digamma"], [x])
    assert ulps(np.array([1e-16, float(exact[1]), float(exact[2])]), exact, float64, terms(ELEMENTWISE["digamma"], [x])).max() < 2


@pytest.mark.parametrize("name", ["erfinv", "erfcinv"])
def test_inverses(name: str) -> None:
    x = np.array([1e-300, 1e-9, 0.3, 0.5, 0.75, 1 - 1e-9, 5e-324])
    y = reference(ELEMENTWISE[name], [x])
    back = reference(ELEMENTWISE[name.removesuffix("inv")], [y.astype(np.float64)])
    assert back.astype(np.float64) == pytest.approx(x, rel=1e-12 if name == "erfinv" else 1e-11, abs=1e-16)
