"""Expressions without a value are asked for before anything else: in statements, in claims and in definitions."""

import pytest

from taskfuse.check import Verdict
from taskfuse.check.defined import DIVISORS, demands
from taskfuse.ir.scalar import const, lt, select, sym
from taskfuse.kir import Kernel, parse_kernel

TEXT = """\
KERNEL copied(x: float32[M, 2], n: int32[M]) -> (y: float32[M, 2])
  DIM M min 0, D min {least}
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[M, 2] = copy(x[{defined}, i1])

FOR w in 0..M:
  FOR v in 0..2:
    y[{stored}, v] = copy(x[{read}, v])  ~ value y[{claimed}, v]
"""
PARTS = {"least": "1", "defined": "i0", "stored": "w", "read": "w", "claimed": "w"}


def kernel(**changes: str) -> Kernel:
    return parse_kernel(TEXT.format(**{**PARTS, **changes}))


def open_divisors(k: Kernel) -> list[str]:
    return [o.reason for o in k.verify().argument if o.subject == DIVISORS and o.verdict is not Verdict.PROVED]


def test_a_kernel_without_divisors_is_proved() -> None:
    kernel().verify().require()


@pytest.mark.parametrize("part", ["stored", "read", "claimed"])
def test_a_divisor_that_may_be_zero_is_named_wherever_it_stands(part: str) -> None:
    assert open_divisors(kernel(least="0", **{part: "(w*D + v)//D"})) == ["the divisor D is not known to be at least 1"]


def test_a_divisor_of_a_definition_is_looked_at() -> None:
    assert open_divisors(kernel(least="0", defined="(i0*D + i1)//D")) == ["the divisor D is not known to be at least 1"]


@pytest.mark.parametrize("part", ["stored", "read", "claimed", "defined"])
def test_a_divisor_of_zero_ends_the_argument(part: str) -> None:
    index = "i0" if part == "defined" else "w"
    certificate = kernel(**{part: f"{index}//0"}).verify()
    assert [o.subject for o in certificate.argument] == [DIVISORS]
    assert not certificate.is_proved


@pytest.mark.parametrize("part", ["stored", "read", "claimed", "defined"])
def test_a_divisor_that_is_positive_is_no_gap(part: str) -> None:
    i, j = ("i0", "i1") if part == "defined" else ("w", "v")
    assert open_divisors(kernel(least="1", **{part: f"({i}*(D + 1) + {j})//(D + 1)"})) == []


def test_points_of_a_definition_are_inside_its_space() -> None:
    text = TEXT.format(**{**PARTS, "defined": "i0*(M - i0)//(M - i0)"})
    assert open_divisors(parse_kernel(text)) == []
    text = TEXT.format(**{**PARTS, "defined": "i0*(M - 1 - i0)//(M - 1 - i0)"})
    assert open_divisors(parse_kernel(text)) == ["the divisor M - i0 - 1 is not known to be at least 1"]


def test_an_arm_is_looked_at_under_its_condition() -> None:
    d = sym("D")
    (found,) = demands(select(lt(0, d), sym("a") // d, const(0)))
    assert found.conditions == (lt(0, d),)
    assert (found.value, found.low) == (d, 1)
