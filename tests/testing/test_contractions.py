"""Contractions and what follows them."""

import taskfuse as tf
from taskfuse.testing.contractions import contractions, epilogue


def matmul() -> tf.Fusion:
    with tf.Fusion("matmul") as fusion:
        a, b = tf.define_tensor([64, 32], dtype=tf.bfloat16), tf.define_tensor([16, 32], dtype=tf.bfloat16)
        d = tf.relu(tf.matmul(a, b.T, dtype=tf.float32))
        fusion.add_output(d)
        fusion.add_output(d / tf.sum(d, 1, keepdims=True))
    return fusion


def test_contractions_and_what_follows_them() -> None:
    fusion = matmul()
    found = [c for tv in fusion.tensors() for c in contractions(tv)]
    extents = [(*(str(a.extent) for a in (c.m, c.n, c.k)), c.is_turned) for c in found]
    assert extents == [("64", "16", "32", False), ("16", "64", "32", True)]
    assert [(c.a.place, c.a.rows, c.a.depth, c.b.rows) for c in found] == [(0, 0, 1, 0), (1, 0, 1, 0)]
    relu = fusion.outputs[0]
    assert epilogue(fusion, found[0].tv) == [relu]  # the quotient also needs the sum, which is of whole rows
    assert epilogue(fusion, found[0].tv, lambda tv: True) == [relu]
