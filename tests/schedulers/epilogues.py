"""Reductions with what follows them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import taskfuse as tf
from taskfuse.schedulers import MatmulConfig
from tests.schedulers.products import SMALL, TWO, swapped

Epilogue = Callable[[tf.TensorView], Sequence[tf.TensorView]]


def bf16(x: tf.TensorView) -> tf.TensorView:
    return tf.cast(x, tf.bfloat16)


def moments(x: tf.TensorView) -> list[tf.TensorView]:
    mean, square = tf.mean(x, axis=1), tf.mean(tf.square(x), axis=1)
    return [mean, tf.sqrt(square - mean * mean + 1e-3)]


def scaled(x: tf.TensorView) -> list[tf.TensorView]:
    """What a quantization needs of each row, from math with more inputs, before and behind the reduction."""
    bias, floor = tf.define_tensor(["N"], name="bias"), tf.define_tensor(["M"], name="floor")
    return [bf16(x + bias), tf.maximum(tf.max(tf.abs(x + bias), axis=1), floor) / 448.0]


def fusion_of(epilogue: Epilogue, batch: Sequence[str] = ()) -> tf.Fusion:
    with tf.Fusion("reduced") as fusion:
        a = tf.define_tensor([*batch, "M", tf.dim("K", multiple_of=8)], dtype=tf.bfloat16, name="a")
        b = tf.define_tensor([*batch, tf.dim("N", multiple_of=8), "K"], dtype=tf.bfloat16, name="b")
        for out in epilogue(tf.matmul(a, swapped(b), dtype=tf.float32)):
            fusion.add_output(out)
    return fusion


CASES: dict[str, tuple[Epilogue, MatmulConfig, tuple[str, ...]]] = {
    "rows": (lambda x: [bf16(x), tf.sum(x, axis=1)], SMALL, ()),
    "columns": (lambda x: [tf.max(tf.relu(x), axis=0), tf.relu(x)], TWO, ()),
    "all three": (lambda x: [x, tf.sum(x, axis=1), tf.sum(x, axis=0), tf.sum(x)], TWO, ()),
    "no product": (lambda x: [tf.max(tf.abs(x), axis=1, keepdims=True)], TWO, ()),
    "rounded": (lambda x: [y := bf16(x), tf.sum(y, axis=0), tf.sum(x.T, axis=0)], replace(SMALL, tile_m=128), ()),
    "moments": (moments, SMALL, ()),
    "scaled": (scaled, SMALL, ()),
    "transposed": (lambda x: [x.T, tf.sum(x.T, axis=1)], SMALL, ()),
    "batch": (lambda x: [bf16(x), tf.sum(x, axis=2), tf.sum(x, axis=(0, 1))], SMALL, ("B",)),
}
