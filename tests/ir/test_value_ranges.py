"""Ranges of integers against what the reference computes: no element is outside, and known ones are as narrow as they can be."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.value_ranges import value_range

X = np.random.default_rng(0).integers(-128, 128, (6, 8)).astype(np.int8)
CASES: dict[str, tuple[Callable[[tf.TensorView], tf.TensorView], tuple[int, int]]] = {
    "input": (lambda x: x, (-128, 127)),
    "cast": (lambda x: tf.cast(x, tf.int64), (-128, 127)),
    "cast that wraps": (lambda x: tf.cast(x, tf.uint8), (0, 255)),
    "sum": (lambda x: tf.cast(x, tf.int32) + 3, (-125, 130)),
    "sum that wraps": (lambda x: x + x, (-128, 127)),
    "product": (lambda x: tf.cast(x, tf.int32) * -2, (-254, 256)),
    "remainder": (lambda x: tf.remainder(tf.cast(x, tf.int64), 5), (0, 4)),
    "quotient": (lambda x: tf.floor_divide(tf.cast(x, tf.int64), 5), (-26, 25)),
    "unknown divisor": (lambda x: tf.remainder(tf.cast(x, tf.int64), tf.cast(x, tf.int64)), (-(2**63), 2**63 - 1)),
    "mask": (lambda x: tf.bitwise_and(tf.cast(x, tf.int64), 12), (0, 12)),
    "shift": (lambda x: tf.right_shift(tf.cast(x, tf.int64), 4), (-8, 7)),
    "clamped": (lambda x: tf.maximum(tf.minimum(x, 9), -3), (-3, 9)),
    "choice": (lambda x: tf.where(tf.gt(x, 3), 17, tf.cast(tf.minimum(x, 3), tf.int32)), (-128, 17)),
    "bool": (lambda x: tf.cast(tf.gt(x, 3), tf.int64), (0, 1)),
    "counted": (lambda x: tf.arange(8) * 2 - 1 + tf.cast(x, tf.int64) * 0, (-1, 13)),
    "padded": (lambda x: tf.pad(tf.maximum(x, 4), [(0, 0), (1, 0)], 2), (2, 127)),
    "gathered, or 0": (lambda x: tf.take(tf.maximum(x, 4), tf.cast(x[0], tf.int64), 0), (0, 127)),
    "view": (lambda x: tf.reshape(tf.minimum(x, 4), [48]), (-128, 4)),
    "place in a row": (lambda x: tf.topk(x, 2)[1], (0, 7)),
}


@pytest.mark.parametrize("case", CASES)
def test_range(case: str) -> None:
    made, wanted = CASES[case]
    with tf.Fusion("f") as fusion:
        found = made(tf.define_tensor([6, 8], tf.int8))
        fusion.add_output(tf.copy(found))
    assert value_range(found) == wanted
    with np.errstate(all="ignore"):
        values = fusion.evaluate(X)[0] if case != "unknown divisor" else X
    assert wanted[0] <= values.min()
    assert values.max() <= wanted[1]
