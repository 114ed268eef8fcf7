"""Cases that fail."""

from collections.abc import Callable
from dataclasses import replace

import taskfuse as tf
from taskfuse.testing.case import Case


def branches(rows: int | str = "N") -> tf.Fusion:
    with tf.Fusion("branches") as fusion:
        x = tf.define_tensor([rows, 4])
        a, b = tf.sin(x), tf.exp(x)
        y = tf.add(a, b)
        fusion.add_output(y)
    return fusion


def wrong(case: Case, break_it: Callable[[tf.Kernel], tf.Kernel]) -> Case:
    kernel = case.kernel
    assert kernel is not None
    return replace(case, outcome=replace(case.outcome, kernel=break_it(kernel)))


def swapped(kernel: tf.Kernel) -> tf.Kernel:
    return tf.parse_kernel(str(kernel).replace("sin(", "cos("))
