"""Special functions on NumPy's arrays: the gamma function's logarithm and its derivatives, the zeta function of Hurwitz, inverse error functions.

NumPy has none of them. All compute in float64, with errors of a few units in its last place (of functions with zeros: in that of what they are the
difference of), and round once to the dtype of their operands; in longdouble, if that is their dtype, all but the inverse error functions. Sources of
formulas: NIST Digital Library of Mathematical Functions (DLMF).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_NUMERATORS = (1, -1, 1, -1, 5, -691, 7, -3617, 43867, -174611, 854513, -236364091, 8553103)
_DENOMINATORS = (6, 30, 42, 30, 66, 2730, 6, 510, 798, 330, 138, 2730, 6)
BERNOULLI = [Fraction(a, b) for a, b in zip(_NUMERATORS, _DENOMINATORS, strict=True)]
"""The Bernoulli numbers B2, B4, ... B26 (DLMF 24.2)."""


def per_element(function: Callable[[float], float]) -> Callable[[Array], Array]:
    """A function of Python numbers, vectorized over arrays."""
    ufunc = np.frompyfunc(function, 1, 1)

    def apply(x: Array) -> Array:
        return np.asarray(ufunc(x)).astype(x.dtype)

    return apply


_erf = per_element(math.erf)
_erfc = per_element(math.erfc)


def _wide(*given: Array) -> list[Array]:
    """Operands in float64, or in longdouble if one of them is."""
    return [np.asarray(x).astype(np.result_type(np.float64, *given)) for x in given]


def _number(value: Fraction | int, like: Array) -> Any:
    """A fraction in the dtype of an array."""
    return like.dtype.type(value.numerator) / like.dtype.type(value.denominator)


def _pi(like: Array) -> Any:
    return 4 * np.arctan(like.dtype.type(1))


def _zeta_less_one(count: int, like: Array) -> list[Any]:
    """The zeta function of 2, 3, ... less 1, in the dtype of an array."""
    return [_zeta_of_positive(*(np.asarray(v, like.dtype) for v in (k, 2)))[()] for k in range(2, count)]


def lgamma(x: Array) -> Array:
    """The logarithm of ``abs(gamma(x))``, infinite at 0, -1, -2, ...

    From 13 on the asymptotic series (DLMF 5.11.1); below, products (5.5.1) lead to [3/2, 5/2] and the series about 2 (5.7.3), which keeps all places at the
    zeros 1 and 2; negative numbers are reflected (5.5.3).
    """
    (given,) = _wide(x)
    with np.errstate(all="ignore"):
        y = np.abs(given)
        near = np.where(y < 13, y, 2)
        factor = np.ones_like(y)
        for _ in range(11):
            factor, near = np.where(near > 2.5, factor * (near - 1), factor), np.where(near > 2.5, near - 1, near)
        lifted = np.where(near < 0.5, near, np.where(near < 1.5, near - 1, near - 2))  # distance from 2, after two steps, one or none
        below = np.log(np.where(near < 0.5, near, 1)) + np.log1p(np.where(near < 1.5, lifted, 0))
        series = np.zeros_like(y)
        for k, number in reversed(list(enumerate(_zeta_less_one(70, given), start=2))):
            series = (number / k - series) * lifted
        euler = _EULER_HIGH + given.dtype.type(_EULER_LOW)
        found = (1 - euler + series) * lifted - below + np.log(factor)
        inverse, tail = 1 / (y * y), np.zeros_like(y)
        for k in range(12, 0, -1):
            tail = tail * inverse + _number(BERNOULLI[k - 1] / (2 * k * (2 * k - 1)), given)
        far = (y - 0.5) * np.log(y) - y + np.log(2 * _pi(given)) / 2 + tail / y
        found = np.where(y < 13, found, np.where(np.isinf(y), np.inf, far))
        pi, off = _pi(given), np.abs(given - np.rint(given))
        sine = np.log(np.where(off < 1e-9, off, np.sin(pi * off) / pi))
        reflected = -np.log(y) - sine - found
        found = np.where(given < 0, np.where(off == 0, np.inf, reflected), found)
        return np.asarray(np.where(np.isinf(given) | (given == 0), np.inf, found)).astype(np.asarray(x).dtype)


_EULER_HIGH, _EULER_LOW = 0.5772156649015329, -4.942915152430649e-18
"""Euler's constant, 0.57721566490153286060651209..., as a float64 and what is left of it (DLMF 5.2.3)."""


def digamma(x: Array) -> Array:
    """The derivative of ``log(gamma(x))``: the recurrence up to 10 (DLMF 5.5.2), then the asymptotic series (5.11.2); reflected below 0 (5.5.4)."""
    (given,) = _wide(x)
    pi = _pi(given)
    with np.errstate(all="ignore"):
        off = given - np.rint(given)
        y = np.where(given < 0, 1 - given, given)
        found = np.where(given < 0, -pi / np.tan(pi * off), 0)
        steps, total = np.maximum(10 - np.floor(y), 0), np.zeros_like(y)
        for k in range(9, -1, -1):
            total = total + np.where(k < steps, 1 / (y + k), 0)
        found, y = found - total, y + steps
        inverse, series = 1 / (y * y), np.zeros_like(y)
        for k in range(12, 0, -1):
            series = (series + _number(BERNOULLI[k - 1] / (2 * k), given)) * inverse
        found = found + (np.log(y) - 1 / (2 * y) - series)
        found = np.where((given < 0) & (off == 0), np.nan, found)
        return np.asarray(np.where(given == 0, np.copysign(np.inf, -given), found)).astype(np.asarray(x).dtype)


def zeta(x: Array, q: Array) -> Array:
    """The sum of ``(q + k) ** -x`` over all k >= 0: ten terms, then the formula of Euler and Maclaurin (DLMF 25.11.5, 2.10.1).

    Infinite for x = 1 and where a term is, NaN for x < 1, and for q < 0 unless x is an integer. There the terms of negative numbers are, but for their
    sign, a difference of two such sums.
    """
    s, a = np.broadcast_arrays(*_wide(x, q))
    with np.errstate(all="ignore"):
        is_below = (a < 0) & np.isfinite(a)
        last = np.where(is_below, np.ceil(a) - a, 0)  # the least magnitude of a negative number
        sign = np.where(s % 2 == 0, 1, -1).astype(s.dtype)
        mirrored = sign * (_zeta_of_positive(s, np.where(is_below, last, 1)) - _zeta_of_positive(s, np.where(is_below, 1 - a, 1)))
        found = _zeta_of_positive(s, np.where(is_below, 1 - last, a)) + np.where(is_below, mirrored, 0)
        found = np.where(is_below & np.isnan(found), np.copysign(np.inf, last - 0.5), found)  # of two infinite sums the one with the lesser number is
        found = np.where(is_below & (last == 0.5) & (sign < 0), _zeta_of_positive(s, np.where(is_below, 1 - a, 1)), found)
        found = np.where((a < 0) & (s != np.floor(s)), np.nan, found)
        found = np.where((a <= 0) & (a == np.floor(a)), np.inf, found)
        found = np.where(s == 1, np.inf, np.where(s < 1, np.nan, found))
        return np.asarray(np.where(np.isnan(s) | np.isnan(a), np.nan, found)).astype(np.asarray(x).dtype)


def _zeta_of_positive(s: Array, a: Array) -> Array:
    """The sum for a > 0."""
    total = np.zeros_like(a)
    for k in range(10):
        total = total + (a + k) ** -s
    end = a + 10
    power = end**-s
    total = total + end ** (1 - s) / (s - 1)
    rest = power / 2
    term = s * power / end
    for k, number in enumerate(BERNOULLI, start=1):
        rest = rest + _number(number / math.factorial(2 * k), a) * term
        term = term * ((s + (2 * k - 1)) * (s + 2 * k) / (end * end))
    return np.where(power > 0, total + rest, total)


def erfinv(x: Array) -> Array:
    """The inverse of the error function: Halley's steps for ``erf(y) = x`` up to 1/2, beyond it by :func:`erfcinv`."""
    given = np.asarray(x).astype(np.float64)
    near = np.where(np.abs(given) <= 0.5, given, 0.0)
    y = near * (math.sqrt(math.pi) / 2) * (1 + near * near * (math.pi / 12))
    for _ in range(4):
        step = (_erf(y) - near) / (2 / math.sqrt(math.pi) * np.exp(-y * y))
        y = y - step / (1 + step * y)
    y = np.where(near == 0, near, y)
    far = np.copysign(_tail(1 - np.abs(given)), given)
    return np.asarray(np.where(np.abs(given) <= 0.5, y, far)).astype(np.asarray(x).dtype)


def erfcinv(x: Array) -> Array:
    """The inverse of the complementary error function: up to 1/2 and beyond 3/2 by its logarithm, between them by :func:`erfinv`."""
    given = np.asarray(x).astype(np.float64)
    far = np.where(given < 1, _tail(given), -_tail(2 - given))
    return np.asarray(np.where(np.abs(given - 1) <= 0.5, erfinv(1 - given), far)).astype(np.asarray(x).dtype)


def _tail(p: Array) -> Array:
    """The y with ``erfc(y) = p`` for 0 <= p <= 1/2: Newton's steps for ``log(erfc(y)) = log(p)``, whose curve is nearly a parabola."""
    inside = (p > 0) & (p <= 0.5)
    given = np.where(inside, p, 0.5)
    logarithm = np.log(given)
    y = np.sqrt(-logarithm - np.log(np.sqrt(-math.pi * logarithm)))
    for _ in range(6):
        series = np.ones_like(y)  # of erfc(y) * y * sqrt(pi) * exp(y * y), for great y (DLMF 7.12.1)
        for k in range(10, 0, -1):
            series = 1 - series * (2 * k - 1) / (2 * y * y)
        near = y < 15
        value = _erfc(np.where(near, y, 1))
        found = np.where(near, np.log(value), np.log(series / (math.sqrt(math.pi) * y)) - y * y)
        slope = np.where(near, 2 / math.sqrt(math.pi) * np.exp(-(np.minimum(y, 15) ** 2)) / value, 2 * y / series)
        y = y + (found - logarithm) / slope
    return np.where(inside, y, np.where(p == 0, np.inf, np.nan))
