"""Sums that are kept in more parts than they have terms: a part without terms is what it was set to."""

import pytest

from tests.executions import changed, finding, gaps

PARTS = """\
KERNEL parts(x: float32[N, 7]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL p: float32[3, 3]
  LOCAL acc: float32[]
  DEFINE p: float32[N, 8] over (N, 7) at (i0, i1 % 8) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[N] over (N, 8) at (i0) = reduce add of copy(p[i0, i1]) from 0.0

FOR i in 0..3 UNROLL:
  FOR j in 0..3 UNROLL:
    IF i + 3*j < 8:
      p[i, j] = copy(0.0)  ~ start p
    IF i + 3*j < 7 && i + 3*j < 8:
      p[i, j] = add(p[i, j], x[blockIdx.x, i + 3*j])  ~ term p[blockIdx.x, i + 3*j]
acc = copy(0.0)  ~ start y
FOR k in 0..8 UNROLL:
  acc = add(acc, p[k % 3, k//3])  ~ term y[blockIdx.x, k]
y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""
START = "      p[i, j] = copy(0.0)  ~ start p\n"
ONE = """\
KERNEL one(x: float32[N, 1]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL p: float32[8]
  LOCAL acc: float32[]
  DEFINE p: float32[N, 8] over (N, 1) at (i0, i1 % 8) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[N] over (N, 8) at (i0) = reduce add of copy(p[i0, i1]) from 0.0

FOR i in 0..8 UNROLL:
  p[i] = copy(0.0)  ~ start p
  IF i < 1:
    p[0] = add(p[0], x[blockIdx.x, 0])  ~ term p[blockIdx.x, i]
acc = copy(0.0)  ~ start y
FOR k in 0..8 UNROLL:
  acc = add(acc, p[k])  ~ term y[blockIdx.x, k]
y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""


@pytest.mark.parametrize("text", [PARTS, ONE])
def test_parts_without_terms_are_their_initial_values(text: str) -> None:
    assert gaps(text) == []
    assert finding(text, N=2) == ""


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (PARTS, "    IF i + 3*j < 8:\n", "    IF i + 3*j < 7:\n"),  # the part is not set
        (PARTS, START, START + "    IF i == 1 && j == 2:\n      p[i, j] = copy(1.0)  ~ start p\n"),  # or to another value
        (PARTS, "IF i + 3*j < 7 && i + 3*j < 8:", "IF i + 3*j < 8:"),  # it takes a term past the end
        (PARTS, "p[i, j] = add(p[i, j], x[blockIdx.x, i + 3*j])", "p[(i + 1) % 3, j] = add(p[(i + 1) % 3, j], x[blockIdx.x, i + 3*j])"),
        (PARTS, "p: float32[N, 8] over (N, 7) at (i0, i1 % 8)", "p: float32[N, 8] over (N, 7) at (i0, i1 + 1)"),  # the empty part is another one
        (PARTS, "IF i + 3*j < 7 &&", "IF i + 3*j < 6 &&"),  # two parts have no terms, and one should
        (PARTS, "FOR k in 0..8", "FOR k in 0..7"),
        (ONE, "  p[i] = copy(0.0)  ~ start p\n", "  p[i//8] = copy(0.0)  ~ start p\n"),  # later iterations set it again
        (ONE, "  p[i] = copy(0.0)  ~ start p\n", "  p[7 - i] = copy(0.0)  ~ start p\n"),
        (ONE, "  p[i] = copy(0.0)  ~ start p\n", "  p[i % 4] = copy(0.0)  ~ start p\n"),
        (ONE, "  IF i < 1:\n", "  IF i < 2:\n"),
        (ONE, "  IF i < 1:\n", "  IF i == 1:\n"),
        (ONE, "p[0] = add(p[0], x[blockIdx.x, 0])", "p[1] = add(p[1], x[blockIdx.x, 0])"),
    ],
)
def test_planted_faults(text: str, old: str, new: str) -> None:
    bad = changed(text, old, new)
    if "i1 + 1" not in new:
        assert finding(bad, N=2) != ""
    assert gaps(bad) != []
