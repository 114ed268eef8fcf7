"""Products by constants of products by constants, with fast_math."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda.constant_factors import with_joined_factors

KERNEL = """\
KERNEL capped(x: float32[32]) -> (y: float32[32], z: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL a: float32[]
  LOCAL s: float32[]
  LOCAL t: float32[]

a = copy(x[threadIdx.x])
s = mul(a, 0.125)
t = div(s, 30.0)
y[threadIdx.x] = tanh(t)
z[threadIdx.x] = copy(0.0)
"""


def test_two_constants_are_one() -> None:
    kernel, x = tf.parse_kernel(KERNEL), np.random.default_rng(0).standard_normal(32).astype(np.float32) * 300
    fast = with_joined_factors(kernel)
    assert f"t = mul(a, {0.125 * (1 / 30)})" in str(fast)
    assert "s = " not in str(fast)
    np.testing.assert_allclose(fast.simulate(x)[0], kernel.simulate(x)[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "is_joined", "stays"),
    [
        ("z[threadIdx.x] = copy(0.0)", "z[threadIdx.x] = copy(s)", True, True),
        ("t = div(s, 30.0)", "a = copy(0.0)\nt = div(s, 30.0)", False, True),  # of another number
        ("t = div(s, 30.0)", "s = add(s, 1.0)\nt = div(s, 30.0)", False, True),
        ("0.125)\nt = div(s, 30.0)", "1e-30)\nt = mul(s, 1e-30)", False, True),  # 0
        ("t = div(s, 30.0)", "t = div(30.0, s)", False, True),
        ("s = mul(a, 0.125)", "s = mul(x[threadIdx.x], 0.125)", False, True),  # memory may change
    ],
)
def test_what_is_joined_and_what_stays(old: str, new: str, is_joined: bool, stays: bool) -> None:
    assert old in KERNEL
    kernel = tf.parse_kernel(KERNEL.replace(old, new))
    text = str(with_joined_factors(kernel))
    assert (text != str(kernel)) == is_joined
    assert ("s = mul(" in text) == stays
