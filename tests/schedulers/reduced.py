"""Reductions that schedulers are tried on."""

import taskfuse as tf


def x(*shape: int | str, name: str = "x") -> tf.TensorView:
    return tf.define_tensor(list(shape), name=name)
