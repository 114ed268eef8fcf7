"""Folds and cascades that several tests schedule."""

from __future__ import annotations

from collections.abc import Callable

import taskfuse as tf
from taskfuse.ir.expr import View
from taskfuse.ir.identity import among

P = tf.ParallelType
Made = tuple[tf.Fusion, list[tf.TensorView]]


def attention(n: int | str = "N", *, scale: bool = True) -> Made:
    with tf.Fusion("attention") as fusion:
        q, k, v = tf.define_tensor(["M", 4]), tf.define_tensor([n, 4]), tf.define_tensor([n, 3])
        scores = tf.matmul(q, k.T)
        scores = scores * 0.5 if scale else scores
        top = tf.max(scores, axis=1)
        p = tf.exp(scores - tf.expand_dims(top, 1))
        total = tf.sum(p, axis=1)
        out = tf.matmul(p / tf.expand_dims(total, 1), v)
        fusion.add_output(out)
    return fusion, [top, total, out]


def walked(fusion: tf.Fusion, rows: int, chunks: str) -> tf.Kernel:
    """A thread per row, and all tensors of the walk in its loop over the chunks."""
    code = [e.output for e in fusion.exprs() if not isinstance(e, View)]
    zeros = [tv for tv in code if "M" not in map(str, tv.shape)]  # operands of products, filled up past the end
    for tv in (t for t in code if "M" in map(str, t.shape)):
        along = [k for k, a in enumerate(tv.loop) if str(a.extent) == chunks]
        tv.split(0, rows)
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
        if along and along[0] + 1 != 2:
            tv.reorder({along[0] + 1: 2})
    for tv in zeros:
        tv.uses[0].output.propagate([tv], upto=3)
        tf.parallelize_like(tv.uses[0].output, [tv])
    for depth in (2, 3):
        for tv in reversed(code):
            if not tv.is_output and (depth == 2 or (len(tv.loop) > 2 and str(tv.loop[2].extent) == chunks and not any(a.is_reduction for a in tv.loop[2:3]))):
                tv.inline_at(depth)
    return tf.lower(fusion)


Build = Callable[[tf.TensorView, tf.TensorView], tf.TensorView]
FOLDS: dict[str, Build] = {
    "recurrence": lambda x, d: tf.decayed_sum(x, d, axis=1),
    "with a start": lambda x, d: tf.decayed_sum(x, d, axis=1, init=3),
    "first axis": lambda x, d: tf.decayed_sum(x, d, axis=0),
    "sum": lambda x, d: tf.fold("add", x * d, axis=1, init=2),
    "maximum": lambda x, d: tf.fold("maximum", x, axis=1, init=-1),
}


def made(build: Build, shape: list[int | str]) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("folded") as fusion:
        out = build(tf.define_tensor(shape, name="x"), tf.define_tensor(shape, name="d"))
        fusion.add_output(out)
    return fusion, out


def by_threads(fusion: tf.Fusion, out: tf.TensorView, parts: int) -> None:
    """A block for each row of a fold, and a thread for each part of it."""
    code = [*out.split_fold(parts), out]
    for tv in code:
        tv.axis(0).parallelize(P.BIDx)
        if len(tv.loop) > 1:
            tv.axis(1).parallelize(P.TIDx)
    fusion.inline_most(code)
    walks = [tv for tv in code if len(tv.loop) == 3 and tv.loop[2].is_reduction and str(tv.loop[2].extent) != str(parts)]
    for tv in walks:  # complete before any is joined
        tv.inline_at(1)
    fusion.inline_most([tv for tv in code if not among(tv, walks)])
