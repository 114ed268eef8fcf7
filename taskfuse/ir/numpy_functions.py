"""Elementwise functions that NumPy lacks, or has in another form: on arrays of floats and integers, and on modular words (:mod:`taskfuse.ir.modular`)."""

from __future__ import annotations

import math

import numpy as np

from taskfuse.ir import special_functions
from taskfuse.ir.elementwise_function import Array
from taskfuse.ir.modular import inverse, power

erf = special_functions.per_element(math.erf)
erfc = special_functions.per_element(math.erfc)


def same(x: Array) -> Array:
    """``x``."""
    return x


def _constant(x: Array, value: float) -> Array:
    return np.asarray(value, x.dtype)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return 1 / np.sqrt(x)


def gelu(x: Array) -> Array:
    """0.5 * x * (1 + erf(x / sqrt 2)), without the cancellation for negative x."""
    return _constant(x, 0.5) * x * erfc(x * _constant(x, -math.sqrt(0.5)))


def gelu_tanh(x: Array) -> Array:
    """The approximation by tanh of Hendrycks and Gimpel, "Gaussian Error Linear Units", section 2."""
    inner = _constant(x, math.sqrt(2 / math.pi)) * (x + _constant(x, 0.044715) * x * x * x)
    return _constant(x, 0.5) * x * (1 + np.tanh(inner))


def silu(x: Array) -> Array:
    """x * sigmoid(x)."""
    return x / (1 + np.exp(-x))


def relu(x: Array) -> Array:
    """max(x, 0)."""
    return np.maximum(x, _constant(x, 0))


def _is_whole(x: Array) -> bool:
    return x.dtype.kind in "iub"  # floats of ml_dtypes are of kind V


def nearest(x: Array) -> Array:
    """The nearest integer, halves to even."""
    return x if _is_whole(x) else np.rint(x)


def floor(x: Array) -> Array:
    """The greatest integer not above."""
    return x if _is_whole(x) else np.floor(x)


def ceil(x: Array) -> Array:
    """The least integer not below."""
    return x if _is_whole(x) else np.ceil(x)


def trunc(x: Array) -> Array:
    """The integer part."""
    return x if _is_whole(x) else np.trunc(x)


def power_of(a: Array, b: Array) -> Array:
    """a to the power b. NumPy refuses negative powers of integers: here they are the reciprocal, truncated."""
    if a.dtype.kind != "i":
        return np.power(a, b)
    inverse = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)).astype(a.dtype)
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def float_bits(x: Array) -> Array:
    """The bits of floats of 32 or 64 bits; of any NaN those of one."""
    one = np.array(np.nan, x.dtype)
    return np.where(np.isnan(x), np.abs(one), x).astype(x.dtype).view(f"u{x.dtype.itemsize}")


def float_of_bits(x: Array) -> Array:
    """The inverse of :func:`float_bits`."""
    return np.asarray(x).view(f"f{x.dtype.itemsize}")


def philox(key: Array, counter: Array, place: Array) -> Array:
    """Philox 4x32 with ten rounds: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", 2011."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    wide = [np.asarray(x).astype(np.uint64) for x in (key, counter, place)]
    left, right = wide[0] & low, wide[0] >> shift
    sequence, word = wide[2] >> np.uint64(2), wide[2] & np.uint64(3)
    a, b, c, d = wide[1] & low, wide[1] >> shift, sequence & low, sequence >> shift
    for _ in range(10):
        first, second = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, b, c, d = (second >> shift) ^ b ^ left, second & low, (first >> shift) ^ d ^ right, first & low
        left, right = (left + np.uint64(0x9E3779B9)) & low, (right + np.uint64(0xBB67AE85)) & low
    return np.asarray(np.select([word == 0, word == 1, word == 2], [a, b, c], d)).astype(np.asarray(key).dtype)


def clamp(x: Array, low: Array, high: Array) -> Array:
    """min(max(x, low), high)."""
    return np.minimum(np.maximum(x, low), high)


def lerp(a: Array, b: Array, t: Array) -> Array:
    """a + t * (b - a)."""
    return a + t * (b - a)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c. The product of two float32 is exact in float64: one rounding of the product less, as the instruction does."""
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


def modular_fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c on words, which have no wider product."""
    return a * b + c


def modular_div(a: Array, b: Array) -> Array:
    """Linear in the dividend, so that division distributes over sums as it does over the reals."""
    return a * inverse(b)


def modular_exp(x: Array) -> Array:
    """A power of 5."""
    return power(5, x)


def modular_exp2(x: Array) -> Array:
    """A power of 13."""
    return power(13, x)


def modular_false(x: Array) -> Array:
    """False for all."""
    return np.zeros(x.shape, np.bool_)


def modular_true(x: Array) -> Array:
    """True for all."""
    return np.ones(x.shape, np.bool_)
