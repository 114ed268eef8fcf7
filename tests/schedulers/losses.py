"""Losses of the logits that a product makes, for tests of kernels that store no logits."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse.ir.storage import needed, producers
from taskfuse.schedule.segment import SegmentedFusion
from taskfuse.schedulers.product_cascades import chunk_product_cascades, tile_walks
from taskfuse.schedulers.schedule import Sizes
from taskfuse.target import DEFAULT

Loss = Callable[[tf.TensorView, tf.TensorView], tf.TensorView]


def loss_of(loss: Loss, tokens: int | str, classes: int, width: int = 64) -> tf.Fusion:
    """A loss of logits in bfloat16, and of targets."""
    with tf.Fusion("loss") as fusion:
        x, w = (tf.define_tensor([n, width], dtype=tf.bfloat16, name=name) for n, name in ((tokens, "x"), (classes, "w")))
        target = tf.define_tensor([tokens], dtype=tf.int64, name="target")
        fusion.add_output(loss(tf.cast(tf.matmul(x, w.T), tf.float32), target))
    return fusion


def plain(x: tf.TensorView, target: tf.TensorView) -> tf.TensorView:
    """Cross-entropy of each token."""
    return tf.cross_entropy(x, target, reduction="none")


def form_of(fusion: tf.Fusion) -> tf.Fusion | None:
    """The fusion with rows of its product in chunks."""
    form = chunk_product_cascades(fusion, Sizes(fusion, None, DEFAULT))
    return None if form is None else form.fusion


def segmented(form: tf.Fusion) -> tuple[SegmentedFusion, tf.Fusion]:
    """Such a fusion as what comes before the product, the product with what is computed of its tiles, and the rest; and the second of these."""
    walk = {*next(tile_walks(form))}
    before = set[tf.TensorView]()
    stack = list(walk)
    while stack:
        for tv in producers(form, stack.pop()):
            if not tv.is_input and tv not in walk and tv not in before:
                before.add(tv)
                stack.append(tv)
    every = [e.output for e in needed(form)]
    parts = ([tv for tv in every if tv in before], [tv for tv in every if tv in walk], [tv for tv in every if tv not in before and tv not in walk])
    made = tf.segment(form, [part for part in parts if part])
    return made, made.segments[len(parts[0]) > 0]
