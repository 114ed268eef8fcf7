"""How far results may lie from NumPy's."""

import numpy as np

import taskfuse as tf
from taskfuse.testing.tolerance import accepted, is_exact


def fusion(exact: bool) -> tf.Fusion:
    with tf.Fusion("f") as made:
        x = tf.define_tensor([4])
        made.add_output(x * 2 if exact else tf.exp(x).sum(0))
    return made


def test_exact_functions_have_one_result() -> None:
    assert is_exact(fusion(True))
    assert not is_exact(fusion(False))


def test_inexact_functions_have_a_range() -> None:
    x = np.array([0.5, 1.0, 2.0, -1.0], np.float32)
    (bound,) = accepted(fusion(False), [x])
    right = np.exp(x.astype(np.float64)).sum()
    assert len(bound.wrong(np.asarray(right * (1 + 1e-7)))) == 0
    assert len(bound.wrong(np.asarray(right * (1 + 1e-4)))) == 1
    assert len(bound.wrong(np.asarray(np.nan))) == 1
