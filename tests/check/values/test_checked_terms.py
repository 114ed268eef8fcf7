"""Terms of reductions: what a step is made of, in the forms that there are; and steps that take something else."""

import pytest

from tests.check.values.written import unproved

DOT = """\
KERNEL k(a: float32[N], b: float32[N]) -> (y: float32[])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  LOCAL t: float32[]
  DEFINE y: float32[] over (N) at () = reduce add of mul(a[i0], b[i0]) from 0.0

acc = copy(0.0)  ~ start y
FOR i in 0..N:
  {}
y[] = copy(acc)  ~ value y[]
"""


@pytest.mark.parametrize(
    "step",
    [
        "acc = fma(a[i], b[i], acc)  ~ term y[i]",
        "acc = fma(b[i], a[i], acc)  ~ term y[i]",
        "t = mul(a[i], b[i])  ~ body y[i]\n  acc = add(acc, t)  ~ term y[i]",
        "t = mul(a[i], b[i])  ~ body y[i]\n  acc = add(t, acc)  ~ term y[i]",
    ],
)
def test_steps(step: str) -> None:
    assert unproved(DOT.format(step)) == []


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("acc = add(acc, a[i])  ~ term y[i]", "a"),
        ("acc = fma(a[i], acc, b[i])  ~ term y[i]", "it takes no term of its reduction"),
        ("acc = mul(acc, a[i])  ~ term y[i]", "it takes no term of its reduction"),
        ("acc = fma.float64(a[i], b[i], acc)  ~ term y[i]", "it computes in float64, not in float32"),
        ("t = add(a[i], b[i])  ~ body y[i]\n  acc = add(acc, t)  ~ term y[i]", "it is not the body of its reduction"),
        ("acc = fma(a[i], a[i], acc)  ~ term y[i]", "a"),
    ],
)
def test_other_steps(step: str, reason: str) -> None:
    found = unproved(DOT.format(step))
    assert found
    assert any(reason in r for r in found), found
