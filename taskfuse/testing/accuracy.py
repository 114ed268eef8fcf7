"""Errors of the GPU's elementwise functions, in units in the last place (ulp).

References are computed in NumPy's ``longdouble``, which must have at least the 64 bits of x86: eleven more than float64. Functions that are
not in :data:`BOUNDS` give exactly NumPy's results; ``lerp``, ``floor_divide`` and the like are formulas whose every step rounds as in NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, float32
from taskfuse.ir import special_functions
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.elementwise_function import Elementwise

Array = npt.NDArray[Any]
Wide = npt.NDArray[Any]
"""An array of longdouble."""

# NumPy's finfo, extended to the dtypes of ml_dtypes; its type stub is partial
_finfo = cast("Callable[[np.dtype[np.generic]], Any]", ml_dtypes.finfo)

BOUNDS: dict[str, tuple[float, float]] = {op.name: op.ulps for op in ELEMENTWISE.values() if op.ulps is not None}
"""The largest error in ulp of float32 and float64 without fast math."""

ROUNDED_ULPS = 2.0**8
"""The largest error in float32 of :attr:`~taskfuse.ir.spelling.Spelling.rounded` forms, before they are rounded to 16 bits."""


def bound(name: str, dtype: DType) -> float:
    """The largest error in ulp of ``dtype``, measured from the exact value: half an ulp more than from the correctly rounded one.

    Raises:
        KeyError: the function is exact and has no row.
    """
    f32, f64 = BOUNDS[name]
    if dtype.bits == 64:
        return f64 + 0.5
    if dtype is float32:
        return f32 + 0.5
    # below 32 bits: computed in float32, rounded once
    own = max(f32 + 0.5, ROUNDED_ULPS) if dtype.bits == 16 and ELEMENTWISE[name].cpp.rounded is not None else f32 + 0.5
    return 0.5 + own * 2.0 ** (dtype.precision - float32.precision)


# -- references ---------------------------------------------------------------------------------------------------------------------


def _wide(x: float | str) -> np.longdouble:
    return np.longdouble(x)


_ONE = _wide(1)
_PI = 4 * np.arctan(_ONE)
_ROOT_PI, _ROOT_HALF = np.sqrt(_PI), np.sqrt(_ONE / 2)


def _square(x: Wide) -> tuple[Wide, Wide]:
    """x * x for x of 53 bits or less, as an unevaluated sum."""
    high = x.astype(np.float32).astype(np.longdouble)
    low = x - high
    square = x * x
    return square, ((high * high - square) + 2 * high * low) + low * low


def _erf_series(x: Wide) -> Wide:
    """erf by its series of positive terms (DLMF 7.6.2), for \\|x\\| < 3."""
    term = 2 / _ROOT_PI * x * np.exp(-x * x)
    total = term
    for n in range(1, 100):
        term = term * (2 * x * x / (2 * n + 1))
        total = total + term
    return total


def _erfc_tail(x: Wide, square: tuple[Wide, Wide]) -> Wide:
    """erfc by its continued fraction (DLMF 7.9.1), for x >= 1; ``square`` is x * x."""
    fraction = x
    for k in range(300, 0, -1):
        fraction = x + k / (2 * fraction)
    return np.exp(-square[0]) * (1 - square[1]) / (_ROOT_PI * fraction)


def _erfc_by(x: Wide, square: tuple[Wide, Wide]) -> Wide:
    """erfc of any x, from a square that is more accurate than x * x."""
    result = 1 - np.where(x < 0, -_ONE, _ONE)  # of large |x|
    near = np.abs(x) < 1
    result[near] = 1 - _erf_series(x[near])
    far = (x <= -1) & (x > -10)
    result[far] = 2 - _erfc_tail(-x[far], (square[0][far], square[1][far]))
    tail = (x >= 1) & (x < 120)
    result[tail] = _erfc_tail(x[tail], (square[0][tail], square[1][tail]))
    result[np.isnan(x)] = np.nan
    return result


def _erf(x: Wide) -> Wide:
    result = np.sign(x)
    near = np.abs(x) < 3
    result[near] = _erf_series(x[near])
    far = (np.abs(x) >= 3) & (np.abs(x) < 10)
    result[far] = np.sign(x[far]) * (1 - _erfc_tail(np.abs(x[far]), _square(np.abs(x[far]))))
    return result


def _erfc(x: Wide) -> Wide:
    return _erfc_by(x, _square(x))


def _normal(x: Wide) -> Wide:
    square, rest = _square(x)
    return _erfc_by(-x * _ROOT_HALF, (square / 2, rest / 2)) / 2


def _sigmoid(x: Wide) -> Wide:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, _ONE) / (1 + e)


def _silu(x: Wide) -> Wide:
    return x * _sigmoid(x)


def _gelu(x: Wide) -> Wide:
    return x * _normal(x)


def _gelu_tanh(x: Wide) -> Wide:
    return x * _sigmoid(2 * np.sqrt(2 / _PI) * (x + _wide("0.044715") * x * x * x))


def _fma(a: Wide, b: Wide, c: Wide) -> Wide:
    (a1, b1) = (x.astype(np.float32).astype(np.longdouble) for x in (a, b))
    a2, b2 = a - a1, b - b1
    product = a * b
    rest = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    # Knuth's two-sum
    total = product + c
    part = total - product
    rest = rest + ((product - (total - part)) + (c - part))
    return np.where(np.isfinite(total) & np.isfinite(rest), total + rest, total)


def _erfinv(x: Wide) -> Wide:
    y = special_functions.erfinv(x.astype(np.float64)).astype(np.longdouble)
    near = np.abs(x) <= 0.5
    return np.where(near, y - (_erf(y) - x) / (2 / _ROOT_PI * np.exp(-y * y)), np.copysign(_erfcinv(1 - np.abs(x)), x))


def _erfcinv(x: Wide) -> Wide:
    """One step of Newton, for the logarithm, from the result of float64; beyond 1, of the reflected number."""
    p = np.where(x > 1, 2 - x, x)
    y = special_functions.erfcinv(p.astype(np.float64)).astype(np.longdouble)
    value = _erfc(y)
    better = y + np.log(value / p) * value / (2 / _ROOT_PI * np.exp(-y * y))
    y = np.where(np.isfinite(y) & (p > 0), better, y)
    return np.where(x > 1, -y, y)


_OWN: dict[str, Callable[..., Wide]] = {
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "erf": _erf,
    "erfc": _erfc,
    "sigmoid": _sigmoid,
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "fma": _fma,
}


def _gamma_terms(x: Wide) -> Wide:
    """What the logarithm of the gamma function is a difference of, below 0 (DLMF 5.5.3)."""
    return np.where(x < 0, 1 + np.abs(np.asarray(special_functions.lgamma(1 - x))), 0)


def _digamma_terms(x: Wide) -> Wide:
    """The same of its derivative (DLMF 5.5.4), which itself is a difference of numbers near 1 at its zero."""
    off = x - np.rint(x)
    mirrored = np.abs(special_functions.digamma(1 - x)) + np.abs(_PI / np.tan(_PI * off))
    return np.maximum(np.where(x < 0, mirrored, 0), 0.5)


def _zeta_terms(x: Wide, q: Wide) -> Wide:
    """The greatest terms of a sum that has negative ones."""
    least = np.abs(q - np.rint(q))
    return np.where((q < 0) & (least > 0), np.maximum(least, np.finfo(np.longdouble).tiny) ** -x, 0)


def _log_terms(a: Wide, b: Wide) -> Wide:
    """A sum of logarithms is 0 where two numbers add up to 1."""
    return np.where(np.isfinite(a) & np.isfinite(b), _ONE, 0)


_TERMS: dict[str, Callable[..., Wide]] = {
    "lgamma": _gamma_terms,
    "digamma": _digamma_terms,
    "zeta": _zeta_terms,
    "logaddexp": _log_terms,
}


def terms(op: Elementwise, operands: Sequence[Array]) -> Wide:
    """The magnitude of the terms that ``op`` adds if its result is smaller, as for a function with zeros: errors are in ulp of the greater. 0 for others."""
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64).astype(np.longdouble) for x in operands]
        found = _TERMS[op.name](*wide) if op.name in _TERMS else np.zeros(np.broadcast_shapes(*(x.shape for x in wide)), np.longdouble)
        return np.where(np.isfinite(found), found, 0)


def reference(op: Elementwise, operands: Sequence[Array]) -> Wide:
    """``op``, a function in :data:`BOUNDS`, on float operands: in longdouble, with errors far below an ulp of float64."""
    assert np.finfo(np.longdouble).nmant >= 63, "the references need a longdouble of 64 bits"
    with np.errstate(all="ignore"):
        wide = [x.astype(np.float64).astype(np.longdouble) for x in operands]
        return np.asarray(_OWN.get(op.name, op.function)(*wide), np.longdouble)


# -- errors -------------------------------------------------------------------------------------------------------------------------


def ulps(got: Array, exact: Wide, dtype: DType, least: Wide | float = 0.0) -> npt.NDArray[np.float64]:
    """Distance of elements of ``dtype`` from exact values, in ulp of ``dtype`` at the exact values, or at ``least`` where that is more; infinite where only
    one of the two is NaN.

    Infinity counts as the power of two after the largest finite number; if ``dtype`` has no infinity, NaN is right for values that round above it.
    """
    lowest = int(np.frexp(float(_finfo(dtype.numpy).smallest_normal))[1]) - 1
    greatest = int(np.frexp(dtype.max_value)[1]) - 1
    limit = np.ldexp(_ONE, greatest + 1)
    with np.errstate(all="ignore"):
        ours, true = np.clip(got.astype(np.float64).astype(np.longdouble), -limit, limit), np.clip(exact, -limit, limit)
        if not dtype.has_infinity:
            half_ulp = np.ldexp(_ONE, greatest - dtype.precision)
            true = np.where(np.abs(true) > dtype.max_value + half_ulp, np.nan, true)
        exponent = np.clip(np.frexp(np.where(np.isnan(true), _ONE, np.maximum(np.abs(true), least)))[1] - 1, lowest, greatest)
        distance = np.abs(ours - true) / np.ldexp(_ONE, exponent - (dtype.precision - 1))
    both = np.isnan(ours) & np.isnan(true)
    return np.where(both, 0, np.where(np.isnan(distance), np.inf, distance)).astype(np.float64)


# -- samples ------------------------------------------------------------------------------------------------------------------------


def samples(op: Elementwise, dtype: DType, count: int, seed: int = 0) -> list[Array]:
    """About ``count`` operands of a float dtype: special values in all combinations, bit patterns over the whole range, moderate numbers.

    All values of a 16-bit dtype, if there is one operand and ``count`` allows.
    """
    rng = np.random.default_rng(seed)
    special = _special(dtype)
    if op.arity == 1 and dtype.bits <= 16 and count >= 2**dtype.bits:
        return [np.arange(2**dtype.bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)]
    grid = np.meshgrid(*[special] * op.arity, indexing="ij")
    left = max(count - grid[0].size, 0)
    return [np.concatenate([g.ravel(), _random(dtype, left, rng)]) for g in grid]


def _special(dtype: DType) -> Array:
    """Zeros, subnormals, limits, integers, halves, neighbors of 1 and of multiples of pi / 2, infinities, NaN."""
    unsigned = f"u{dtype.itemsize}"
    with np.errstate(all="ignore"):
        numbers = [0, 0.25, 0.5, 1.5, 2, 2.5, 3, 7, 10, 88.5, 100, 709, math.inf, math.nan, *(k * math.pi / 2 for k in (1, 2, 3, 1001))]
        positive = np.array(numbers).astype(dtype.numpy)
        one, largest = (np.array(x).astype(dtype.numpy).view(unsigned) for x in (1.0, dtype.max_value))
        smallest = np.array(float(_finfo(dtype.numpy).smallest_normal)).astype(dtype.numpy).view(unsigned)
        step = np.array(1, unsigned)
        bits = np.array([one - step, one, one + step, largest, smallest - step, smallest, step, step + step], unsigned)
        both: Array = np.concatenate([positive, bits.view(dtype.numpy)])
        return np.concatenate([both, -both])


def _random(dtype: DType, count: int, rng: np.random.Generator) -> Array:
    """Bits for one half, normally distributed values with deviations 0.1, 3 and 40 for the rest, shuffled."""
    bits = rng.integers(0, 256, (count - count // 2) * dtype.itemsize, np.uint8).view(dtype.numpy)
    scale = rng.choice([0.1, 3, 40], count // 2)
    with np.errstate(all="ignore"):
        bits[np.isnan(bits)] = np.nan
        return rng.permutation(np.concatenate([bits, rng.normal(0, scale).astype(dtype.numpy)]))


def moderate(operands: Sequence[Array]) -> npt.NDArray[np.bool_]:
    """A mask of the samples whose operands all have magnitudes from 1/256 to 8."""
    with np.errstate(all="ignore"):
        magnitudes = [np.abs(x.astype(np.float64)) for x in operands]
    return np.logical_and.reduce([(m >= 1 / 256) & (m <= 8) for m in magnitudes])
