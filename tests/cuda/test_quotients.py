"""Reciprocals of constants in two parts: for which constants all quotients are correctly rounded."""

from fractions import Fraction

import numpy as np
import pytest

from taskfuse.cuda.quotients import reciprocal_parts

EVERY = np.arange(1 << 23, 1 << 24, 7, dtype=np.int64)
"""Significands."""


def wrong(divisor: float, high: float, low: float, dividends: np.ndarray) -> np.ndarray:
    """The dividends whose quotients are not correctly rounded: products with the greater part are exact in float64, and sums in long double nearly so."""
    x = dividends.astype(np.float32)
    product = (x.astype(np.float64) * high).astype(np.longdouble) + (x * np.float32(low)).astype(np.longdouble)
    return dividends[product.astype(np.float32) != (x.astype(np.float64) / divisor).astype(np.float32)]


@pytest.mark.parametrize("divisor", [3.0, 30.0, -448.0, 0.1, 1.2, 3.1415927, 2.0**24 - 1, 2.0**21 + 1, 1e-6])
def test_quotients_by_two_parts_of_a_reciprocal(divisor: float) -> None:
    divisor = float(np.float32(divisor))
    parts = reciprocal_parts(divisor)
    assert parts is not None
    assert np.sign(parts.high) == np.sign(parts.low) == np.sign(divisor)  # the sum of two infinities is no NaN
    assert [float(np.float32(part)) for part in parts] == list(parts)
    assert wrong(divisor, *parts, EVERY).size == 0


def test_a_constant_by_which_one_quotient_would_be_wrong() -> None:
    """0.7 in float32: of all significands one is so near to the middle of two numbers that the errors of the parts decide."""
    divisor = float(np.float32(0.7))
    assert reciprocal_parts(divisor) is None
    exact = 1 / Fraction(divisor)
    high = float(np.float32(exact))
    high = float(np.nextafter(np.float32(high), np.float32(0))) if Fraction(high) > exact else high
    low = float(np.float32(float(exact - Fraction(high))))
    assert wrong(divisor, high, low, np.arange(8_808_000, 8_808_080, dtype=np.int64)).tolist() == [8_808_040]


@pytest.mark.parametrize("divisor", [0.0, 0.25, -1.0, 8.0, float("inf"), float("nan"), 3e-15, 3e20, 0.1])
def test_constants_without_parts(divisor: float) -> None:
    """Quotients by powers of two are products; by others products may be subnormal, or too great; 0.1 is no float32."""
    assert reciprocal_parts(divisor) is None
