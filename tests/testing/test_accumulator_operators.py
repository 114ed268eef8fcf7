"""Mistakes in accumulators, between their readers and in the factors of rescaled sums: they occur, and every one is refuted."""

from __future__ import annotations

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel
from taskfuse.testing.accumulator_operators import ACCUMULATOR_OPERATORS, RESCALE_OPERATORS
from taskfuse.testing.mutations import Operator
from tests.executions import RESCALED
from tests.testing.planted import planted


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
    for op in ACCUMULATOR_OPERATORS[:2]:
        found = [verify(mutant).verdict for mutant in op.apply(kernel)]
        assert found == [Verdict.REFUTED] * 2, op.name


LOOPED = """\
KERNEL looped(x: float32[4], z: float32[4]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  LOCAL t: float32[]
  LOCAL u: float32[]
  DEFINE s: float32[] over (4) at () = reduce add of copy(x[i0]) from 0.0
  DEFINE a: float32[] = exp(s[])
  DEFINE b: float32[4] = neg(z[i0])
  DEFINE y: float32[4] = mul(a[], b[i0])

acc = copy(0.0)  ~ start s
FOR i in 0..4:
  acc = add(acc, x[i])  ~ term s[i]
t = exp(acc)  ~ value a[]
FOR j in 0..4:
  u = neg(z[j])  ~ value b[j]
  y[j] = mul(t, u)  ~ value y[j]
"""


def test_a_loop_finds_what_was_before_it() -> None:
    kernel = parse_kernel(LOOPED)
    verify(kernel).require()
    (mutant,) = (m for m in ACCUMULATOR_OPERATORS[4].apply(kernel) if "  t = neg(z[j])" in str(m))
    assert verify(mutant).verdict is Verdict.REFUTED
    again = parse_kernel(LOOPED.replace("t = exp(acc)  ~ value a[]\n", "").replace("  u = neg", "  t = exp(acc)  ~ value a[]\n  u = neg"))
    verify(again).require()
    for op in ACCUMULATOR_OPERATORS[2:4]:
        assert [verify(m).verdict for m in op.apply(again)] == [Verdict.REFUTED], op.name


FACTOR = "t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]"
LINES = {
    "rescale dropped": "-" + FACTOR,
    "rescale twice": FACTOR,
    "rescale at the end of the iteration": "",  # the same lines
    "rescale but for the first iteration": "IF c >= 1:",
    "rescale in every other iteration": "IF c % 2 == 0:",
    "rescale by thread 0 alone": "IF threadIdx.x == 0:",
    "rescale by the reciprocal": FACTOR.replace("mul", "div"),
    "rescale by the sum itself": FACTOR.replace("d[threadIdx.x, c]", "t"),
}


@pytest.mark.parametrize("operator", RESCALE_OPERATORS, ids=lambda o: o.name)
def test_planted_and_not_proved(operator: Operator) -> None:
    kernel = parse_kernel(RESCALED)
    assert kernel.verify().is_proved
    (mutant,) = operator.apply(kernel)
    assert not mutant.verify().is_proved
    assert LINES[operator.name] in planted(RESCALE_OPERATORS, operator.name, kernel)
