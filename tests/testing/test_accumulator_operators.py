"""Mistakes between an accumulator's readers: they occur, and every one is refuted, also in front of the second reader."""

from __future__ import annotations

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict, verify
from taskfuse.testing.accumulator_operators import ACCUMULATOR_OPERATORS


def test_each_reader_finds_the_terms_once() -> None:
    with tf.Fusion("two_readers") as fusion:
        x = tf.define_tensor([4, 8], name="x")
        total = x.sum(1)
        outputs = total * 3.0, total * 2.0
        for y in outputs:
            fusion.add_output(y)
    for tv in (total, *outputs):
        tv.axis(0).parallelize(P.TIDx)
    kernel = tf.lower(fusion)
    verify(kernel).require()
    for op in ACCUMULATOR_OPERATORS:
        found = [verify(mutant).verdict for mutant in op.apply(kernel)]
        assert found == [Verdict.REFUTED] * 2, op.name
