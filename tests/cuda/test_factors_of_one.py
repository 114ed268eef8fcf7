"""Products in place by factors that are often 1 are left out where all are 1."""

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit

KERNEL = """\
KERNEL sums(x: float32[32, 32], g: float32[32]) -> (y: float32[32, 32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL s: float32[32]
  LOCAL same: bool[2]
  LOCAL f: float32[2]

FOR r in 0..32 UNROLL:
  s[r] = copy(x[threadIdx.x, r])
FOR k in 0..4:
  FOR h in 0..2 UNROLL:
    same[h] = eq.float32(g[threadIdx.x], 0.0)
    f[h] = where(same[h], 1.0, g[threadIdx.x])
  FOR r in 0..32 UNROLL:
    s[r] = mul(s[r], f[r//2 % 2])
FOR r in 0..32 UNROLL:
  y[threadIdx.x, r] = copy(s[r])
"""
TEST = "if (f[0] != 1.0f || f[1] != 1.0f) {"


def test_a_branch_leaves_out_products_by_1() -> None:
    assert TEST in emit(tf.parse_kernel(KERNEL)).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("where(same[h], 1.0, g[threadIdx.x])", "where(same[h], 2.0, g[threadIdx.x])"),
        ("where(same[h], 1.0, g[threadIdx.x])", "add(g[threadIdx.x], 1.0)"),
        ("s[r] = mul(s[r], f[r//2 % 2])", "s[r] = add(s[r], f[r//2 % 2])"),
        ("s[r] = mul(s[r], f[r//2 % 2])", "s[r] = mul(x[threadIdx.x, r], f[r//2 % 2])"),
        ("FOR r in 0..32 UNROLL:\n    s[r] = mul", "FOR r in 0..16 UNROLL:\n    s[r] = mul"),
        ("FOR r in 0..32 UNROLL:\n    s[r] = mul(s[r], f[r//2 % 2])", "FOR r in 0..32:\n    s[r] = mul(s[r], f[r//2 % 2])"),
    ],
)
def test_other_products_have_none(old: str, new: str) -> None:
    assert old in KERNEL
    assert "!= 1.0f" not in emit(tf.parse_kernel(KERNEL.replace(old, new))).text
