"""Products with scales of blocks, and small configurations of their schedule."""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig

ONE = MatmulConfig(64, 64, 128, 1, stages=2, in_flight=0, group=2, blocks=2)
"""64 x 64, one warpgroup."""


def symbolic(form: str, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    """The product of [M, K] and [N, K]; scales of ``a`` lie row by row (``1d2d``) or block by block (``1d1d``, ``bulk``)."""
    with tf.Fusion("scaled") as fusion:
        rows = tf.dim("M", multiple_of=4) if form == "bulk" else tf.dim("M")
        columns = tf.dim("N", multiple_of=8)
        a, b = (tf.define_tensor([d, tf.dim("K", multiple_of=128, min=128)], tf.float8_e4m3, name=name) for d, name in ((rows, "a"), (columns, "b")))
        if form == "1d2d":
            scale_a = tf.define_tensor(["M", "K//128"], tf.float32, name="scale_a")
        else:
            scale_a = tf.define_tensor(["K//128", "M"], tf.float32, name="scale_a").T
        if form == "1d1d":
            scale_b = tf.define_tensor(["K//128", "N"], tf.float32, name="scale_b")
        else:
            scale_b = tf.define_tensor(["ceildiv(N, 128)", "K//128"], tf.float32, name="scale_b").T
        fusion.add_output(tf.scaled_matmul(a, b.T, scale_a, scale_b, dtype=dtype))
    return fusion


def arguments(form: str, m: int, n: int, k: int) -> list[npt.NDArray[Any]]:
    """Random inputs: integers, and scales that are powers of two, so that every order of sums gives the same."""
    rng = np.random.default_rng(m + n + k)
    blocks = k // 128
    factors = [rng.integers(-4, 5, (rows, k)).astype(ml_dtypes.float8_e4m3fn) for rows in (m, n)]
    shapes = (m, blocks) if form == "1d2d" else (blocks, m), (blocks, n) if form == "1d1d" else (-(-n // 128), blocks)
    return [*factors, *(np.exp2(rng.integers(-2, 3, s)).astype(np.float32) for s in shapes)]


def grouped(rows: int, groups: int, n: int, k: int) -> tf.Fusion:
    """Ragged groups of rows, each with a matrix of its own, and scales of blocks."""
    with tf.Fusion("grouped") as fusion:
        a, b = tf.define_tensor((rows, k), tf.float8_e4m3, name="a"), tf.define_tensor((groups, n, k), tf.float8_e4m3, name="b")
        scale_a = tf.define_tensor((rows, k // 128), tf.float32, name="scale_a")
        scale_b = tf.define_tensor((groups, k // 128, -(-n // 128)), tf.float32, name="scale_b")
        offsets = tf.table("offsets", groups + 1, rows, rising=True)
        product = tf.grouped_matmul(a, b.permute(0, 2, 1), offsets, tf.bfloat16, scale_a=scale_a, scale_b=scale_b)
        fusion.add_output(product)
    return fusion
