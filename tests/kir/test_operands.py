"""Constants are equal if they are one value: every NaN is the same one, zeros have a sign."""

import math

import pytest

from taskfuse import bfloat16, float32, int32
from taskfuse.ir.expr import is_same_number
from taskfuse.kir import parse_kernel
from taskfuse.kir.operands import Immediate


def test_zeros_have_a_sign() -> None:
    assert Immediate(0.0, float32) != Immediate(-0.0, float32)
    assert Immediate(0, float32) == Immediate(0.0, float32)
    assert len({Immediate(0.0, float32), Immediate(-0.0, float32), Immediate(0, float32)}) == 2


def test_every_nan_is_one() -> None:
    assert Immediate(math.nan, float32) == Immediate(-math.nan, float32)
    assert is_same_number(math.nan, float("nan"))
    assert not is_same_number(math.nan, 1.0)


def test_dtypes_differ() -> None:
    assert Immediate(1, float32) != Immediate(1, bfloat16)
    assert Immediate(1, int32) != 1


TEXT = """\
KERNEL k(x: float32[N]) -> (y: float32[{shape}])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
{body}"""
DIVIDED = "  DEFINE y: float32[N] = div(x[i0], {defined})\n\nFOR i in 0..N:\n  y[i] = div(x[i], {stored})  ~ value y[i]\n"
SUMMED = (
    "  LOCAL acc: float32[]\n  DEFINE y: float32[] over (N) at () = reduce add of copy(x[i0]) from {defined}\n\nacc = copy({stored})  ~ start y\n"
    "FOR i in 0..N:\n  acc = add(acc, x[i])  ~ term y[i]\ny[] = copy(acc)  ~ value y[]\n"
)


@pytest.mark.parametrize(("shape", "body"), [("N", DIVIDED), ("", SUMMED)], ids=["an operand", "a start"])
@pytest.mark.parametrize(("defined", "stored"), [("-0.0", "0.0"), ("0.0", "-0.0"), ("0.0", "0.0"), ("-0.0", "-0.0")])
def test_the_proof_tells_them_apart(shape: str, body: str, defined: str, stored: str) -> None:
    kernel = parse_kernel(TEXT.format(shape=shape, body=body.format(defined=defined, stored=stored)))
    assert kernel.verify().is_proved is (defined == stored)
