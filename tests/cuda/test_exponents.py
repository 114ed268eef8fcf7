"""Exponentials with fast_math: maxima of what is multiplied, which change no bit, and powers of 2; what is left as it is."""

from collections.abc import Sequence

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.exponents import with_fast_exponents
from taskfuse.cuda.source import emit
from tests.cuda.scores import KERNEL

POWERS = "exp2(v)"


def simulated(kernel: tf.Kernel, x: np.ndarray) -> Sequence[np.ndarray]:
    with np.errstate(all="ignore"):
        return kernel.simulate(x)


def changed(text: str) -> str:
    return str(with_fast_exponents(tf.parse_kernel(text)))


def values() -> np.ndarray:
    """Rows of random numbers, some of them with infinities, NaN, zeros, numbers of one size, and numbers whose products overflow nearly."""
    x = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32) * 50
    x[1], x[2, 3], x[3, 1], x[4, 2], x[5], x[6, :4] = -np.inf, np.inf, np.nan, -np.inf, -3.4e38, 3.4e38
    x[7], x[8], x[9], x[10:] = 0.0, -0.0, 1e-44, x[10:] / 50
    return x


def test_maxima_of_what_is_multiplied_are_the_same_to_the_bit() -> None:
    kernel = tf.parse_kernel(KERNEL.replace("exp(v)", "copy(v)"))
    fast = with_fast_exponents(kernel)
    assert "  r = maximum(r, s[i])\n  r = mul(r, 0.25)" in str(fast).replace("    r = max", "  r = max")
    assert "t = copy(h[i])" in str(fast)
    for wanted, got in zip(simulated(kernel, values()), simulated(fast, values()), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_exponentials_are_powers_of_2_of_one_fused_multiplication() -> None:
    kernel, x = tf.parse_kernel(KERNEL), values()
    fast = with_fast_exponents(kernel)
    assert "v = fma(s[i], 0.36067376022224085, s.product)" in str(fast)
    assert POWERS in str(fast)
    assert "exp(v)" not in str(fast)
    for wanted, got in zip(simulated(kernel, x), simulated(fast, x), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-30)
    assert "exp2f(" in emit(kernel, fast_math=True).text
    assert "exp2f(" not in emit(kernel).text


NESTED = KERNEL.replace("    s[i] = where(t if", "    u = where(t if i < 7, otherwise -inf)\n    s[i] = where(u if")


def test_what_is_masked_twice_is_compared_before_it_is_multiplied() -> None:
    """As keys past the end, and those that a mask excludes."""
    kernel = tf.parse_kernel(NESTED)
    fast = with_fast_exponents(kernel)
    assert "t = copy(h[i])" in str(fast)
    for wanted, got in zip(simulated(kernel, values()), simulated(fast, values()), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-30)


UNCHANGED = {
    "a negative number turns maxima into minima": (", 0.25)", ", -0.25)"),
    "numbers that are masked by a finite one": ("otherwise -inf)", "otherwise -1e30)"),
    "a maximum that begins with a number": ("r = copy(-inf)", "r = copy(0.0)"),
    "what may be a mask": ("t = mul(h[i], 0.25)", "t = mul(x[threadIdx.x, i], 0.25)"),
    "two numbers": ("    s[i] = where(t if", "    IF i == 3:\n      t = mul(x[threadIdx.x, i], 0.5)\n    s[i] = where(t if"),
    "another function reads it": ("v = sub(s[i], r)", "v = sub(s[i], r)\n    p[threadIdx.x, i] = abs(s[i])"),
    "the maximum is read before it is complete": ("    r = maximum(r, s[i])\n", "    r = maximum(r, s[i])\n    m[threadIdx.x] = copy(r)\n"),
    "the maximum has other elements": ("  FOR i in 0..8 UNROLL:\n    r = max", "  r = maximum(r, x[threadIdx.x, 0])\n  FOR i in 0..8 UNROLL:\n    r = max"),
    "a second mask by a number": ("    s[i] = where(t if", "    u = where(t if i < 7, otherwise -1e30)\n    s[i] = where(u if"),
    "what is masked once is stored": (
        "    s[i] = where(t if",
        "    u = where(t if i < 7, otherwise -inf)\n    p[threadIdx.x, i] = copy(u)\n    s[i] = where(u if",
    ),
    "the product is stored": ("    s[i] = where", "    p[threadIdx.x, i] = copy(t)\n    s[i] = where"),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_left_as_it_is(name: str) -> None:
    old, new = UNCHANGED[name]
    assert old in KERNEL
    text = str(tf.parse_kernel(KERNEL.replace(old, new, 1)))
    assert changed(text) == text


DIRECT = KERNEL.replace("    v = sub(s[i], r)\n", "    u = mul(h[i], 0.25)\n    v = sub(u, r)\n").replace("otherwise -inf)", "otherwise -1e30)")


@pytest.mark.parametrize(
    ("old", "new", "is_power"),
    [
        ("u = mul(h[i], 0.25)", "u = mul(h[i], -30.0)", True),
        ("u = mul(h[i], 0.25)", "u = mul(x[threadIdx.x, i], 0.25)", False),  # of any size: a row of the most negative floats would be infinite
        ("v = sub(u, r)", "v = sub(r, u)", False),
        ("p[threadIdx.x, i] = exp(v)", "p[threadIdx.x, i] = exp(v)\n    m[threadIdx.x] = copy(v)", False),
        ("v = sub(u, r)", "v = sub(u, r)\n    m[threadIdx.x] = copy(u)", False),
    ],
)
def test_products_that_become_powers(old: str, new: str, is_power: bool) -> None:
    assert old in DIRECT
    text = str(tf.parse_kernel(DIRECT.replace(old, new, 1)))
    found = changed(text)
    assert (POWERS in found) == is_power
    assert (found == text) != is_power
