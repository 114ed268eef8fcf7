"""Constants of expressions: equality."""

import math

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
