"""Linear attention with decay, by chunks: the form of state-space models such as Mamba-2 (Dao and Gu, arXiv:2405.21060), with a scalar decay per position.

A head has a state, a matrix ``S = a * S + k v^T`` after each position, and its output is ``q S``. Position by position, this is a fold. By chunks of
positions, it becomes products: a chunk's own state is a fold over its positions; the states before chunks are a scan of these by the same rule, a linear
recurrence with the product of a chunk's decays; and an output is a masked product within its chunk, as in attention, plus a term of the state before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.options import Backend


def chunked(x: tf.TensorView, chunk: int) -> tf.TensorView:
    """[heads, positions, ...] as [heads, chunks, positions of a chunk, ...]."""
    heads, positions, *more = (int(str(e)) for e in x.shape)
    return tf.reshape(x, [heads, positions // chunk, chunk, *more])


def chunk_states(k: tf.TensorView, v: tf.TensorView, decay: tf.TensorView) -> tf.TensorView:
    """Of k [..., positions, d], v [..., positions, e] and decays [..., positions] by chunks, the state of each chunk from 0: [heads, chunks, d, e]."""
    terms = k[:, :, :, :, None] * v[:, :, :, None, :]
    terms.name = "terms"
    return tf.decayed_sum(terms, decay[:, :, :, None, None], axis=2)


def attention(heads: int, positions: int, width: int, chunk: int) -> tf.Fusion:
    """The layer: q, k, v [heads, positions, width] and decays in (0, 1] [heads, positions] to [heads, positions, width]."""
    with tf.Fusion("linear_attention") as fusion:
        q, k, v = (tf.define_tensor((heads, positions, width), name=name) for name in "qkv")
        decay = tf.define_tensor((heads, positions), name="decay")
        qs, ks, vs, decays = (chunked(x, chunk) for x in (q, k, v, decay))
        since = tf.cumsum(tf.log(decays), 2)  # logarithms of the product from the chunk's first position on
        between = since[:, :, :, None] - since[:, :, None, :]
        seen = tf.arange(chunk)[:, None] >= tf.arange(chunk)
        weights = tf.where(seen, tf.matmul(qs, ks.permute(0, 1, 3, 2)) * tf.exp(tf.where(seen, between, 0.0)), 0.0)
        whole = tf.exp(since[:, :, -1])[:, :, None, None]
        after = tf.linear_recurrence(chunk_states(ks, vs, decays), tf.broadcast_to(whole, (heads, positions // chunk, width, width)), axis=1)
        before = tf.pad(after, [(0, 0), (1, -1), (0, 0), (0, 0)])
        out = tf.matmul(weights, vs) + tf.matmul(qs * tf.exp(since)[:, :, :, None], before)
        fusion.add_output(tf.reshape(out, [heads, positions, width]), name="o")
    return fusion


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, decay: np.ndarray) -> np.ndarray:
    """The same in float64, one position after another."""
    q, k, v, decay = (a.astype(np.float64) for a in (q, k, v, decay))
    state, out = np.zeros((len(q), q.shape[2], v.shape[2])), np.zeros(v.shape)
    for t in range(q.shape[1]):
        state = state * decay[:, t, None, None] + k[:, t, :, None] * v[:, t, None, :]
        out[:, t] = np.einsum("hd,hde->he", q[:, t], state)
    return out


def build(heads: int = 2, positions: int = 24, width: int = 8, chunk: int = 8) -> tf.Fusion:
    """The states of chunks, scheduled: a block for each chunk, a thread for each element of its state, which folds the chunk's positions in a register."""
    with tf.Fusion("chunk_states") as fusion:
        k, v = (tf.define_tensor((heads, positions // chunk, chunk, width), name=name) for name in "kv")
        states = chunk_states(k, v, tf.define_tensor((heads, positions // chunk, chunk), name="decay"))
        fusion.add_output(states, name="states")
    terms = fusion.tensor("terms")
    for tv in (states, terms):
        tv.reorder([0, 1, 3, 4, 2]).merge(0)
        for axis, parallel in enumerate((P.BIDx, P.TIDy, P.TIDx)):
            tv.axis(axis).parallelize(parallel)
    fusion.inline_most()
    return fusion


def run(*args: Any, chunk: int, backend: Backend = "auto") -> Any:
    """The layer on arrays."""
    heads, positions, width = args[0].shape
    return tf.compile(attention(heads, positions, width, chunk), backend=backend, specialize=False, budget=1)(*args)


def main() -> None:
    """Print the loop nest of the states of chunks, run a small layer, and print the difference from NumPy."""
    print(tf.lower(build()))
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, 16, 4)).astype(np.float32) for _ in range(3))
    decay = rng.uniform(0.3, 1, (2, 16)).astype(np.float32)
    found = attention(2, 16, 4, 4).evaluate(q, k, v, decay)[0]
    print("largest difference from NumPy:", np.abs(found - reference(q, k, v, decay)).max())


if __name__ == "__main__":
    main()
