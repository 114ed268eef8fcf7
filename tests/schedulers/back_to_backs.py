"""Fusions that ``tf.schedulers.back_to_back`` takes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.ops.attention import causal, transposed
from taskfuse.schedulers import BackToBackConfig

RNG = np.random.default_rng(12)
Size = int | str
BF16, F32 = tf.bfloat16, tf.float32


def scored(
    d: int, dv: int, heads: tuple[Size, ...], key_heads: tuple[Size, ...], sizes: tuple[Size, Size], is_causal: bool
) -> tuple[tf.Fusion, dict[str, tf.TensorView]]:
    """What gradients of attention have in common, by name: factors, exponentials of scores ``p``, and the gradients of the scores ``ds``."""
    m, n = sizes
    with tf.Fusion("gradients") as fusion:
        q, g = (tf.define_tensor([*heads, m, e], dtype=BF16, name=name) for name, e in (("q", d), ("g", dv)))
        k, v = (tf.define_tensor([*key_heads, n, e], dtype=BF16, name=name) for name, e in (("k", d), ("v", dv)))
        sums, delta = (tf.define_tensor([*heads, m], name=name) for name in ("sums", "delta"))
        times = 1 if heads == key_heads else int(heads[-1]) // int(key_heads[-1])
        keys, values = ((tf.repeat(t, times, t.ndim - 3) if times > 1 else t) for t in (k, v))
        s = tf.matmul(q, transposed(keys), dtype=F32)
        s = causal(s, -math.inf) if is_causal else s
        p = tf.exp2(s * 0.2 - tf.expand_dims(sums, sums.ndim))
        ds = p * (tf.matmul(g, transposed(values), dtype=F32) - tf.expand_dims(delta, delta.ndim))
    return fusion, {"q": q, "g": g, "k": keys, "v": values, "p": tf.cast(p, BF16), "ds": tf.cast(ds, BF16)}


def of_queries(
    d: int = 32,
    dv: int | None = None,
    heads: tuple[Size, ...] = (),
    key_heads: tuple[Size, ...] | None = None,
    sizes: tuple[Size, Size] = ("M", "N"),
    is_causal: bool = False,
) -> tf.Fusion:
    """The gradient of the queries: a sum over the keys."""
    fusion, t = scored(d, dv or d, heads, heads if key_heads is None else key_heads, sizes, is_causal)
    fusion.add_output(tf.cast(tf.matmul(t["ds"], t["k"], dtype=F32) * 0.5, BF16))
    return fusion


def of_keys(
    d: int = 32,
    dv: int | None = None,
    heads: tuple[Size, ...] = (),
    key_heads: tuple[Size, ...] | None = None,
    sizes: tuple[Size, Size] = ("M", "N"),
    is_causal: bool = False,
) -> tf.Fusion:
    """The gradients of keys and values: sums over the queries."""
    fusion, t = scored(d, dv or d, heads, heads if key_heads is None else key_heads, sizes, is_causal)
    fusion.add_output(tf.cast(tf.matmul(transposed(t["ds"]), t["q"], dtype=F32) * 0.5, BF16))
    fusion.add_output(tf.cast(tf.matmul(transposed(t["p"]), t["g"], dtype=F32), BF16))
    return fusion


def of_both(d: int = 64, dv: int | None = None, heads: tuple[Size, ...] = (2,), sizes: tuple[Size, Size] = (128, 128), is_causal: bool = False) -> tf.Fusion:
    """All three gradients; that of the queries is float32."""
    fusion, t = scored(d, dv or d, heads, heads, sizes, is_causal)
    fusion.add_output(tf.cast(tf.matmul(transposed(t["p"]), t["g"], dtype=F32), BF16))
    fusion.add_output(tf.cast(tf.matmul(transposed(t["ds"]), t["q"], dtype=F32) * 0.5, BF16))
    fusion.add_output(tf.matmul(t["ds"], t["k"], dtype=F32))
    return fusion


def layers() -> tf.Fusion:
    """Two layers of a perceptron, which has few columns: nothing of it is attention. The sum itself is a result, and one more of it."""
    with tf.Fusion("layers") as fusion:
        x, w, u = tf.define_tensor(["M", 64], dtype=tf.float16), tf.define_tensor(["N", 64], dtype=tf.float16), tf.define_tensor(["N", 32], dtype=tf.float16)
        bias = tf.define_tensor(["N"])
        hidden = tf.cast(tf.relu(tf.matmul(x, w.T, dtype=F32) + bias), tf.float16)
        out = tf.matmul(hidden, u, dtype=F32)
        fusion.add_output(out)
        fusion.add_output(tf.cast(out * 2.0, tf.float16))
    return fusion


def arrays(fusion: tf.Fusion, m: int, n: int) -> list[NDArray[Any]]:
    """Random inputs; a batch of 2."""
    sizes = {"B": 2, "M": m, "N": n}
    return [(RNG.standard_normal([sizes.get(str(e)) or int(str(e)) for e in tv.shape]) * 0.5).astype(tv.dtype.numpy) for tv in fusion.inputs]


C = BackToBackConfig
CASES: dict[str, tuple[Callable[[], tf.Fusion], BackToBackConfig, tuple[int, int]]] = {
    "queries": (of_queries, C(2, 32, 2), (130, 70)),
    "queries, causal": (lambda: of_queries(is_causal=True), C(1, 32, 2), (70, 90)),
    "queries, causal, more of them": (lambda: of_queries(is_causal=True, sizes=(150, 96)), C(1, 32, 2), (150, 96)),
    "queries, whole chunks": (lambda: of_queries(64, 32, ("B",), sizes=(70, 128)), C(1, 64, 2), (70, 128)),
    "queries, groups of heads": (lambda: of_queries(heads=("B", 4), key_heads=("B", 2), sizes=("M", 64)), C(1, 32, 3), (5, 64)),
    "one query, one key": (of_queries, C(1, 16, 2), (1, 1)),
    "queries, one chunk": (lambda: of_queries(is_causal=True, sizes=(96, 64)), C(1, 64, 2), (96, 64)),
    "keys, one chunk": (lambda: of_keys(sizes=(64, 96)), C(1, 64, 2), (64, 96)),
    "keys": (of_keys, C(1, 32, 2), (50, 70)),
    "keys, whole chunks": (lambda: of_keys(32, 64, ("B",), sizes=(128, 70)), C(1, 64, 2), (128, 70)),
    "keys, causal": (lambda: of_keys(heads=(2,), sizes=(128, 128), is_causal=True), C(1, 32, 2), (128, 128)),
    "keys, causal, more of them": (lambda: of_keys(sizes=(96, 192), is_causal=True), C(1, 32, 2), (96, 192)),
    "keys, causal, ragged": (lambda: of_keys(sizes=(75, 70), is_causal=True), C(1, 32, 2), (75, 70)),
    "keys, groups of heads": (lambda: of_keys(heads=("B", 4), key_heads=("B", 2)), C(1, 32, 2), (40, 5)),
    "layers": (layers, C(3, 32, 2), (200, 50)),
}
