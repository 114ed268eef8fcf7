"""Iterations that share accumulators."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

SUMS = """\
KERNEL sums(x: float32[N, 4, M]) -> (y: float32[N, 4])
  DIM N, M min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[4]
  DEFINE y: float32[N, 4] over (N, 4, M) at (i0, i1) = reduce add of copy(x[i0, i1, i2]) from 0.0

FOR s in 0..4 UNROLL:
  acc[s] = copy(0.0)  ~ start y
FOR i in 0..{count} UNROLL:
  FOR h in 0..2 UNROLL:
    FOR j in 0..M:
      acc[{at}] = add(acc[{at}], x[blockIdx.x, {at}, j])  ~ term y[blockIdx.x, {at}, j]
FOR v in 0..4 UNROLL:
  y[blockIdx.x, v] = copy(acc[v])  ~ value y[blockIdx.x, v]
"""


@pytest.mark.parametrize("at", ["2*i + h", "i + 2*h", "3 - 2*i - h"])
def test_each_iteration_has_accumulators_of_its_own(at: str) -> None:
    verify(parse_kernel(SUMS.format(count=2, at=at))).require()


@pytest.mark.parametrize(("count", "at"), [(4, "i"), (4, "i//2 + 2*h"), (4, "i % 2 + 2*h"), (3, "i + h"), (2, "i + h")])
def test_iterations_share_one(count: int, at: str) -> None:
    assert verify(parse_kernel(SUMS.format(count=count, at=at))).verdict is Verdict.REFUTED


START = """\
KERNEL starts(x: float32[N, 2, M]) -> (y: float32[N, 2])
  DIM N, M min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[2]
  DEFINE y: float32[N, 2] over (N, 2, M) at (i0, i1) = reduce add of copy(x[i0, i1, i2]) from 0.0

FOR s in 0..2 UNROLL:
  acc[s] = copy(0.0)  ~ start y
FOR i in 0..2 UNROLL:
  acc[{at}] = copy(0.0)  ~ start y
  FOR j in 0..M:
    acc[i] = add(acc[i], x[blockIdx.x, i, j])  ~ term y[blockIdx.x, i, j]
FOR v in 0..2 UNROLL:
  y[blockIdx.x, v] = copy(acc[v])  ~ value y[blockIdx.x, v]
"""


@pytest.mark.parametrize("at", ["i", "1"])
def test_an_iteration_sets_what_no_earlier_one_has_used(at: str) -> None:
    verify(parse_kernel(START.format(at=at))).require()


@pytest.mark.parametrize("at", ["0", "1 - i"])
def test_an_iteration_sets_what_an_earlier_one_has_used(at: str) -> None:
    assert verify(parse_kernel(START.format(at=at))).verdict is Verdict.REFUTED
