"""Storage of partial results: of one tensor each, and of nothing else; registers where they take terms."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

TEXT = """\
KERNEL k(x: float32[N]) -> (y: float32[1], z: float32[N], e: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL value: float32[]
  LOCAL total: float32[]
  MEMORY sum: float32[1]
  DEFINE t: float32[N] = copy(x[i0])
  DEFINE e: float32[N] = exp(t[i0])
  DEFINE z: float32[N] = scan add along 0 of x[i0]
  DEFINE y: float32[1] over (1, N) at (i0) = reduce add of copy(x[i1]) from 0.0

FOR i in 0..N:
  value = copy(x[i])  ~ value t[i]
  {value}
  e[i] = exp(value)  ~ value e[i]
total = copy(0.0)  ~ start z
FOR i in 0..N:
  total = add(total, x[i])  ~ term z[i]
  z[i] = copy(total)  ~ value z[i]
  {total}
sum[0] = copy(0.0)  ~ start y
FOR i in 0..N:
  sum[0] = add(sum[0], x[i])  ~ term y[0, i]
{sum}
y[0] = copy(sum[0])  ~ value y[0]
"""


def verdict(*, memory: str = "LOCAL", value: str = "PASS", total: str = "PASS", sum: str = "PASS") -> tuple[Verdict, str]:
    certificate = verify(parse_kernel(TEXT.format(value=value, total=total, sum=sum).replace("MEMORY", memory)))
    found = [f"{o.subject}: {o.reason}" for o in certificate.argument if o.verdict is not Verdict.PROVED]
    return certificate.verdict, found[0] if found else ""


def test_storage_of_its_own_is_proved() -> None:
    assert verdict() == (Verdict.PROVED, "")


@pytest.mark.parametrize(
    ("name", "other", "reason"),
    [
        ("value", "value = copy(0.0)  ~ start z", "value holds partial results of z, and values of t"),
        ("value", "value = copy(0.0)  ~ start y", "value holds partial results of y, and values of t"),
        ("value", "value = copy(0.0)  ~ part y", "value holds partial results of y, and values of t"),
        ("total", "total = copy(0.0)  ~ part y", "total holds partial results of y and of z"),
        ("total", "total = copy(x[i])  ~ value t[i]", "total holds partial results of z, and values of t"),
        ("sum", "sum[0] = copy(0.0)  ~ start z", "sum holds partial results of y and of z"),
        ("sum", "sum[0] = copy(x[0])  ~ value t[0]", "sum holds partial results of y, and values of t"),
    ],
)
def test_another_use_is_refuted(name: str, other: str, reason: str) -> None:
    assert verdict(**{name: other}) == (Verdict.REFUTED, f"accumulators: {reason}")


def test_what_takes_terms_is_a_register() -> None:
    assert verdict(memory="SHARED") == (Verdict.OUTSIDE, "accumulators: sum takes terms, and is no register")
