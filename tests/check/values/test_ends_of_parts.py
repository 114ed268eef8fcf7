"""Sums in parts whose terms end with a row, and sums under conditions that leave one iteration of a loop."""

import pytest

from tests.executions import changed, gaps

DIGITS = """\
KERNEL digits(x: float32[3, K], t: int32[4]) -> (y: float32[3, 2])
  DIM K min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL v: float32[]
  LOCAL acc: float32[]
  DEFINE v: float32[3, K] = pick(x[i0, i1] if i1 < clamp(t[i0 + 1 of 4], 0, K) - clamp(t[i0 of 4], 0, K), otherwise 0.0)
  DEFINE y: float32[3, 2] over (3, K) at (i0, i1 % 2) = reduce add of copy(v[i0, i1]) from 0.0

FOR g in 0..3:
  FOR z in 0..2:
    acc = copy(0.0)  ~ start y
    FOR i in 0..max(ceildiv(clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K), 2), 0):
      IF 2*i + z < K:
        v = pad(x[g, 2*i + z] if 2*i + z < clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K), otherwise 0.0)  ~ value v[g, 2*i + z]
        acc = add(acc, v)  ~ term y[g, 2*i + z]
    y[g, z] = copy(acc)  ~ value y[g, z]
"""
ONE = """\
KERNEL one(x: float32[5, 1], t: int32[2]) -> (y: float32[5])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL v: float32[]
  LOCAL acc: float32[]
  DEFINE v: float32[5, 1] = pick(x[i0, i1] if i1 < clamp(t[1 of 2], 0, 5) - clamp(t[0 of 2], 0, 5) - i0, otherwise 0.0)
  DEFINE y: float32[5] over (5, 1) at (i0) = reduce add of copy(v[i0, i1]) from 0.0

FOR g in 0..5:
  acc = copy(0.0)  ~ start y
  FOR i in 0..min(max(clamp(t[1 of 2], 0, 5) - clamp(t[0 of 2], 0, 5) - g, 0), 4):
    IF i < 1:
      v = pad(x[g, i] if i < clamp(t[1 of 2], 0, 5) - clamp(t[0 of 2], 0, 5) - g, otherwise 0.0)  ~ value v[g, i]
      acc = add(acc, v)  ~ term y[g, i]
  y[g] = copy(acc)  ~ value y[g]
"""
LONE = """\
KERNEL lone(x: float32[3, 1], t: int32[4]) -> (y: float32[3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL v: float32[]
  LOCAL acc: float32[]
  DEFINE v: float32[3, 1] = pick(x[i0, i1] if i1 < clamp(t[i0 + 1 of 4], 0, 1) - clamp(t[i0 of 4], 0, 1), otherwise 0.0)
  DEFINE y: float32[3] over (3, 1) at (i0) = reduce add of copy(v[i0, i1]) from 0.0

FOR g in 0..3:
  acc = copy(0.0)  ~ start y
  FOR i in 0..max(clamp(t[g + 1 of 4], 0, 1) - clamp(t[g of 4], 0, 1), 0):
    v = pad(x[g, 0] if i < clamp(t[g + 1 of 4], 0, 1) - clamp(t[g of 4], 0, 1), otherwise 0.0)  ~ value v[g, 0]
    acc = add(acc, v)  ~ term y[g, 0]
  y[g] = copy(acc)  ~ value y[g]
"""
SPARED = """\
KERNEL spared(x: float32[4]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (1, 2, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[2] over (4) at (i0//3) = reduce maximum of copy(x[i0]) from -inf

IF threadIdx.y < 2:
  acc = copy(-inf)  ~ start y
FOR i in 0..4:
  IF threadIdx.y < 2 && i + 3*threadIdx.y < 4 && i < 3:
    acc = maximum(acc, x[i + 3*threadIdx.y])  ~ term y[i + 3*threadIdx.y]
IF threadIdx.y < 2:
  y[threadIdx.y] = copy(acc)  ~ value y[threadIdx.y]
"""


@pytest.mark.parametrize("text", [DIGITS, ONE, LONE, SPARED])
def test_they_are_covered(text: str) -> None:
    assert gaps(text) == []


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (DIGITS, "max(ceildiv(clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K), 2), 0)", "max((clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K))//2, 0)"),
        (DIGITS, "max(ceildiv(clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K), 2), 0)", "max(ceildiv(clamp(t[g + 1 of 4], 0, K), 3), 0)"),
        (DIGITS, "max(ceildiv(clamp(t[g + 1 of 4], 0, K) - clamp(t[g of 4], 0, K), 2), 0)", "max(ceildiv(clamp(t[g of 4], 0, K), 2), 0)"),
        (DIGITS, "FOR i in 0..", "FOR i in 1.."),
        (DIGITS, "IF 2*i + z < K:", "IF 2*i + z < K - 1:"),
        (DIGITS, "IF 2*i + z < K:", "IF 2*i + z < K && i < 2:"),
        (DIGITS, "at (i0, i1 % 2)", "at (i0, i1//ceildiv(K, 2))"),
        (ONE, "IF i < 1:", "IF i < 2:"),
        (ONE, "IF i < 1:", "IF i == 1:"),
        (ONE, "IF i < 1:", "IF i < 1 && g < 4:"),
        (ONE, "clamp(t[0 of 2], 0, 5) - g, 0), 4)", "clamp(t[0 of 2], 0, 5) - g - 1, 0), 4)"),
        (ONE, "over (5, 1) at (i0)", "over (5, 2) at (i0)"),
        (LONE, "FOR i in 0..max(", "FOR i in 0..2*max("),
        (LONE, "FOR i in 0..max(", "FOR i in 1..max("),
        (LONE, "FOR i in 0..max(clamp(t[g + 1 of 4], 0, 1)", "FOR i in 0..max(clamp(t[g + 1 of 4], 0, 2)"),
        (LONE, "FOR i in 0..max(clamp(t[g + 1 of 4], 0, 1) -", "FOR i in 0..max(clamp(t[g + 1 of 4], 0, 1) - 1 -"),
        (LONE, "clamp(t[g of 4], 0, 1), 0):", "clamp(t[g of 4], 0, 1), 0) + 1:"),
        (LONE, "  FOR i in 0..max(", "  FOR again in 0..2:\n   FOR i in 0..max("),
        (SPARED, "&& i < 3:", "&& i < 2:"),
        (SPARED, "&& i < 3:", "&& i < 3 && i > 0:"),
        (SPARED, "at (i0//3)", "at (i0//2)"),
        (SPARED, "i + 3*threadIdx.y < 4 &&", "i + 3*threadIdx.y < 3 &&"),
    ],
)
def test_planted_faults(text: str, old: str, new: str) -> None:
    bad = changed(text, old, new)
    if "over (5, 2)" in new:
        bad = bad.replace("float32[5, 1]", "float32[5, 2]")
    assert gaps(bad) != []


def test_a_sum_takes_no_term_of_another_part() -> None:
    """A maximum may take a term twice, a sum may not."""
    total = SPARED.replace("maximum", "add").replace("-inf", "0.0")
    assert gaps(total) == []
    assert gaps(changed(total, "&& i < 3:", "&& i < 4:")) != []
