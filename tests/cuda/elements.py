"""Elements that functions are tested on: special values of each dtype in all combinations, then random ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from taskfuse.dtypes import DType, bool_
from taskfuse.ir.elementwise_function import DTypeRule, Elementwise

Array = npt.NDArray[Any]


def operand_dtypes(op: Elementwise, dtype: DType) -> list[DType]:
    """The dtypes of the operands of ``op`` when it computes in ``dtype``."""
    return [bool_ if op.rule is DTypeRule.SELECT and i == 0 else dtype for i in range(op.arity)]


def special(dtype: DType) -> Array:
    """Limits, small numbers, shift counts; subnormals, halves, infinities and NaN."""
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_float:
        unsigned = f"u{dtype.itemsize}"
        bits = np.array([dtype.max_value, 1, 1.5, 2], np.float64).astype(dtype.numpy).view(unsigned)
        subnormals = np.array([1, 2, 3], unsigned)
        near = np.concatenate([bits, bits - np.array(1, unsigned), bits[1:] + np.array(1, unsigned), subnormals]).view(dtype.numpy)
        round_numbers = np.array([0, 0.5, 2.5, 3, 7, 10, 100, np.inf, np.nan])
        with np.errstate(all="ignore"):
            positive: Array = np.concatenate([near, round_numbers.astype(dtype.numpy)])
            return np.concatenate([positive, -positive])
    low, high = int(dtype.min_value), int(dtype.max_value)
    small = [i for i in (*range(-4, 11), dtype.bits - 1, dtype.bits, dtype.bits + 1, -dtype.bits) if low <= i <= high]
    return np.array([low, low + 1, *small, high // 3, high - 1, high], dtype.numpy)


def random(dtype: DType, count: int, rng: np.random.Generator) -> Array:
    """Half of any bits, half of moderate size; all of an 8-bit or 16-bit dtype if ``count`` allows."""
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.bits <= 16 and count >= 2**dtype.bits:
        return np.resize(np.arange(2**dtype.bits, dtype=f"u{dtype.itemsize}"), count).view(dtype.numpy)
    any_bits = rng.integers(0, 256, (count - count // 2) * dtype.itemsize, np.uint8).view(dtype.numpy)
    if dtype.is_float:
        with np.errstate(invalid="ignore"):
            # quiet ones only: what a signalling NaN does is up to the machine
            any_bits[np.isnan(any_bits)] = np.nan
        moderate = rng.normal(0, 8, count // 2).astype(dtype.numpy)
    else:
        moderate = rng.integers(max(int(dtype.min_value), -40), 40, count // 2).astype(dtype.numpy)
    return np.concatenate([any_bits, moderate])


def elements(dtypes: Sequence[DType], count: int, seed: int = 0) -> list[Array]:
    """One array per operand: special values in all combinations, then at least ``count`` random ones. Pairs of 8-bit operands are all there are."""
    rng = np.random.default_rng(seed)
    grid = np.meshgrid(*(special(dtype) for dtype in dtypes), indexing="ij")
    if len(dtypes) == 2 and all(dtype.bits == 8 and not dtype.is_bool for dtype in dtypes):
        grid = np.meshgrid(*(random(dtype, 256, rng) for dtype in dtypes), indexing="ij")
        count = 0
    return [np.concatenate([g.ravel(), random(dtype, count, rng)]) for g, dtype in zip(grid, dtypes, strict=True)]


def differing(got: Array, expected: Array, zeros_alike: bool = False) -> Array:
    """Positions where two arrays of one dtype differ. All NaN are one; zeros of both signs are, if ``zeros_alike``."""
    assert got.dtype == expected.dtype
    unsigned = f"u{got.dtype.itemsize}"
    same = got.view(unsigned) == expected.view(unsigned)
    if got.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):
            same |= np.isnan(got) & np.isnan(expected)
        if zeros_alike:
            same |= (got == 0) & (expected == 0)
    return np.flatnonzero(~same)
