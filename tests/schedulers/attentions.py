"""Fusions that ``tf.schedulers.attention`` takes."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.ops.attention import causal, transposed
from taskfuse.schedulers import AttentionConfig

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


def keys_that_are_values() -> tf.Fusion:
    """Both products read one tensor."""
    with tf.Fusion() as fusion:
        q, k = (tf.define_tensor([e, 32], dtype=tf.bfloat16) for e in ("M", "N"))
        fusion.add_output(tf.scaled_dot_product_attention(q, k, k))
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
    "other columns": (lambda: attention(192, 96, ("B",)), AttentionConfig(1, 48, 2), (3, 50)),
    "keys that are values": (keys_that_are_values, AttentionConfig(1, 32, 2), (70, 50)),
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
