"""Attention of sequences of unequal length, sequence by sequence and head by head, in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

RNG = np.random.default_rng(5)


def random(shape: Sequence[int], dtype: Any = np.float64) -> NDArray[Any]:
    return (RNG.standard_normal(shape) * 1.5).astype(dtype)


def cuts(lengths: Sequence[int]) -> NDArray[np.int32]:
    """Offsets of sequences of these lengths."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def attended(
    q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], of_q: NDArray[Any], of_k: NDArray[Any], is_causal: bool, window: int | None = None
) -> NDArray[np.float64]:
    """Of rows ``[total, heads, columns]``, one sequence after another."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group, out = q.shape[1] // k.shape[1], np.zeros((*q.shape[:2], v.shape[2]))
    for rows, keys in zip(map(slice, of_q, of_q[1:]), map(slice, of_k, of_k[1:]), strict=False):
        for head in range(q.shape[1]):
            out[rows, head] = _head(q[rows, head], k[keys, head // group], v[keys, head // group], is_causal, window)
    return out


def paged(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], pages: NDArray[Any], lengths: NDArray[Any], is_causal: bool) -> NDArray[np.float64]:
    """Of queries ``[batch, heads, queries, columns]`` and keys in pages ``[page, key, heads, columns]``."""
    batch, heads = q.shape[:2]
    out = np.zeros((*q.shape[:3], v.shape[3]))
    for b, own in enumerate(np.clip(pages, 0, len(k) - 1).reshape(batch, -1)):
        keys, values = (x.astype(np.float64)[own].reshape(-1, *x.shape[2:])[: lengths[b]] for x in (k, v))
        for head in range(heads):
            of = head // (heads // k.shape[2])
            out[b, head] = _head(q[b, head].astype(np.float64), keys[:, of], values[:, of], is_causal)
    return out


def _head(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], is_causal: bool, window: int | None = None) -> NDArray[np.float64]:
    there = np.ones((len(q), len(k)), bool)
    if is_causal:  # the last query is at the last key
        last = np.arange(len(q))[:, None] + len(k) - len(q)
        there = (np.arange(len(k)) <= last) & (window is None or np.arange(len(k)) > last - (window or 0))
    scores = np.where(there, q @ k.T * q.shape[1] ** -0.5, -np.inf)
    found = np.zeros((len(q), v.shape[1]))
    for i in np.flatnonzero(there.any(axis=1)):
        p = np.exp(scores[i] - scores[i].max())
        found[i] = p @ v / p.sum()
    return found
