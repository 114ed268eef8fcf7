"""The iteration space of a fusion with reductions."""

import numpy as np

import taskfuse as tf
from taskfuse.testing.tolerance import accepted
from tests.proofs import proved
from tests.schedulers.reduced import x


def test_rows_of_a_view() -> None:
    """Halves of a row, of an input that has it whole: vectors lie side by side in both."""
    with tf.Fusion("groups") as fusion:
        a = x(2, 8, 16)
        fusion.add_output(tf.layer_norm(tf.reshape(a, (2, 2, 4, 16)), None, None, (2, 3)))
    reference, _ = tf.copy_fusion(fusion)
    tf.schedulers.normalization(fusion)
    kernel = tf.lower(fusion)
    proved(kernel)
    assert "width 4" in str(kernel)
    args = [np.random.default_rng(0).normal(size=(2, 8, 16)).astype(np.float32)]
    for found, wanted in zip(kernel.simulate(*args), accepted(reference, args), strict=True):
        assert not len(wanted.wrong(found))
