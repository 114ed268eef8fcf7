"""Modular values: 64-bit words instead of floats, with arithmetic modulo 2^64.

A sum of floats depends on its order, so two right schedules may differ in the last bits. As a modular value a float element is an unsigned
64-bit word; addition and multiplication are modulo 2^64, hence associative, commutative and distributive without rounding, and every
function without such a law is a hash of its operands' words. Two schedules of one fusion then give equal words
or one of them is wrong, however small the error.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType

Words = npt.NDArray[np.uint64]

WORD = np.dtype(np.uint64)
LEAST = 0
GREATEST = 2**64 - 1


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


def embed(values: npt.NDArray[Any], dtype: DType) -> Words:
    """The words of an array of floats of ``dtype``.

    Integers are themselves modulo 2^64 (so 0 and 1 are neutral); what nothing is less or greater than (infinities, or the ends of the
    range without them) is the least and the greatest word (neutral for maximum and minimum); anything else is a hash of its value.
    But for these ends the word depends on the value only: widening a float does not change it.
    """
    wide = np.asarray(values.astype(np.float64))
    whole = np.isfinite(wide) & (np.abs(wide) < 2.0**63) & (np.trunc(wide) == wide)
    integers = np.where(whole, wide, 0.0).astype(np.int64).view(WORD)
    hashed = mix(np.where(np.isnan(wide), np.nan, wide).view(WORD))
    words = np.where(whole, integers, hashed)
    words = np.where(wide <= dtype.lowest, np.uint64(LEAST), words)
    return np.asarray(np.where(wide >= dtype.highest, np.uint64(GREATEST), words))
