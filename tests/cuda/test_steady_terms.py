"""Terms of places among what is compared, with fast_math: maxima get what iterations have in common, and elements one fused multiplication."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.exponents import with_fast_exponents

KERNEL = """\
KERNEL scores(x: float32[32, 16], g: float32[32]) -> (p: float32[32, 16], m: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL s: float32[8]
  LOCAL t: float32[]
  LOCAL j: float32[]
  LOCAL b: float32[]
  LOCAL e: float32[]
  LOCAL f: float32[]
  LOCAL q: float32[]
  LOCAL r: float32[]
  LOCAL h: float32[8]
  LOCAL v: float32[]

FOR w in 0..2:
  FOR i in 0..8 UNROLL:
    h[i] = tanh(x[threadIdx.x, 8*w + i])
  f = copy(g[threadIdx.x])
  FOR i in 0..8 UNROLL:
    t = mul(h[i], 4.0)
    j = cast.int64(index(8*w + i - threadIdx.x))
    b = mul(j, f)
    e = add(t, b)
    s[i] = where(e if i + 8*w <= threadIdx.x, otherwise -inf)
  r = copy(-inf)
  FOR i in 0..8 UNROLL:
    r = maximum(r, s[i])
  m[threadIdx.x] = copy(r)
  FOR i in 0..8 UNROLL:
    v = sub(s[i], r)
    p[threadIdx.x, 8*w + i] = exp(v)
"""


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((32, 16)).astype(np.float32), (2.0 ** -rng.uniform(0, 8, 32)).astype(np.float32)


SUMS = {
    "as written": ("", ""),
    "the other sign": ("b = mul(j, f)\n    e = add(t, b)", "b = mul(f, j)\n    e = sub(t, b)"),
    "scaled behind the sum": ("t = mul(h[i], 4.0)", "t = copy(h[i])"),
    "a number that iterations compute": ("b = mul(j, f)", "q = sqrt(f)\n    b = mul(j, q)"),
    "a difference of places": ("b = mul(j, f)", "b = cast.int64(index(threadIdx.x))\n    j = add(j, b)\n    b = mul(j, f)"),
    "a place and a number": ("b = mul(j, f)", "j = add(j, 1.0)\n    b = mul(j, 0.25)"),
    "no mask": ("where(e if i + 8*w <= threadIdx.x, otherwise -inf)", "where(otherwise e)"),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_values_of_what_is_written(name: str) -> None:
    old, new = SUMS[name]
    assert old in KERNEL
    kernel = tf.parse_kernel(KERNEL.replace(old, new))
    fast = with_fast_exponents(kernel)
    text = str(fast)
    assert "s.place = cast.int64(index(i))" in text or "s.place = cast.int64(index(-i))" in text
    assert "s.sum = fma(s.place," in text
    assert "r = add(r, s.steady)" in text
    assert "= exp(" not in text
    with np.errstate(all="ignore"):
        for wanted, got in zip(kernel.simulate(*arrays()), fast.simulate(*arrays()), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-30)


LATE = """\
  FOR y in 0..2:
    FOR i in 0..4 UNROLL:
      t = mul(h[4*y + i], 4.0)
      j = cast.int64(index(8*w + 4*y + i - threadIdx.x))
      b = mul(j, f)
      e = add(t, b)
      s[4*y + i] = where(e if i + 4*y + 8*w <= threadIdx.x, otherwise -inf)
"""
WRITES = KERNEL[KERNEL.index("  FOR i in 0..8 UNROLL:\n    t") : KERNEL.index("  r = copy")]
UNCHANGED = {
    "loops between have other places, so maxima would get one of several numbers": (WRITES, LATE),
    "the number is another one when the maximum is complete": (
        "  r = copy(-inf)",
        WRITES.replace("i ", "z ").replace("[i]", "[z]").replace("+ z -", "+ z - 1 -") + "  r = copy(-inf)",
    ),
    "the number changes between elements": ("    b = mul(j, f)", "    f = mul(f, 0.5)\n    b = mul(j, f)"),
    "a term without a place may be a mask": ("e = add(t, b)", "e = add(t, f)"),
    "the number is of the element": ("b = mul(j, f)", "b = mul(j, h[i])"),
    "a place that is no multiple of a constant in each iteration": ("index(8*w + i - threadIdx.x)", "index((8*w + i + threadIdx.x)//2)"),
    "a negative factor": ("mul(h[i], 4.0)", "mul(h[i], -4.0)"),
    "another function reads it": ("v = sub(s[i], r)", "v = sub(s[i], r)\n    p[threadIdx.x, 8*w + i] = abs(s[i])"),
    "the sum is stored": ("    s[i] = where", "    p[threadIdx.x, i] = copy(e)\n    s[i] = where"),
    "a rounded place": ("LOCAL j: float32[]", "LOCAL j: bfloat16[]"),
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_is_left_as_it_is(name: str) -> None:
    old, new = UNCHANGED[name]
    assert old in KERNEL
    assert "s.sum" not in str(with_fast_exponents(tf.parse_kernel(KERNEL.replace(old, new, 1))))
