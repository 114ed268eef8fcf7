"""Sums whose terms are taken in one of two places, by a condition on the loops around: each place is a case of its own."""

import pytest

from taskfuse.check import Certificate, Verdict, verify
from taskfuse.kir import parse_kernel

CHUNKS = """\
KERNEL chunks(x: float32[N, 4*M]) -> (y: float32[N, M])
  DIM N, M min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[N, M] over (N, M, 4) at (i0, i1) = reduce add of copy(x[i0, 4*i1 + i2]) from 0.0

FOR c in 0..M:
  acc = copy(0.0)  ~ start y
  IF {first}:
    FOR j in 0..4:
      acc = add(acc, x[blockIdx.x, 4*c + j])  ~ term y[blockIdx.x, c, j]
  {second}:
    FOR j in {terms}:
      acc = add(acc, x[blockIdx.x, 4*c + j])  ~ term y[blockIdx.x, c, j]
  y[blockIdx.x, c] = copy(acc)  ~ value y[blockIdx.x, c]
"""


def chunks(second: str = "ELSE", terms: str = "0..4", first: str = "2*c < M") -> Certificate:
    return verify(parse_kernel(CHUNKS.format(first=first, second=second, terms=terms)))


@pytest.mark.parametrize(("second", "first"), [("ELSE", "2*c < M"), ("IF 2*c >= M", "2*c < M"), ("ELSE", "2*c < M && threadIdx.x < 1")])
def test_one_of_two_places_takes_all_terms(second: str, first: str) -> None:
    chunks(second, first=first).require()


@pytest.mark.parametrize(
    ("second", "terms"),
    [
        ("ELSE", "0..3"),  # a term is missing where the condition does not hold
        ("ELSE IF 2*c >= M + 1", "0..4"),  # and all are, in one iteration of some
        ("IF 2*c < M + 1", "0..4"),  # terms twice
        ("IF 2*c < M", "0..4"),
        ("IF c >= 0", "0..4"),
    ],
)
def test_no_place_or_both_take_terms(second: str, terms: str) -> None:
    assert chunks(second, terms).verdict is Verdict.REFUTED
