"""One walk over few keys, whose scores are hard for sums relative to a running maximum: results beside float64. One kernel computes all of them."""

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.kir import Kernel
from taskfuse.schedulers import AttentionConfig

D, CHUNK = 32, 16
Array = NDArray[Any]


@cache
def kernel() -> Kernel:
    """Masked attention, and the logarithms of the sums; rows that no key is left of are 0, and -inf."""
    with tf.Fusion("edges") as fusion:
        q, n = tf.define_tensor(["M", D], dtype=tf.bfloat16, name="q"), tf.dim("N", min=0)
        k, v = (tf.define_tensor([n, D], dtype=tf.bfloat16, name=name) for name in "kv")
        mask = tf.define_tensor(["M", "N"], dtype=tf.bool_, name="mask")
        s = tf.where(mask, tf.matmul(q, k.T, dtype=tf.float32), -math.inf)
        top = tf.max(s, axis=1, keepdims=True)
        p = tf.where(tf.eq(s, -math.inf), 0.0, tf.exp(s - top))
        total = tf.sum(p, axis=1, keepdims=True)
        out = tf.matmul(tf.cast(p, tf.bfloat16), v, dtype=tf.float32) / total
        fusion.add_output(tf.cast(tf.where(tf.eq(total, 0.0), 0.0, out), tf.bfloat16))
        fusion.add_output(tf.squeeze(tf.log(total) + top, 1))
    tf.schedulers.attention(fusion, AttentionConfig(1, CHUNK, 2))
    made = tf.lower(fusion)
    made.verify().require()
    return made


def check(scores: Array, mask: Array | None = None, keys: Array | None = None) -> None:
    """Queries are unit vectors times a number, so that ``scores`` are exact: row i is that of query i."""
    rows, count = scores.shape
    q = np.zeros((rows, D))
    q[np.arange(rows), np.arange(rows)] = 1
    k = np.zeros((count, D)) if keys is None else keys
    k[:, :rows] = scores.T
    v = np.random.default_rng(3).standard_normal((count, D)).astype(tf.bfloat16.numpy)
    there = np.ones((int(rows), int(count)), np.bool_) if mask is None else mask
    q, k = (x.astype(tf.bfloat16.numpy) for x in (q, k))
    s = np.where(there, k[:, :rows].T.astype(np.float64), -np.inf)
    top = s.max(1, keepdims=True, initial=-np.inf)
    shift = np.where(top == -np.inf, 0, top)
    p = np.exp(s - shift)
    total = p.sum(1, keepdims=True)
    with np.errstate(divide="ignore"):
        wanted = p @ v.astype(np.float64) / np.maximum(total, 1e-300), (np.log(total) + shift)[:, 0]
    for found, exact in zip(kernel().simulate(q, k, v, there, seed=1), wanted, strict=True):
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("count", [0, 1, CHUNK, CHUNK + 1, 2 * CHUNK + 1])
def test_lengths(count: int) -> None:
    check(np.random.default_rng(count).standard_normal((2, count)))


def test_masked_rows_and_chunks() -> None:
    """All keys; those of the first chunk; of all but the last key; of the last chunk."""
    mask = np.ones((4, 3 * CHUNK), np.bool_)
    mask[0], mask[1, :CHUNK], mask[2, :-1], mask[3, -CHUNK:] = False, False, False, False
    check(np.random.default_rng(1).standard_normal(mask.shape), mask)


def test_the_maximum_rises_late() -> None:
    """By 50 at the last key, by 7.9 and 8.1 in units of a logarithm to base 2 from chunk to chunk; and never."""
    scores = np.zeros((4, 3 * CHUNK))
    scores[0, -1] = 50
    scores[1:3] = np.arange(3 * CHUNK) // CHUNK * (np.array([[7.9], [8.1]]) * math.log(2))
    check(scores)


def test_large_scores() -> None:
    """A bfloat16 is exact to 2 in 512: differences of neighbors are 0 or far below the rest of the sum."""
    scores = np.random.default_rng(2).integers(-2, 3, (3, 2 * CHUNK)).astype(np.float64)
    scores *= np.array([[512.0], [1.0], [512.0]])
    scores += np.array([[7.0e4], [0.0], [-7.0e4]])
    check(scores)


def test_masked_keys_may_be_anything() -> None:
    mask = np.ones((2, CHUNK + 3), np.bool_)
    mask[:, 5], mask[:, -1] = False, False
    keys = np.zeros((CHUNK + 3, D))
    keys[5], keys[-1] = math.inf, math.nan
    scores = np.random.default_rng(4).standard_normal(mask.shape)
    scores[:, 5], scores[:, -1] = math.inf, math.nan
    check(scores, mask, keys)
