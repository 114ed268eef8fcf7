"""Variants of attention as math, and in float64."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from tests.calls import Of

T = tf.TensorView
Array = NDArray[Any]
D = 32


@dataclass(frozen=True)
class Variant:
    """What is done to the scores of queries i and keys j.

    Attributes:
        scores: in the fusion.
        exact: in float64.
        inputs: shapes and dtypes of what they read besides.
        sink: an input is one more score of each row, without a value.
        has_sums: the logarithms of the sums are a result.
    """

    scores: Of[T, T]
    exact: Of[Array, Array]
    inputs: tuple[tuple[tuple[str | int, ...], tf.DType], ...] = ()
    sink: bool = False
    has_sums: bool = False

    def fusion(self) -> tf.Fusion:
        """The math; a row that nothing is left of is 0."""
        with tf.Fusion("variant") as fusion:
            q = tf.define_tensor(["M", D], dtype=tf.bfloat16)
            k, v = (tf.define_tensor(["N", D], dtype=tf.bfloat16) for _ in range(2))
            more = [tf.define_tensor(list(shape), dtype=dtype) for shape, dtype in self.inputs]
            i, j = tf.expand_dims(tf.arange(q.shape[0]), 1), tf.expand_dims(tf.arange(k.shape[0]), 0)
            given = [tf.matmul(q, k.T, dtype=tf.float32) * D**-0.5, i, j, *more]
            s = self.scores(*given)
            top = tf.max(s, axis=1, keepdims=True)
            p = tf.where(tf.eq(s, -math.inf), 0.0, tf.exp(s - top))
            total = tf.sum(p, axis=1, keepdims=True)
            if self.sink:
                total = total + tf.exp(more[0] - top)
            out = tf.matmul(tf.cast(p, tf.bfloat16), v, dtype=tf.float32) / total
            fusion.add_output(tf.cast(tf.where(tf.eq(total, 0.0), 0.0, out), tf.bfloat16))
            if self.has_sums:
                fusion.add_output(tf.squeeze(tf.log(total) + top, 1))
        return fusion

    def wanted(self, q: Array, k: Array, v: Array, *more: Array) -> list[Array]:
        """The results in float64."""
        i, j = np.arange(len(q))[:, None], np.arange(len(k))[None]
        given: list[Array] = [q.astype(np.float64) @ k.astype(np.float64).T * D**-0.5, i, j, *more]
        s = self.exact(*given)
        every = np.concatenate([s, np.broadcast_to(more[0], (len(q), 1))], 1) if self.sink else s
        top = every.max(1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            p = np.where(s == -np.inf, 0, np.exp(s - top))
            total = np.exp(every - top).sum(1, keepdims=True)
            sums = np.log(total) + top
        return [np.where(top == -np.inf, 0, p @ v.astype(np.float64) / total), *([sums[:, 0]] if self.has_sums else [])]


def kept(condition: Array, s: Array) -> Array:
    return np.where(condition, s, -np.inf)


VARIANTS = {
    "logarithms of the sums": Variant(lambda s, i, j: s, lambda s, i, j: s, has_sums=True),
    "a window": Variant(lambda s, i, j: tf.where(tf.logical_and(j <= i, j > i - 9), s, -math.inf), lambda s, i, j: kept((j <= i) & (j > i - 9), s)),
    "a window without an end": Variant(lambda s, i, j: tf.where(j > i - 9, s, -math.inf), lambda s, i, j: kept(j > i - 9, s)),
    "causal from the end": Variant(lambda s, i, j: tf.where(j - 20 <= i, s, -math.inf), lambda s, i, j: kept(j - 20 <= i, s)),
    "a prefix": Variant(lambda s, i, j: tf.where(tf.logical_or(j < 17, j <= i), s, -math.inf), lambda s, i, j: kept((j < 17) | (j <= i), s)),
    "softcap, causal": Variant(lambda s, i, j: tf.where(j <= i, tf.tanh(s / 5.0) * 5.0, -math.inf), lambda s, i, j: kept(j <= i, np.tanh(s / 5) * 5)),
    "ALiBi": Variant(lambda s, i, j: s + tf.cast(j - i, tf.float32) * 0.25, lambda s, i, j: s + (j - i) * 0.25),
    "a sink": Variant(lambda s, i, j, sink: s, lambda s, i, j, sink: s, (((1, 1), tf.float32),), sink=True),
    "booleans": Variant(lambda s, i, j, mask: tf.where(mask, s, -math.inf), lambda s, i, j, mask: kept(mask, s), ((("M", "N"), tf.bool_),)),
    "a bias": Variant(lambda s, i, j, bias: s + bias, lambda s, i, j, bias: s + bias, ((("M", "N"), tf.float32),)),
    "documents": Variant(
        lambda s, i, j, a, b: tf.where(tf.eq(tf.expand_dims(a, 1), tf.expand_dims(b, 0)), s, -math.inf),
        lambda s, i, j, a, b: kept(a[:, None] == b[None], s),
        ((("M",), tf.int32), (("N",), tf.int32)),
    ),
}

LATE = Variant(lambda s, i, j: tf.where(tf.logical_and(j <= i + 60, j > i + 50), s, -math.inf), lambda s, i, j: kept((j <= i + 60) & (j > i + 50), s))
"""Windows that begin in the second chunk of keys."""
