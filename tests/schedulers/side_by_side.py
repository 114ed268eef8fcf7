"""Fusions for horizontal launches."""

from collections.abc import Sequence

import taskfuse as tf
from tests.calls import Math
from tests.proofs import proved


def lowered(fusion: tf.Fusion) -> tf.Kernel:
    return proved(tf.lower(fusion))


def plain(math: Math, *shapes: Sequence[int | str], name: str = "plain") -> tf.Fusion:
    with tf.Fusion(name) as fusion:
        fusion.add_output(math(*(tf.define_tensor(s, name=f"x{k}") for k, s in enumerate(shapes))))
    return fusion


def normalized(rows: int | str, columns: int, name: str = "normalized") -> tf.Fusion:
    return plain(lambda x: tf.softmax(x, axis=1), [rows, columns], name=name)
