"""The examples as cases: inputs, and what they should give."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import taskfuse as tf
from examples import (
    block_roles,
    cat,
    founding,
    gemm,
    gemm_cluster,
    gemm_fp8_scaled,
    gemm_multistage,
    gemm_pingpong,
    gemm_quad_pairs,
    gemm_split_cluster,
    gemm_stream_k,
    horizontal_fusion,
    linear_attention,
    matmul,
    moe,
    nested_groups,
    pipeline,
    stream,
    syr2k,
    transpose,
)
from taskfuse.dtypes import as_dtype

Array = npt.NDArray[Any]


# Exact results, each with the size that an ulp is taken at (None: the result itself).
Expected = Sequence[tuple[Array, Array | None]]


BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def founding_expected(x: Array) -> Expected:
    parts = np.cos(np.sin(x)), np.maximum(np.tan(x), 0), sigmoid(np.exp(x)), np.tanh(np.log(x))
    return [(-np.concatenate(parts, axis=1), None)]


def gather_expected(x: Array, y: Array) -> Expected:
    both = np.concatenate([x, y], axis=1)
    return [(both * sigmoid(both), None)]


def shared_loop_expected(x: Array) -> Expected:
    return [(np.concatenate([np.sin(x), np.cos(x)], axis=1), None)]


def horizontal_expected(x: Array, y: Array, z: Array) -> Expected:
    return [(np.concatenate([np.sin(x), np.exp(y), np.maximum(z, 0)], axis=1), None)]


def horizontal_fusion_expected(a: Array, b: Array) -> Expected:
    return [(np.exp(np.sin(a)), None), (softmax(b), None)]


def nested_groups_expected(angle: Array, radius: Array) -> Expected:
    return [(np.ones_like(angle), None), (radius**2, None)]


def pipeline_expected(x: Array, scale: Array) -> Expected:
    scaled = x * scale
    bent = gelu_tanh(scaled)
    return [(bent - 0.5, np.maximum(np.abs(scaled), 0.5)), ((bent**2).sum(axis=1), None)]


def stream_expected(x: Array) -> Expected:
    return [(np.maximum(2 * x - 1, 0), np.maximum(np.abs(x), 1))]


def block_roles_expected(g: Array, x: Array) -> Expected:
    return [(x * np.tanh(np.exp(g))[:, None, :], None)]


def transpose_expected(x: Array) -> Expected:
    return [(x.T, None)]


def matmul_expected(a: Array, b: Array) -> Expected:
    return [(a @ b, np.abs(a) @ np.abs(b))]


def gemm_expected(a: Array, b: Array, bias: Array) -> Expected:
    return [(np.maximum(a @ b.T + bias, 0), np.abs(a) @ np.abs(b.T) + np.abs(bias))]


def product_expected(a: Array, b: Array) -> Expected:
    return [(a @ b.T, np.abs(a) @ np.abs(b.T))]


def scaled_expected(a: Array, b: Array, scale_a: Array, scale_b: Array) -> Expected:
    return product_expected(a * scale_a.T.repeat(128, 1), b * scale_b.repeat(128, 0).repeat(128, 1))


def syr2k_expected(*args: Array) -> Expected:
    return [pair for p, q in zip(args[::2], args[1::2], strict=True) for pair in product_expected(p, q)]


def triangle_expected(a: Array, b: Array) -> Expected:
    exact, size = (x @ y.T + y @ x.T for x, y in ((a, b), (np.abs(a), np.abs(b))))
    return [(np.tril(exact), np.tril(size))]


def moe_expected(x: Array, w: Array, lifted: Array, offsets: Array) -> Expected:
    product = np.concatenate([x[start:end] @ m for start, end, m in zip(offsets[:-1].astype(int), offsets[1:].astype(int), w, strict=True)])
    return [(product * sigmoid(product) * lifted, (np.abs(product) + 1) * np.abs(lifted))]


def states_expected(k: Array, v: Array, decay: Array) -> Expected:
    state, size = np.zeros((*k.shape[:2], k.shape[3], v.shape[3])), np.zeros((*k.shape[:2], k.shape[3], v.shape[3]))
    for t in range(k.shape[2]):
        term, a = k[:, :, t, :, None] * v[:, :, t, None, :], decay[:, :, t, None, None]
        state, size = state * a + term, size * np.abs(a) + np.abs(term)
    return [(state, size)]


def rising(shapes: Sequence[tuple[int, ...]]) -> Array:
    """Offsets of unequal groups of the rows of the first array, one of them empty."""
    rows, groups = shapes[0][0], shapes[-1][0] - 1
    return np.array([0, *(rows * g // (2 * groups) for g in range(1, groups - 1)), rows // 3, rows], np.int32)


def ulp(size: Array, dtype: np.dtype[Any]) -> Array:
    """Units in the last place of ``dtype`` at a size; of numbers that are less than 2**-20 of the operands, at that."""
    digits = as_dtype(dtype).precision
    return np.spacing(np.maximum(np.abs(size), 0 if digits == 24 else 2.0**-20).astype(np.float32)).astype(np.float64) * 2.0 ** (24 - digits)


@dataclass(frozen=True)
class Case:
    """One fusion of an example: input shapes to run it on, and what it should give.

    Attributes:
        ulp: the bound on the difference from the exact result.
        low, high: the range of the inputs.
        dtypes: of the inputs; float32 if there are none.
        table: makes the last input from the shapes.
    """

    name: str
    build: Callable[[], tf.Fusion]
    expected: Callable[..., Expected]
    ulp: float
    shapes: Sequence[Sequence[tuple[int, ...]]]
    low: float = -2
    high: float = 2
    dtypes: Sequence[npt.DTypeLike] = ()
    table: Callable[[Sequence[tuple[int, ...]]], Array] | None = None

    @property
    def module(self) -> ModuleType:
        """The example."""
        build = getattr(self.build, "func", self.build)  # a partial has one
        return sys.modules[build.__module__]

    def arguments(self, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        rng = np.random.default_rng(0)
        dtypes = self.dtypes or [np.float32] * len(shapes)
        found = [rng.uniform(self.low, self.high, shape).astype(dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
        return found if self.table is None else [*found[:-1], self.table(shapes)]


CASES = (
    Case("founding", founding.build, founding_expected, 3, [[(6, 5, 8)], [(1, 1, 1)], [(2, 3, 33)], [(3, 4, 32)]], low=0.1, high=1),
    *(
        Case(f"founding_persistent_{n}", partial(founding.build, 3, n), founding_expected, 3, [[(b, 2, 8)] for b in (1, 3, 4, 20)], low=0.1, high=1)
        for n in (2, 3, 6)
    ),
    Case("cat_gather", cat.gather, gather_expected, 4, [[(3, 50), (3, 7)], [(1, 1), (1, 1)], [(2, 32), (2, 32)]]),
    Case("cat_scatter_shared_loop", cat.scatter_shared_loop, shared_loop_expected, 1, [[(3, 50)], [(1, 1)], [(2, 64)]]),
    Case("cat_scatter_horizontal", cat.scatter_horizontal, horizontal_expected, 1, [[(3, 50), (3, 7), (3, 33)], [(1, 1), (1, 1), (1, 1)]]),
    Case("horizontal_fusion", horizontal_fusion.build, horizontal_fusion_expected, 6, [[(3, 200), (2, 250)], [(1, 1), (4, 250)], [(5, 63), (1, 250)]]),
    Case("nested_groups", nested_groups.build, nested_groups_expected, 1, [[(2, 77), (2, 77)], [(1, 1), (1, 1)], [(3, 128), (3, 128)]]),
    Case("pipeline", pipeline.build, pipeline_expected, 4, [[(2, 333), (333,)], [(1, 1), (1,)], [(3, 31), (31,)], [(1, 64), (64,)]]),
    Case("stream", stream.build, stream_expected, 2, [[(37, 200)], [(1, 4)], [(8, 64)], [(70, 260)]]),
    Case("block_roles", block_roles.build, block_roles_expected, 3, [[(7, 100), (7, 9, 100)], [(1, 1), (1, 1, 1)], [(3, 64), (3, 4, 64)]]),
    Case("transpose", transpose.build, transpose_expected, 0, [[(64, 32)], [(45, 70)], [(1, 3)], [(32, 97)]]),
    Case("matmul", matmul.build, matmul_expected, 4, [[(33, 17), (17, 40)], [(8, 40), (40, 32)], [(1, 1), (1, 1)]]),
    Case("gemm", gemm.build, gemm_expected, 0.02, [[(m, k), (n, k), (n,)] for m, n, k in [(130, 136, 72), (1, 8, 8)]], dtypes=(BF16, BF16, np.float32)),
    *(
        Case(name, build, product_expected, 0.02, [[(m, k), (n, k)] for m, n, k in [(300, 136, 72), (1, 8, 8)]], dtypes=(BF16, BF16))
        for name, build in (("gemm_pingpong", gemm_pingpong.build), ("gemm_cluster", gemm_cluster.build))
    ),
    Case(
        "gemm_dynamic",
        partial(gemm.build, dynamic=True),
        gemm_expected,
        0.02,
        [[(m, k), (n, k), (n,)] for m, n, k in [(130, 136, 72), (1, 8, 8)]],
        dtypes=(BF16, BF16, np.float32),
    ),
    Case("moe", moe.build, moe_expected, 4, [[(150, 64), (3, 64, 64), (150, 64), (4,)]], dtypes=(BF16, BF16, BF16, np.int32), table=rising),
    Case("linear_attention", linear_attention.build, states_expected, 4, [[(2, 3, 8, 8), (2, 3, 8, 8), (2, 3, 8)]]),
    Case(
        "gemm_split_cluster",
        gemm_split_cluster.build,
        product_expected,
        0.02,
        [[(m, 512), (n, 512)] for m, n in [(130, 72), (1, 8)]],
        dtypes=(BF16, BF16),
    ),
    Case("gemm_stream_k", gemm_stream_k.build, product_expected, 0.02, [[(128, 512), (192, 512)]], dtypes=(BF16, BF16)),
    Case(
        "gemm_fp8_scaled",
        gemm_fp8_scaled.build,
        scaled_expected,
        0.02,
        [[(132, 256), (128, 256), (2, 132), (1, 2)]],
        dtypes=(E4M3, E4M3, np.float32, np.float32),
    ),
    Case("syr2k_triangle", syr2k.triangle, triangle_expected, 0.02, [[(160, 32), (160, 32)]], dtypes=(BF16, BF16)),
    Case("syr2k", syr2k.build, syr2k_expected, 0.02, [[(64, 64), (64, 64), (64, 64), (128, 64), (32, 64), (160, 64)]], dtypes=(BF16,) * 6),
    Case(
        "gemm_quad_pairs",
        gemm_quad_pairs.build,
        product_expected,
        0.02,
        [[(m, k), (n, k)] for m, n, k in [(32, 64, 48), (64, 32, 16)]],
        dtypes=(np.float16, np.float16),
    ),
    Case("gemm_multistage", gemm_multistage.build, product_expected, 0.02, [[(m, k), (n, k)] for m, n, k in [(40, 24, 192), (1, 8, 64)]], dtypes=(BF16, BF16)),
)


def lowered(case: Case) -> tf.Kernel:
    """The kernel of a case, made once."""
    return _named(case.name)


@cache
def _named(name: str) -> tf.Kernel:
    return tf.lower(next(case for case in CASES if case.name == name).build())
