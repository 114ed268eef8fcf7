"""Functions whose results are rounded to 16 bits: where their short forms stand, and how near these are."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.functions import (
    GELU_EXPONENT,
    GREATEST_ROOT,
    NORMAL_TAIL,
    NORMAL_TAIL_SHIFT,
    RECIPROCAL_CENTER,
    RECIPROCAL_MAGIC,
    SIGMOID_EXPONENT,
    call,
)
from taskfuse.cuda.rounded import narrow_registers, rounded_registers
from taskfuse.cuda.source import emit
from taskfuse.dtypes import DType, float32
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.kir import parse_kernel
from taskfuse.reports.resources import Resources
from taskfuse.schedulers import MatmulConfig
from taskfuse.testing.accuracy import bound
from tests.cuda.elements import Array

ROUNDED = [op.name for op in ELEMENTWISE.values() if op.cpp.rounded is not None]


def body(x_dtype: DType, *outs: DType) -> str:
    """The code of one gelu, cast to each of some dtypes."""
    with tf.Fusion("chain") as fusion:
        y = tf.gelu(tf.define_tensor([4096], dtype=x_dtype, name="x"))
        for out in outs:
            fusion.add_output(y if out is y.dtype else tf.cast(y, out))
    tf.schedulers.pointwise(fusion)
    return emit(tf.lower(fusion)).text.split("__global__")[1]


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=str)
def test_results_of_16_bits_take_the_short_form(dtype: DType) -> None:
    assert "rounded_gelu(" in body(dtype, dtype)
    assert "rounded_gelu(" in body(tf.float32, dtype)


@pytest.mark.parametrize("outs", [(tf.float32,), (tf.bfloat16, tf.float32), (tf.float8_e4m3,), (tf.float64,)], ids=str)
def test_what_anything_else_reads_does_not(outs: tuple[DType, ...]) -> None:
    text = body(tf.float32, *outs)
    assert "gelu(" in text
    assert "rounded_gelu(" not in text


def test_registers_that_are_converted_and_read_otherwise() -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([4096], name="x")
        only, both = tf.gelu(x), tf.silu(x)
        fusion.add_output(tf.cast(only, tf.bfloat16))
        fusion.add_output(tf.cast(both, tf.bfloat16))
        fusion.add_output(both + 1.0)
    tf.schedulers.pointwise(fusion)
    kernel = tf.lower(fusion)
    assert only.name in rounded_registers(kernel)
    assert both.name not in rounded_registers(kernel)


def test_the_condition_of_a_selection_is_not_converted() -> None:
    text = """\
KERNEL k(x: float32[4], a: float16[4]) -> (y: float16[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL c: float32[]
  LOCAL v: float32[]

c = sigmoid(x[threadIdx.x])
v = gelu(x[threadIdx.x])
y[threadIdx.x] = where.float16(c, v, a[threadIdx.x])
"""
    assert rounded_registers(parse_kernel(text)) == {"v"}


WHOLE = """\
KERNEL k(x: float32[128], s: float32[32]) -> (y: int8[128], z: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL q: float32[]
  LOCAL r: float32[]
  LOCAL t: float32[]

t = copy(s[threadIdx.x])
FOR i in 0..4 UNROLL:
  q = div(x[4*threadIdx.x + i], t)
  r = round(q)
  y[4*threadIdx.x + i] = cast.float32(r)
z[threadIdx.x] = copy(t)
"""


def test_registers_of_which_short_integers_are_made() -> None:
    assert narrow_registers(parse_kernel(WHOLE)) == {"q", "r"}
    assert narrow_registers(parse_kernel(WHOLE.replace("copy(t)", "copy(q)"))) == {"r"}
    assert narrow_registers(parse_kernel(WHOLE.replace("copy(t)", "copy(r)"))) == set()
    assert narrow_registers(parse_kernel(WHOLE.replace("int8", "int32"))) == set()
    assert narrow_registers(parse_kernel(WHOLE.replace("round", "floor"))) == {"r"}  # of numbers near 0 it makes 0 or -1


def test_registers_of_which_floats_of_few_exponents_are_made() -> None:
    """float16 and floats of 8 bits, by way of limits; not bfloat16, which has the exponents of float32."""
    clamped = WHOLE.replace("round(q)", "clamp(q, -448.0, 448.0)")
    for dtype, found in (("int8", {"q", "r"}), ("float8_e4m3", {"q", "r"}), ("float16", {"q", "r"}), ("bfloat16", set[str]())):
        assert narrow_registers(parse_kernel(clamped.replace("int8", dtype))) == found


def test_quotients_that_share_the_divisor() -> None:
    def is_whole(text: str) -> bool:
        return "narrow_quotient(" in parse_kernel(text).cuda_source().split("__global__")[1]

    assert is_whole(WHOLE)
    assert not is_whole(WHOLE.replace("i], t)", "i], s[threadIdx.x + i])"))
    assert not is_whole(WHOLE.replace("  q =", "  t = copy(s[threadIdx.x])\n  q ="))
    assert not is_whole(WHOLE.replace(" UNROLL", ""))


def test_fast_forms_come_first() -> None:
    def text(name: str, fast_math: bool) -> str:
        return call(ELEMENTWISE[name], ["x"], float32, fast_math, is_rounded=True).text

    assert (text("silu", False), text("silu", True)) == ("rounded_silu(x)", "fast_silu(x)")
    assert (text("gelu", False), text("gelu", True)) == ("rounded_gelu(x)", "rounded_gelu(x)")


def test_elements_in_turns_take_two_forms() -> None:
    """In a loop that is copied for each of an even number of values; elsewhere, and in fast math, there is one."""

    def text(turn: str | None, fast_math: bool = False) -> str:
        return call(ELEMENTWISE["gelu_tanh"], ["x"], float32, fast_math, is_rounded=True, turn=turn).text

    assert text("i") == "(i % 2 == 0 ? rounded_gelu_tanh(x) : balanced_gelu_tanh(x))"
    assert (text(None), text("i", fast_math=True)) == ("rounded_gelu_tanh(x)", "fast_gelu_tanh(x)")

    def loop(head: str) -> str:
        printed = f"""\
KERNEL k(x: float32[32]) -> (y: float16[32])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)

FOR j in 0..4 UNROLL:
  FOR i in {head}:
    y[i + 7*j] = gelu_tanh.float32(x[i + 7*j])
"""
        return emit(parse_kernel(printed)).text

    assert "i % 2 == 0 ? rounded_gelu_tanh(" in loop("0..2 UNROLL")
    assert "j % 2 == 0 ? rounded_gelu_tanh(" in loop("0..3 UNROLL")
    assert "j % 2 == 0 ? rounded_gelu_tanh(" in loop("0..2")


def test_the_tail_of_a_normal_distribution() -> None:
    """In float32, as the device function computes it; where a factor is subnormal is left out."""
    x = np.concatenate([np.linspace(-13, 13, 20001), np.logspace(-30, 0, 500), -np.logspace(-30, 0, 500)]).astype(np.float32)
    y = (1 / (np.abs(x) + np.float32(NORMAL_TAIL_SHIFT))).astype(np.float32)
    p = np.full_like(x, NORMAL_TAIL[-1])
    for c in reversed(NORMAL_TAIL[:-1]):
        p = (p.astype(np.float64) * y + np.float32(c)).astype(np.float32)
    root = np.exp2(np.float32(-0.36067376) * x * x)
    tail = p * y * root * root
    gelu = x * np.where(x < 0, tail, 1 - tail)
    exact = np.array([v * 0.5 * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    error = np.where(exact == 0, 0, np.abs(gelu / np.where(exact == 0, 1, exact) - 1))
    assert np.max(error) < 2.0**-16.5
    assert np.max(error[np.abs(x) < 6]) < 2.0**-18.5


def fma(a: Array, b: Array, c: Array) -> Array:
    exact: Array = a.astype(np.float64) * b + c
    return exact.astype(np.float32)


def flushed(x: Array) -> Array:
    """By an instruction that makes subnormal numbers 0."""
    return np.where(np.abs(x) < 2.0**-126, 0, x).astype(np.float32)


def logistic(x: Array) -> Array:
    """In float32, as the device function computes it."""
    root, least = flushed(np.exp2(x.astype(np.float64)).astype(np.float32)), np.array(2.0**-24, np.float32)
    reciprocal: Array = 1 / fma(root, root, least).astype(np.float64)
    return least * flushed(reciprocal.astype(np.float32))


def balanced(x: Array) -> Array:
    """The same without the reciprocal."""
    root, one = flushed(np.exp2(np.minimum(x, np.float32(GREATEST_ROOT)).astype(np.float64)).astype(np.float32)), np.array(1)
    d = fma(root, root, np.array(2.0**-24))
    r: Array = (RECIPROCAL_MAGIC - d.view(np.int32)).astype(np.int32).view(np.float32)
    e = fma(-d, r, one)
    return np.float32(2.0**-24 * RECIPROCAL_CENTER) * (fma(r, e, r) * fma(e, e, one))


Logistic = Callable[[Array], Array]


def sigmoid(x: Array, of: Logistic) -> Array:
    return of(fma(x, np.array(SIGMOID_EXPONENT, np.float32), np.array(-12)))


def gelu_tanh(x: Array, of: Logistic) -> Array:
    first, second = np.array(GELU_EXPONENT, np.float32)
    return x * of(fma(x, fma(x * x, second, first), np.array(-12)))


LOGISTIC: dict[str, tuple[Callable[[Array, Logistic], Array], Callable[[Array], Array], float]] = {
    "sigmoid": (sigmoid, lambda x: 1 / (1 + np.exp(-x)), 93),
    "silu": (lambda x, of: x * sigmoid(x, of), lambda x: x / (1 + np.exp(-x)), 97),
    "gelu_tanh": (gelu_tanh, lambda x: x / (1 + np.exp(-math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))), 11),
}
"""The short form, the exact one, and from where below 0 a bfloat16 is 0."""


@pytest.mark.parametrize(("of", "bits"), [(logistic, (16.5, 18.5)), (balanced, (16.25, 17.5))], ids=["reciprocal", "balanced"])
@pytest.mark.parametrize("name", LOGISTIC)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:divide by zero")
def test_logistic_functions(name: str, of: Logistic, bits: tuple[float, float]) -> None:
    """Subnormal results are off by less than a hundredth of their last place. The balanced form has an error of 2^-18.2 of its own."""
    short, exact, most = LOGISTIC[name]
    x = np.concatenate([np.linspace(-most, most, 40001), np.logspace(-37, 30, 1000), -np.logspace(-37, 30, 1000)]).astype(np.float32)
    got, wanted = short(x, of), exact(x.astype(np.float64))
    usual = np.abs(wanted) >= 2.0**-126
    error = np.abs(got[usual] / wanted[usual] - 1)
    assert np.max(error) < 2.0 ** -bits[0]
    assert np.max(error[np.abs(wanted[usual]) > 2.0**-24]) < 2.0 ** -bits[1]
    assert np.max(np.abs(got - wanted)[~usual]) < 0.01 * 2.0**-133


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_balanced_functions_at_the_ends() -> None:
    """Zero of what is far below 0, and NaN of NaN, as the form with a reciprocal has."""
    ends = np.array([-np.inf, -1e30, -20, -0.0, 0, 1e30, np.inf, np.nan], np.float32)
    for of in (logistic, balanced):
        np.testing.assert_allclose(gelu_tanh(ends, of), [np.nan, -0.0, -0.0, -0.0, 0, 1e30, np.inf, np.nan], rtol=1e-5)
        np.testing.assert_allclose(sigmoid(ends, of), [0, 0, 1 / (1 + np.exp(20.0)), 0.5, 0.5, 1, 1, np.nan], rtol=1e-5)


@pytest.mark.parametrize("name", ROUNDED)
def test_bounds_of_16_bits(name: str) -> None:
    """Half a unit, and what the short form may be off: 2^-16 of it, as of a float32."""
    assert 0.5 + 2.0**-8 <= bound(name, tf.bfloat16) <= 0.51
    assert 0.5 + 2.0**-5 <= bound(name, tf.float16) <= 0.57


@pytest.mark.parametrize("gelu", [tf.gelu, tf.gelu_tanh], ids=["exact", "tanh"])
def test_epilogues_spill_nothing(gelu: Callable[[tf.TensorView], tf.TensorView]) -> None:
    with tf.Fusion("epilogue") as fusion:
        a, b = (tf.define_tensor([4096, 1024], dtype=tf.bfloat16, name=name) for name in "ab")
        x = tf.matmul(a, b.T, dtype=tf.float32) + tf.define_tensor([4096], dtype=tf.bfloat16, name="bias")
        fusion.add_output(tf.cast(gelu(x), tf.bfloat16))
    tf.schedulers.matmul(fusion, MatmulConfig(128, 256))
    found = tf.lower(fusion).resources().compiled
    assert isinstance(found, Resources)
    assert (found.spill_stores, found.spill_loads, found.stack) == (0, 0, 0)
