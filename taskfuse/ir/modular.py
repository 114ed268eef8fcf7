"""Modular values: 64-bit words instead of floats, with arithmetic modulo 2^64.

A sum of floats depends on its order, so two right schedules may differ in the last bits. As a modular value a float element is an unsigned
64-bit word; addition and multiplication are modulo 2^64, hence associative, commutative and distributive without rounding. An exponential takes
sums to products (:func:`power`), so that sums whose terms are rescaled by ``exp(old - new)`` keep their words, and a quotient is a product with an
inverse (:func:`inverse`). Every function without such a law is a hash of its operands' words. Two schedules of one fusion then give equal words
or one of them is wrong, however small the error.

One law has no words: ``exp(-inf)`` is not 0, so a rescaled sum that takes terms past the end of its axis for ``exp(-inf)`` has other words.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType

Words = npt.NDArray[np.uint64]

WORD = np.dtype(np.uint64)
LEAST = 0
GREATEST = 2**64 - 1
HALF = 0x9E3779B97F4A7C15
"""An odd number; twice it stands for the inverse of 2."""
CLAMP = 2.0**128 - 2.0**120
"""The greatest finite bfloat16; that of float32 and float64 is more."""


def mix(words: npt.NDArray[Any]) -> Words:
    """A bijection of words without structure: the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        z = np.asarray(words, WORD) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))


def hash_words(key: str, *operands: npt.NDArray[Any]) -> Words:
    """A hash of words, keyed by the name of a function; the same in every process. The order of the operands matters."""
    found = np.asarray(zlib.crc32(key.encode()), WORD)
    for words in operands:
        found = mix(found ^ mix(words))
    return found


def power(base: int, exponents: npt.NDArray[Any]) -> Words:
    """An odd ``base`` to the power of words, modulo 2^64.

    The order of every odd number modulo 2^64 divides 2^62, so exponents may be taken modulo 2^64, and ``power(b, x + y)`` is
    ``power(b, x) * power(b, y)`` exactly, also where ``x + y`` wraps. The order of 5, and of every other number that is 5 modulo 8, is 2^62: only
    exponents that are equal modulo 2^62 have equal powers.
    """
    words = np.asarray(exponents, WORD)
    found = np.ones(words.shape, WORD)
    with np.errstate(over="ignore"):
        for k, powers in enumerate(_powers(base)):
            found = found * powers[(words >> np.uint64(8 * k)) & np.uint64((1 << 8) - 1)]
    return np.asarray(found, WORD)


def inverse(words: npt.NDArray[Any]) -> Words:
    """The word by which a division multiplies.

    For an odd word it is the inverse modulo 2^64, so 1 is its own inverse, and ``inverse(power(b, x))`` is ``power(b, -x)``. For ``2^k`` times an odd word
    it is the odd word's inverse times the k-th power of a fixed number that contains the factor 2 once. So ``inverse(a * b)`` is
    ``inverse(a) * inverse(b)`` wherever ``a * b`` is not 0, also where it wraps. The inverse of 0 is a separate word.
    """
    given = np.asarray(words, WORD)
    with np.errstate(over="ignore"):
        lowest = given & (~given + np.uint64(1))
        twos = np.log2(np.maximum(lowest, np.uint64(1)).astype(np.float64)).astype(WORD)  # exact: a power of 2
        odd = given >> twos
        found = odd * np.uint64(3) ^ np.uint64(2)  # right modulo 2^5; each step doubles the bits
        for _ in range(4):
            found = found * (np.uint64(2) - odd * found)
        return np.asarray(np.where(given == 0, mix(given), (found << twos) * power(HALF, twos)), WORD)


@cache
def _powers(base: int) -> tuple[Words, ...]:
    """For each byte of an exponent, the powers that its values stand for."""
    return tuple(np.array([pow(base, value << 8 * k, 1 << 64) for value in range(256)], WORD) for k in range(8))


def embed(values: npt.NDArray[Any], dtype: DType) -> Words:
    """The words of an array of floats of ``dtype``.

    Integers are themselves modulo 2^64 (so 0 and 1 are neutral); the least and the greatest values (infinities, or the ends of the
    range without them) are the least and the greatest word (neutral for maximum and minimum), as are all values of at least :data:`CLAMP`: a clamp that keeps
    a result finite changes no word. Any other value becomes a hash of it.
    Except for the ends of the range, the word depends only on the value: widening a float does not change it.
    """
    wide = np.asarray(values.astype(np.float64))
    whole = np.isfinite(wide) & (np.abs(wide) < 2.0**63) & (np.trunc(wide) == wide)
    integers = np.where(whole, wide, 0.0).astype(np.int64).view(WORD)
    hashed = mix(np.where(np.isnan(wide), np.nan, wide).view(WORD))
    words = np.where(whole, integers, hashed)
    words = np.where(wide <= dtype.lowest, np.uint64(LEAST), words)
    return np.asarray(np.where(wide >= min(dtype.highest, CLAMP), np.uint64(GREATEST), words))
