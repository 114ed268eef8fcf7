"""Schedules that lowering refuses, each one step from one that lowers."""

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.errors import LoweringError
from tests.lowering.running import bind, refused

S, TX, TY, TZ, BX = P.Serial, P.TIDx, P.TIDy, P.TIDz, P.BIDx


def pair(shape: tuple[int | str, ...] = (4, 8), flip: int | None = None) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    """tv1 = -x, tv2 (or tv3) = tv1 + 1, or its reversal along an axis."""
    with tf.Fusion("pair") as fusion:
        x = tf.define_tensor(list(shape), name="x")
        a = tf.neg(x)
        b = tf.add(a if flip is None else tf.flip(a, flip), 1.0)
        fusion.add_output(b)
    return fusion, a, b


def lowering(fusion: tf.Fusion) -> str:
    return refused(lambda: tf.lower(fusion), LoweringError)


def pipeline(producer: tuple[P, ...], consumer: tuple[P, ...], inline: int, shape: tuple[int, ...] = (4, 6, 8)) -> tf.Fusion:
    fusion, a, b = pair(shape)
    bind(a, *producer)
    bind(b, *consumer)
    fusion.group([fusion.task([a], "load"), fusion.task([b], "compute")], "g").parallelize(TZ)
    a.inline_at(inline)
    return fusion
