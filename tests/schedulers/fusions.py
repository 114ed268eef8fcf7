"""Fusions as real models make them, with a product or a norm next to views: of which no scheduler alone makes a kernel, or where the first that tries is
refused. Small, so that the simulator runs them; :data:`FUSIONS` has them by name."""

from collections.abc import Callable
from functools import partial
from itertools import cycle

import taskfuse as tf

HALF, WIDE, INDEX = tf.bfloat16, tf.float32, tf.int64
Build = Callable[[], list[tf.TensorView]]


def tensor(name: str, *shape: int | str, dtype: tf.DType = WIDE) -> tf.TensorView:
    return tf.define_tensor(list(shape), dtype=dtype, name=name)


# -- what is computed, merged, sliced or permuted before it is multiplied -----------------------------------------------------------------


def merged_before_product(d: tf.DType) -> list[tf.TensorView]:
    return [tf.relu(tensor("x", 2, 16, 64, dtype=d)).reshape(32, 64) @ tensor("w", 64, 64, dtype=d)]


def norm_before_product(d: tf.DType) -> list[tf.TensorView]:
    return [tf.rms_norm(tensor("x", 2, 16, 64, dtype=d), tensor("g", 64, dtype=d), axis=2).reshape(32, 64) @ tensor("w", 64, 64, dtype=d)]


def mlp_of_a_block(d: tf.DType) -> list[tf.TensorView]:
    x = tensor("x", 2, 16, 64, dtype=d)
    h = tf.layer_norm(x, tensor("g", 64, dtype=d), tensor("b", 64, dtype=d), 2).reshape(32, 64)
    return [x + (tf.relu(h @ tensor("u", 64, 64, dtype=d)) @ tensor("v", 64, 64, dtype=d)).reshape(2, 16, 64)]


def rolled_norm() -> list[tf.TensorView]:
    return [tf.layer_norm(tf.roll(tensor("x", 2, 4, 4, 8, dtype=HALF), [1, -1], [1, 2]), tensor("g", 8), tensor("b", 8), 3)]


def shifted_windows_before_product(d: tf.DType) -> list[tf.TensorView]:
    x = tf.roll(tensor("x", 2, 8, 8, 32, dtype=d), [2, 2], [1, 2])
    return [x.reshape(2, 2, 4, 2, 4, 32).permute(0, 1, 3, 2, 4, 5).reshape(128, 32) @ tensor("w", 32, 32, dtype=d)]


def halves_of_a_product(d: tf.DType) -> list[tf.TensorView]:
    h = tensor("x", 32, 64, dtype=d) @ tensor("w", 64, 64, dtype=d)
    return [h[:, :32] @ h[:, 32:].T]


def permuted_norm_before_product(d: tf.DType) -> list[tf.TensorView]:
    x = tensor("x", 2, 32, 16, dtype=d).permute(0, 2, 1)
    return [tf.layer_norm(x, tensor("g", 32, dtype=d), tensor("b", 32, dtype=d), 2).reshape(32, 32) @ tensor("w", 32, 32, dtype=d)]


def first_token_of_a_norm(d: tf.DType) -> list[tf.TensorView]:
    y = tf.layer_norm(tensor("x", 32, 4, 64, dtype=d), tensor("g", 64, dtype=d), tensor("b", 64, dtype=d), 2)
    return [y[:, 0] @ tensor("w", 64, 32, dtype=d) + tensor("c", 32, dtype=d)]


def residual_through_a_reshape(d: tf.DType) -> list[tf.TensorView]:
    x, r, w = tensor("x", 1, 19, 64, dtype=d), tensor("r", 1, 19, 64, dtype=d), tensor("w", 64, 64, dtype=d)
    return [r + (x.reshape(19, 64) @ w).reshape(1, 19, 64)]


def product_of_odd_rows(d: tf.DType) -> list[tf.TensorView]:
    return [tf.relu(tensor("x", 29, 1, 64, dtype=d)).reshape(29, 64) @ tensor("w", 64, 31, dtype=d)]


def projection_of_heads(d: tf.DType) -> list[tf.TensorView]:
    return [tensor("x", 8, 2, 2, 32, dtype=d).permute(1, 0, 2, 3).reshape(16, 64) @ tensor("w", 64, 64, dtype=d)]


# -- attention ----------------------------------------------------------------------------------------------------------------------------


def attention(q: tf.TensorView, k: tf.TensorView, v: tf.TensorView) -> tf.TensorView:
    last = q.ndim - 1
    return tf.softmax((q @ k.permute(*range(last - 1), last, last - 1)) * 0.125, -1) @ v


def packed_attention(d: tf.DType) -> list[tf.TensorView]:
    x = tensor("qkv", 1, 16, 3, 2, 32, dtype=d)
    q, k, v = (x[:, :, i].permute(0, 2, 1, 3) for i in range(3))
    return [attention(q, k, v).permute(0, 2, 1, 3).reshape(1, 16, 64)]


def grouped_queries(d: tf.DType) -> list[tf.TensorView]:
    q = tensor("q", 1, 16, 4, 32, dtype=d).reshape(1, 16, 2, 2, 32).permute(0, 2, 3, 1, 4)
    k, v = (tensor(name, 1, 16, 2, 32, dtype=d).permute(0, 2, 1, 3).reshape(1, 2, 1, 16, 32) for name in "kv")
    return [attention(q, k, v)]


def grouped_scores(d: tf.DType) -> list[tf.TensorView]:
    q, k = tensor("q", 1, 2, 4, 16, 32, dtype=d), tensor("k", 1, 2, 1, 16, 32, dtype=d)
    return [tf.softmax((q @ k.permute(0, 1, 2, 4, 3)) * 0.125, -1)]


# -- products of a tensor with itself, and slices of products --------------------------------------------------------------------------------


def gram_transposed(d: tf.DType) -> list[tf.TensorView]:
    x = tensor("x", 32, 64, dtype=d)
    return [(x @ x.T).T]


def gram_and_bias(d: tf.DType) -> list[tf.TensorView]:
    x = tensor("x", 32, 64, dtype=d)
    return [x @ x.T + tensor("b", 32, dtype=d)]


def gram_of_a_slice(d: tf.DType) -> list[tf.TensorView]:
    h = (tensor("x", 32, 128, dtype=d) + tensor("y", 32, 128, dtype=d))[:, :64]
    return [h @ h.T]


def slice_of_a_product(d: tf.DType) -> list[tf.TensorView]:
    return [(tensor("x", 32, 64, dtype=d) @ tensor("w", 64, 64, dtype=d))[:, :32] * 2.0]


# -- without products ----------------------------------------------------------------------------------------------------------------------


def at_a_scalar_index() -> list[tf.TensorView]:
    return [tf.take(tensor("x", 8, 4)[5], tensor("i", dtype=INDEX), 0)]


def stacked_last() -> list[tf.TensorView]:
    return [tf.stack([tf.exp(tensor("x", 8, 4)), tensor("y", 8, 4)], -1)]


def stacked_integers() -> list[tf.TensorView]:
    return [tf.stack([tensor("x", 8, 4, dtype=INDEX), tensor("y", 8, 4, dtype=INDEX)], 1)]


def stacked_scalars() -> list[tf.TensorView]:
    return [tf.stack([tensor("a"), tensor("b"), tensor("c")], 0)]


def stacked_sums() -> list[tf.TensorView]:
    x = tensor("x", 64)
    return [tf.stack([x.sum(0), x.max(0)], 0)]


def part_of_one_element() -> list[tf.TensorView]:
    return [tf.cat([tensor("a", 5, 7, 16), tensor("b", 5, 7, 16)[..., :1]], -1)]


def loss_of_some_rows() -> list[tf.TensorView]:
    classes = tensor("c", 8, dtype=INDEX)
    picked = tf.take_along_axis(tf.log_softmax(tensor("x", 8, 16), 1), tf.expand_dims(tf.maximum(classes, 0), 1), 1)
    counted = classes >= 1
    return [tf.sum(tf.where(counted, tf.neg(picked.reshape(8)), 0.0)) / tf.sum(tf.cast(counted, WIDE))]


def strange_names() -> list[tf.TensorView]:
    return [tensor("i1", 8, 4) * tf.expand_dims(tensor("table", 8), 1) + tensor("two words", 4)]


PRODUCTS = (
    merged_before_product,
    norm_before_product,
    mlp_of_a_block,
    halves_of_a_product,
    permuted_norm_before_product,
    first_token_of_a_norm,
    residual_through_a_reshape,
    product_of_odd_rows,
    projection_of_heads,
    packed_attention,
    grouped_queries,
    grouped_scores,
    gram_transposed,
    gram_and_bias,
    gram_of_a_slice,
    slice_of_a_product,
    shifted_windows_before_product,
)
OTHERS = (
    rolled_norm,
    at_a_scalar_index,
    stacked_last,
    stacked_integers,
    stacked_scalars,
    stacked_sums,
    part_of_one_element,
    loss_of_some_rows,
    strange_names,
)
_PRODUCTS: dict[str, Build] = {f"{f.__name__}-{d.name}": partial(f, d) for f, d in zip(PRODUCTS, cycle((HALF, WIDE)), strict=False)}
FUSIONS = _PRODUCTS | {f.__name__: f for f in OTHERS}
