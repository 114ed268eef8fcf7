"""Reductions that read one another, which several tests make cascades of."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

import taskfuse as tf
from tests.schedule.folded import Made, attention


def logsumexp() -> Made:
    with tf.Fusion("logsumexp") as fusion:
        x = tf.define_tensor(["M", "N"])
        top = tf.max(x, axis=1)
        total = tf.sum(tf.exp(x - tf.expand_dims(top, 1)), axis=1)
        fusion.add_output(tf.log(total) + top)
    return fusion, [top, total]


def softmin() -> Made:
    """With the smallest element, along the first axis, and a mean weighted by an input."""
    with tf.Fusion("softmin") as fusion:
        x, w = tf.define_tensor(["N", "M"]), tf.define_tensor(["N", "M"])
        least = tf.min(x, axis=0)
        p = tf.where(w > 0.0, tf.exp2((least - x) * 2.0), 0.0)
        total, mean = tf.sum(p, axis=0), tf.sum(p * w, axis=0)
        fusion.add_output(mean / total)
    return fusion, [least, total, mean]


def normed_product() -> Made:
    """An RMS norm behind its product: the root waits for the sum of squares."""
    with tf.Fusion("normed_product") as fusion:
        x, w = tf.define_tensor(["M", "N"]), tf.define_tensor(["N", 3])
        square = tf.sum(x * x, axis=1)
        out = tf.matmul(x * tf.expand_dims(tf.rsqrt(square * 0.125 + 1e-5), 1), w)
        fusion.add_output(out)
    return fusion, [square, out]


def apart() -> Made:
    """Two sums that read no other one share the walk."""
    with tf.Fusion("apart") as fusion:
        x = tf.define_tensor(["M", "N"])
        a, b = tf.sum(x, axis=1), tf.sum(x * x, axis=1)
        fusion.add_output(b - a * a)
    return fusion, [a, b]


def arguments(fusion: tf.Fusion, seed: int, m: int, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = {"M": m, "N": n}
    return [(rng.standard_normal([sizes.get(str(e)) or int(str(e)) for e in tv.shape]) * 4).astype(np.float32) for tv in fusion.inputs]


def mask(x: tf.TensorView, c: random.Random) -> tf.TensorView:
    """Where elements count that lie in front of some end of their row."""
    rows, columns = tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0)
    return c.choice(
        [
            lambda: columns <= rows,
            lambda: columns < rows * 2 + c.randint(0, 2),
            lambda: rows + 1 >= columns,
            lambda: columns < 3,
            lambda: tf.logical_and(columns <= rows + 2, columns > rows - 2),
            lambda: tf.logical_or(columns < 2, tf.logical_not(columns > rows)),
            lambda: columns < tf.maximum(rows + 1, 3),
        ]
    )()


def random_cascade(seed: int) -> tuple[Made, list[np.ndarray]]:
    """Sums of random terms, with factors, behind a maximum or a minimum of one tensor; some of its elements are infinite."""
    c = random.Random(seed)
    with tf.Fusion() as fusion:
        x, z = tf.define_tensor(["M", "N"]), tf.define_tensor(["M", "N"])
        v, w = tf.define_tensor(["N", 3]), tf.define_tensor(["N"])
        name, nothing = c.choice([("max", -np.inf), ("min", np.inf)])
        source = c.choice([x, x * 2.0, x + w, tf.where(z > 0.0, x, nothing)])
        is_masked = c.random() < 0.4
        if is_masked:
            source = tf.where(mask(x, c), source, nothing)
        top = getattr(tf, name)(source, axis=1)
        r = tf.expand_dims(top, 1)

        def term() -> tf.TensorView:
            s, scale = source if is_masked and c.random() < 0.9 else c.choice([x, z, source, x * 0.5]), c.choice([0.5, 1.0, 2.0])
            return c.choice(
                [
                    lambda: tf.exp(s - r),
                    lambda: tf.exp2((s - r) * scale),
                    lambda: tf.where(z > 0.3, tf.exp(-(r - s)), 0.0),
                    lambda: tf.exp(s - r) * z / (z * z + 1.0),
                    lambda: x * z,
                    lambda: tf.exp((s - r) / 2.0) * tf.exp(s - r),
                ]
            )()

        total = tf.sum(term(), axis=1)
        reductions = [top, total]
        for _ in range(c.randint(0, 2)):
            p = term() / tf.expand_dims(total, 1) if c.random() < 0.5 else term()
            reductions.append(tf.matmul(p, v) if c.random() < 0.5 else tf.sum(p, axis=1))
        for tv in (reductions[2:] or [total]) + [top] * c.randint(0, 1):
            fusion.add_output(tv)
    args = arguments(fusion, seed, c.randint(1, 4), c.randint(1, 12))
    if c.random() < 0.3:
        args[0][np.random.default_rng(seed).random(args[0].shape) < 0.3] = nothing
    return (fusion, reductions), args


CASES: dict[str, Callable[[], Made]] = {"attention": attention, "logsumexp": logsumexp, "softmin": softmin, "normed_product": normed_product, "apart": apart}
