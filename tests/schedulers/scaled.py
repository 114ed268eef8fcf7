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
