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


RANGE = """\
KERNEL k(x: float32[M], t: int32[M]) -> (y: float32[M])
  DIM M min {least}
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[M] = copy(x[i0])

FOR r in 0..M:
  IF {asked}:
    y[r] = copy(x[r])  ~ value y[r]
  ELSE:
    y[r] = copy(x[r])  ~ value y[r]
"""


@pytest.mark.parametrize(("low", "high"), [("0", "M - 2"), ("2", "M"), ("r", "M - 2"), ("3", "2")])
def test_an_element_has_a_range(low: str, high: str) -> None:
    text = RANGE.format(least=1, asked=f"clamp(t[0 of M], {low}, {high}) < 5")
    assert [reason for reason in open_divisors(parse_kernel(text)) if reason.startswith("the room between the bounds of an element of t:")]


@pytest.mark.parametrize(("low", "high"), [("0", "M - 2"), ("2", "M"), ("r", "M"), ("-3", "2")])
def test_a_range_that_is_not_empty_is_no_gap(low: str, high: str) -> None:
    assert open_divisors(parse_kernel(RANGE.format(least=2, asked=f"clamp(t[0 of M], {low}, {high}) < 5"))) == []


@pytest.mark.parametrize(
    "asked",
    [
        "7//(M - 1) >= 0 && M < 1",
        "clamp(t[r + 1 of M], 0, M) >= 0 && r + 1 < M",
        "(M - 1)*clamp(t[1 of M], 0, M) > 9",
        "M < 2 || clamp(t[0 of M], 2, M) > 2 + M",
    ],
)
def test_what_is_known_at_an_extent_does_not_hide_what_has_no_value_there(asked: str) -> None:
    """Of the condition nothing is left once M is 1. The kernel that runs asks for all of it."""
    certificate = parse_kernel(RANGE.format(least=1, asked=asked)).verify({"M": 1})
    assert certificate.is_proved is asked.startswith("M < 2")  # asks for the element where that fails
    assert certificate.is_proved or [o.subject for o in certificate.argument] == [DIVISORS]


def test_conditions_without_a_value_are_not_counted() -> None:
    k = kernel(stored="w//0")
    assert not k.verify({"M": 3, "D": 2}).is_proved
    loops = parse_kernel(TEXT.format(**{**PARTS, "read": "w//(v + D)"}).replace("FOR w in 0..M", "FOR w in 0..ceildiv(M, 0)"))
    assert not loops.verify({"M": 3, "D": 2}).is_proved
