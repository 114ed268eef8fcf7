"""Constants of expressions: equality, and zeros with a sign where sums start."""

import math

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import float32, int32
from taskfuse.ir.expr import Literal
from taskfuse.kir.operands import Immediate


def test_zeros_have_a_sign_and_every_nan_is_one() -> None:
    assert Literal(0.0, float32) != Literal(-0.0, float32)
    assert len({Literal(0.0, float32), Literal(-0.0, float32), Literal(0, float32)}) == 2
    assert Literal(math.nan, float32) == Literal(-math.nan, float32)
    assert Literal(1, float32) != Literal(1, int32)


def test_a_constant_of_kernel_ir_is_another_kind() -> None:
    assert Literal(1, float32) != Immediate(1, float32)
    assert Immediate(1, float32) != Literal(1, float32)


NEGATIVE_ZERO = """\
FUSION s
DIM N
INPUT x: float32[N, 64]
y: float32[N] = reduce add of copy(x) over i1: 64 init -0.0
OUTPUT y
"""


def test_a_sum_that_starts_at_negative_zero_starts_at_zero() -> None:
    fusion = tf.parse_fusion(NEGATIVE_ZERO)
    assert "init 0.0" in str(fusion)
    x = np.full((3, 64), -0.0, np.float32)
    assert not np.signbit(fusion.evaluate(x)[0]).any()
    largest = tf.parse_fusion(NEGATIVE_ZERO.replace("add", "maximum"))
    assert "init -0.0" in str(largest)  # of which 0.0 is not the neutral element


@pytest.mark.parametrize("where", ["serial", "threads", "blocks", "padding"])
def test_its_kernels_are_right_wherever_its_axes_are(where: str) -> None:
    fusion = tf.parse_fusion(NEGATIVE_ZERO)
    (y,) = fusion.outputs
    if where == "padding":
        staged = fusion.inputs[0].cache_after()
        for tv in (staged, y):
            tv.split(1, 48)
        staged.inline_at(2)
    elif where != "serial":
        y.axis(1).parallelize(tf.ParallelType.TIDx if where == "threads" else tf.ParallelType.BIDx)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert not np.signbit(kernel.simulate(np.full((3, 64), -0.0, np.float32))[0]).any()
