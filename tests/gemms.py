"""The GEMMs of tests/kernels that are about tensor cores: arguments that are small integers, whose sums are exact, and what must come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tests.products import expected

Array = npt.NDArray[Any]
Case = Callable[[int, int, int], tuple[list[Any], Array]]
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def small(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


def gemm_fp8(m: int, n: int, k: int) -> tuple[list[Any], Array]:
    a, b = small((m, k), E4M3), small((n, k), E5M2, 1)
    return [a, b, 0.5], (expected(a, b) / 2).astype(BF16)


def gemm_rs(m: int, n: int, k: int) -> tuple[list[Any], Array]:
    a, b = small((m, k), BF16), small((n, k), BF16, 1)
    return [a, b], expected(np.maximum(a, 0), b)


def gemm_mn(m: int, n: int, k: int) -> tuple[list[Any], Array]:
    a, b = small((k, m), np.float16), small((k, n), np.float16, 1)
    return [a, b], expected(a.T, b.T)


def gemm_sync(m: int, n: int, k: int) -> tuple[list[Any], Array]:
    a, b = small((m, k), BF16), small((n, k), BF16, 1)
    return [a, b], expected(a, b)


GEMMS: dict[Case, list[tuple[int, int, int]]] = {
    gemm_fp8: [(1, 8, 16), (64, 64, 128), (130, 72, 272), (320, 136, 400)],
    gemm_rs: [(1, 8, 8), (64, 64, 64), (100, 72, 200)],
    gemm_mn: [(8, 8, 1), (64, 128, 64), (72, 136, 150)],
    gemm_sync: [(64, 64, 32), (128, 64, 96)],
}
