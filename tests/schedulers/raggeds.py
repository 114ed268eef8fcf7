"""Fusions of attention of sequences of unequal length, of bfloat16."""

from typing import Any

import taskfuse as tf


def varlen_attention(
    queries: Any, keys: Any, sequences: int, heads: int = 2, key_heads: int = 1, depth: int = 32, *, lengths: bool = False, **options: Any
) -> tf.Fusion:
    """Of rows; their tables are offsets, or lengths."""
    with tf.Fusion("varlen_attention") as fusion:
        q = tf.define_tensor([queries, heads, depth], tf.bfloat16, name="q")
        k, v = (tf.define_tensor([keys, key_heads, depth], tf.bfloat16, name=name) for name in "kv")
        of_q, of_k = (
            tf.table(name, sequences + (not lengths), high=tv.shape[0], rising=not lengths, lengths=lengths) for name, tv in (("of_q", q), ("of_k", k))
        )
        fusion.add_output(tf.varlen_attention(q, k, v, of_q, of_k, **options), name="o")
    return fusion


def paged_attention(batch: int, heads: int, key_heads: int, queries: int, depth: int, pages: int, size: int, each: int, **options: Any) -> tf.Fusion:
    """Of ``each`` pages of a sequence, of ``size`` keys."""
    with tf.Fusion("paged_attention") as fusion:
        q = tf.define_tensor([batch, heads, queries, depth], tf.bfloat16, name="q")
        k, v = (tf.define_tensor([pages, size, key_heads, depth], tf.bfloat16, name=name) for name in "kv")
        table, lengths = tf.table("pages", batch * each, high=pages - 1), tf.table("lengths", batch, high=each * size)
        fusion.add_output(tf.paged_attention(q, k, v, table, lengths, **options), name="o")
    return fusion
