"""Mistakes in the factors of sums that are rescaled: each operator plants the one that its name says, and the proof accepts none of them."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.testing.mutations import Operator
from taskfuse.testing.rescale_operators import RESCALE_OPERATORS
from tests.testing.planted import planted

KERNEL = """\
KERNEL k(x: float32[4, N, 3], d: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N, 3) at (i0) = reduce add of copy(x[i0, i1, i2]) from 0.0 rescaled 1 by d[i0, i1]

t = copy(0.0)  ~ start y
FOR c in 0..N:
  t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]
  FOR j in 0..3:
    t = add(t, x[threadIdx.x, c, j])  ~ term y[threadIdx.x, c, j]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
FACTOR = "t = mul(t, d[threadIdx.x, c])  ~ rescaled y[threadIdx.x, c, 0]"
LINES = {
    "rescale dropped": "-" + FACTOR,
    "rescale twice": FACTOR,
    "rescale at the end of the iteration": "",  # the same lines
    "rescale but for the first iteration": "IF c >= 1:",
    "rescale in every other iteration": "IF c % 2 == 0:",
    "rescale by thread 0 alone": "IF threadIdx.x == 0:",
    "rescale by the reciprocal": FACTOR.replace("mul", "div"),
    "rescale by the sum itself": FACTOR.replace("d[threadIdx.x, c]", "t"),
}


@pytest.mark.parametrize("operator", RESCALE_OPERATORS, ids=lambda o: o.name)
def test_planted_and_not_proved(operator: Operator) -> None:
    kernel = parse_kernel(KERNEL)
    assert kernel.verify().is_proved
    (mutant,) = operator.apply(kernel)
    assert not mutant.verify().is_proved
    assert LINES[operator.name] in planted(RESCALE_OPERATORS, operator.name, kernel)
