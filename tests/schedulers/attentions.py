"""Fusions that ``tf.schedulers.attention`` takes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.ops.attention import causal, transposed
from taskfuse.schedule.parts import Parts
from taskfuse.schedule.repairs import depends
from taskfuse.schedulers import AttentionConfig
from taskfuse.schedulers.attention_math import find

RNG = np.random.default_rng(11)


def attention(
    d: int = 32,
    dv: int | None = None,
    heads: tuple[int | str, ...] = (),
    key_heads: tuple[int | str, ...] | None = None,
    sizes: tuple[int | str, int | str] = ("M", "N"),
    **options: Any,
) -> tf.Fusion:
    """Of any number of queries and keys, unless ``sizes`` says how many."""
    m, n = sizes
    with tf.Fusion("attention") as fusion:
        q = tf.define_tensor([*heads, m, d], dtype=tf.bfloat16, name="q")
        k, v = (tf.define_tensor([*(heads if key_heads is None else key_heads), n, e], dtype=tf.bfloat16) for e in (d, dv or d))
        fusion.add_output(tf.scaled_dot_product_attention(q, k, v, **options))
    return fusion


def softcapped() -> tf.Fusion:
    """Scores between -3 and 3, plus a bias of each key; with the logarithms of the sums."""
    with tf.Fusion() as fusion:
        q, k, v = (tf.define_tensor([e, 32], dtype=tf.float16) for e in ("M", "N", "N"))
        slope = tf.define_tensor(["N"])
        s = tf.tanh(tf.matmul(q, k.T, dtype=tf.float32) / 3.0) * 3.0 + slope
        top = tf.max(s, axis=1, keepdims=True)
        p = tf.exp(s - top)
        total = tf.sum(p, axis=1, keepdims=True)
        fusion.add_output(tf.cast(tf.matmul(tf.cast(p, tf.float16), v, dtype=tf.float32) / total, tf.float16))
        fusion.add_output(tf.squeeze(tf.log(total) + top, 1))
    return fusion


def latent(d: int = 192, dv: int = 128, start: int = 0, heads: tuple[int | str, ...] = (), sizes: tuple[int | str, int | str] = ("M", "N")) -> tf.Fusion:
    """Values are columns of their keys, from the one at ``start`` on."""
    m, n = sizes
    with tf.Fusion("latent") as fusion:
        q, k = (tf.define_tensor([*heads, e, d], dtype=tf.bfloat16) for e in (m, n))
        fusion.add_output(tf.scaled_dot_product_attention(q, k, k[..., start : start + dv]))
    return fusion


def keys_of_8_bits() -> tf.Fusion:
    """Causal; with a scale for each head."""
    with tf.Fusion() as fusion:
        q, k = (tf.define_tensor([2, e, 96], dtype=tf.float8_e4m3) for e in ("M", "N"))
        v, scale = tf.define_tensor([2, "N", 32], dtype=tf.bfloat16), tf.define_tensor([2, 1, 1])
        s = causal(tf.matmul(q, transposed(k), dtype=tf.float32) * scale, -math.inf)
        p = tf.exp2(s - tf.max(s, axis=-1, keepdims=True))
        total = tf.sum(p, axis=-1, keepdims=True)
        fusion.add_output(tf.cast(tf.matmul(tf.cast(p, tf.bfloat16), v, dtype=tf.float32) / total, tf.bfloat16))
    return fusion


def values_of_8_bits(
    d: int = 32,
    dv: int = 32,
    sizes: tuple[int | str, int | str] = (70, 80),
    *,
    is_causal: bool = False,
    most: float | None = 448.0,
    batch: tuple[int, ...] = (),
    is_packed: bool = True,
) -> tf.Fusion:
    """Exponentials of 8 bits, times 256, and values in the order of accumulators, or as torch has them; with a descale of each head."""
    m, n = sizes
    with tf.Fusion("bytes") as fusion:
        q, k = (tf.define_tensor([*batch, e, d], dtype=tf.float8_e4m3, name=name) for e, name in ((m, "q"), (n, "k")))
        v = tf.define_tensor([*batch, dv, n] if is_packed else [*batch, n, dv], dtype=tf.float8_e4m3, name="v")
        values, b = v, len(batch)
        if is_packed:  # [.., d, key / 16, lane, pair, element] to keys (key / 16, pair, lane, element)
            digits = tf.reshape(v, (*batch, dv, int(n) // 16, 4, 2, 2))
            values = tf.reshape(tf.permute(digits, (*range(b), *(b + p for p in (1, 3, 2, 4, 0)))), (*batch, n, dv))
        s = tf.matmul(q, transposed(k), dtype=tf.float32) * d**-0.5
        s = causal(s, -math.inf) if is_causal else s
        p = tf.exp2(s - (tf.max(s, axis=-1, keepdims=True) - 8.0))
        total = tf.sum(p, axis=-1, keepdims=True)
        p = p if most is None else tf.maximum(tf.minimum(p, most), -most)
        fusion.add_output(tf.cast(tf.matmul(tf.cast(p, tf.float8_e4m3), values, dtype=tf.float32) / total, tf.bfloat16))
    return fusion


def chunks_of(fusion: tf.Fusion, n: int, multiple: int) -> tf.Fusion:
    """The walks over chunks of its keys, side by side."""
    made = tf.chunk_cascade(find(fusion).reductions, n, multiple)
    return Parts(fusion).extract([e.output for e in fusion.exprs() if any(depends(fusion, tv, (e.output,)) for tv in made)], "chunks")


def single() -> tf.Fusion:
    with tf.Fusion() as fusion:
        a, b = (tf.define_tensor([64, 64], dtype=tf.bfloat16) for _ in range(2))
        fusion.add_output(tf.matmul(a, b))
    return fusion


def chained() -> tf.Fusion:
    """Nothing is reduced between the products, of float32."""
    with tf.Fusion() as fusion:
        a, b, c = (tf.define_tensor([64, 64]) for _ in range(3))
        fusion.add_output(tf.relu(a @ b) @ c)
    return fusion


def scaled_first() -> tf.Fusion:
    with tf.Fusion() as fusion:
        q, k, v = (tf.define_tensor(["M", 64], dtype=tf.bfloat16) for _ in range(3))
        fusion.add_output(tf.scaled_dot_product_attention(q * 2.0, k, v))
    return fusion


def arrays(fusion: tf.Fusion, m: int, n: int) -> list[NDArray[Any]]:
    """Random inputs; a batch of 2."""
    sizes = {"B": 2, "M": m, "N": n}
    return [(RNG.standard_normal([sizes.get(str(e)) or int(str(e)) for e in tv.shape]) * 2).astype(tv.dtype.numpy) for tv in fusion.inputs]


CASES: dict[str, tuple[Callable[[], tf.Fusion], AttentionConfig, tuple[int, int]]] = {
    "any lengths, products ahead, in turn": (attention, AttentionConfig(2, 32, 2, is_pipelined=True, in_turn=True), (130, 70)),
    "one query, one key": (attention, AttentionConfig(1, 16, 3), (1, 1)),
    "one chunk of keys": (lambda: attention(sizes=("M", 32)), AttentionConfig(1, 32, 2), (70, 32)),
    "one short chunk of keys": (lambda: attention(heads=("B",), sizes=("M", 30)), AttentionConfig(1, 32, 2), (70, 30)),
    "one chunk of causal keys": (lambda: attention(sizes=(30, 30), is_causal=True), AttentionConfig(1, 32, 2), (30, 30)),
    "other columns": (lambda: attention(72, 40, ("B",)), AttentionConfig(1, 48, 2), (3, 50)),
    "keys that are values": (lambda: latent(32, 32), AttentionConfig(1, 32, 2), (70, 50)),
    "keys that are values, products ahead": (lambda: latent(32, 32, sizes=("M", 64)), AttentionConfig(1, 32, 2, is_pipelined=True), (5, 64)),
    "parts of the columns": (latent, AttentionConfig(2, 32, 2, parts=2), (70, 50)),
    "parts of the columns, values from the middle of keys": (lambda: latent(start=64, sizes=(5, 64)), AttentionConfig(2, 32, 2, parts=2, staged=1), (5, 64)),
    "scores of their own": (lambda: latent(sizes=(20, "N")), AttentionConfig(2, 32, 2, parts=2, apart=True), (20, 50)),
    "causal, products ahead": (lambda: attention(is_causal=True), AttentionConfig(1, 32, 2, is_pipelined=True), (70, 70)),
    "groups of heads": (lambda: attention(heads=("B", 4), key_heads=("B", 2), enable_gqa=True), AttentionConfig(1, 32, 2), (5, 40)),
    "keys of two blocks": (lambda: attention(heads=("B",)), AttentionConfig(1, 32, 2, cluster=2), (140, 70)),
    "rows in turn, staged": (lambda: attention(64, heads=("B",)), AttentionConfig(1, 32, 2, blocks=3, query_stages=2, staged=2), (200, 40)),
    "causal rows that blocks claim": (
        lambda: attention(heads=(2,), sizes=(150, 150), is_causal=True),
        AttentionConfig(1, 32, 2, blocks=2, query_stages=2),
        (150, 150),
    ),
    "keys of 8 bits": (keys_of_8_bits, AttentionConfig(1, 32, 2), (70, 70)),
    "softcap, bias, sums": (softcapped, AttentionConfig(1, 32, 2), (65, 33)),
}

BYTES: dict[str, tuple[Callable[[], tf.Fusion], AttentionConfig]] = {
    "short chunk": (values_of_8_bits, AttentionConfig(1, 32, 2)),
    "causal, products ahead": (lambda: values_of_8_bits(sizes=(96, 96), is_causal=True, batch=(2,)), AttentionConfig(1, 64, 2, is_pipelined=True)),
    "parts": (lambda: values_of_8_bits(dv=128, sizes=(5, 96), most=None), AttentionConfig(2, 96, 2, parts=2, staged=1)),
}
"""With values of 8 bits."""


def of_8_bits(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], *, is_causal: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The result in float64, and with exponentials in 8 bits."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    if is_causal:
        s[..., ~np.tri(*s.shape[-2:], dtype=bool)] = -np.inf
    p = np.exp2(s - s.max(-1, keepdims=True) + 8.0)
    total = p.sum(-1, keepdims=True)
    return p @ v / total, p.astype(tf.float8_e4m3.numpy).astype(np.float64) @ v / total


def as_packed(v: NDArray[Any]) -> NDArray[Any]:
    """Values ``[.., keys, columns]`` in the order of accumulators, ``[.., columns, keys]``."""
    *batch, n, d = v.shape
    b = len(batch)
    return v.reshape(*batch, n // 16, 2, 4, 2, d).transpose(*range(b), *(b + p for p in (4, 0, 2, 1, 3))).reshape(*batch, d, n).copy()
