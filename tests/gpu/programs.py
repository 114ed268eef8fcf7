"""Fusions and kernels that several of these tests launch."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from tests.gpu.device import Array

FOLDER = Path(__file__).parent.parent / "kernels"


def load(name: str) -> tf.Kernel:
    """A kernel of tests/kernels."""
    return tf.parse_kernel((FOLDER / f"{name}.kir").read_text(encoding="utf-8"))


def in_blocks(fusion: tf.Fusion) -> tf.Fusion:
    """``fusion`` with the elements of every tensor, of one shape, in blocks of 128 threads."""
    for tv in fusion.tensors():
        if not tv.is_input:
            while len(tv.loop) > 1:
                tv.merge(0)
            tv.split(0, 128)
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(1).parallelize(P.TIDx)
    fusion.inline_most()
    return fusion


def scale(dtype: tf.DType = tf.float32, rank: int = 2, least: int = 1, factor: int = 2) -> tf.Fusion:
    """``y = x * factor + 1``; extents are at least ``least``."""
    with tf.Fusion("scale") as fusion:
        x = tf.define_tensor([tf.dim(f"N{k}", min=least) for k in range(rank)], dtype=dtype, name="x")
        fusion.add_output(x * factor + 1)
    return in_blocks(fusion)


def vectorized(dtype: tf.DType = tf.float32, width: int = 4) -> tf.Fusion:
    """``y = x * 2`` of ``width`` elements per thread, loaded and stored as vectors."""
    with tf.Fusion("vectorized") as fusion:
        x = tf.define_tensor(["M", tf.dim("N", multiple_of=width)], dtype=dtype, name="x")
        y = x * 2
        fusion.add_output(y)
    loaded, doubled = x.cache_after(), y.cache_before()
    for tv in (loaded, doubled, y):
        tv.split(1, width).split(1, 64)  # [M, N/width/64, 64, width]
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(2).parallelize(P.TIDx)
    for tv in (loaded, y):
        tv.axis(3).parallelize(P.Vectorize)
    for tv in (loaded, doubled):
        tv.inline_at(3)
    return fusion


def exchanged() -> tf.Fusion:
    """Columns turned round through a workspace in Global memory: blocks read what other blocks wrote."""
    with tf.Fusion("exchanged") as fusion:
        x = tf.define_tensor([tf.dim("M", min=1, max=64), 64], dtype=tf.float32, name="x")
        doubled = x * 2
        fusion.add_output(tf.flip(doubled, 0) + 1)
    doubled.set_memory_type(MemoryType.Global)
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.axis(0).parallelize(P.BIDx)
            tv.axis(1).parallelize(P.TIDx)
    return fusion


def gemm_arguments(m: int, n: int, k: int) -> tuple[list[Array], Array]:
    """``A`` and ``B`` of small integers, whose product is exact in float32, and ``A @ B.T`` as bfloat16."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, (rows, k)).astype(ml_dtypes.bfloat16) for rows in (m, n))
    return [a, b], (a.astype(np.float32) @ b.astype(np.float32).T).astype(ml_dtypes.bfloat16)


def floats(*shape: int, seed: int = 0) -> Array:
    """Random float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
