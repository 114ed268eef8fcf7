"""Rings whose ends use a position in one of two arms: written as ELSE, as two IFs, or as a position of every iteration."""

from itertools import product

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import Kernel, parse_kernel
from taskfuse.testing.machine import find_fault

TEXT = """\
KERNEL ring(x: float32[N, 32]) -> (y: float32[2, N, 32])
  DIM N max 6
  GRID (2, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 16
  MBARRIER full[2], empty[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 32
    INIT empty[i] count 32
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots 2, slot 0, parity 1)
  FOR k in 0..N:
PRODUCER
ELSE IF threadIdx.y == 1:
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR j in 0..N:
CONSUMER
"""
FILL = ["WAIT empty[p.slot] parity p.parity", "s[p.slot, threadIdx.x] = mul(x[k, threadIdx.x], {0})", "ARRIVE full[p.slot]", "p.advance(1)"]
USE = ["WAIT full[c.slot] parity c.parity", "y[blockIdx.x, j, threadIdx.x] = mul(s[c.slot, 31 - threadIdx.x], {0})", "ARRIVE empty[c.slot]", "c.advance(1)"]
CONDITIONS = {
    "k % 2 == 0": "k % 2 != 0",
    "k < 3": "k >= 3",
    "blockIdx.x == 0": "blockIdx.x != 0",
    "(k + blockIdx.x) % 2 == 0": "(k + blockIdx.x) % 2 != 0",
    "k < 3 && blockIdx.x == 0": "k >= 3 || blockIdx.x != 0",
    "k % 3 == 0 || k == 4": "k % 3 != 0 && k != 4",
    "N > 3": "N <= 3",
}


def end(position: list[str], form: str, condition: str, otherwise: str, twice: int = 1) -> str:
    """One end of the ring."""

    def lines(factor: str, indent: int, times: int = 1) -> list[str]:
        return times * [" " * indent + line.format(factor) for line in position]

    if form == "always":
        return "\n".join(lines("1.0", 4))
    first, second = [f"    IF {condition}:", *lines("2.0", 6)], lines("3.0", 6, twice)
    return "\n".join([*first, "    ELSE:" if form == "else" else f"    IF {otherwise}:", *second])


def ring(producer: str, consumer: str) -> Kernel:
    return parse_kernel(TEXT.replace("PRODUCER", producer).replace("CONSUMER", consumer.replace("k ", "j ").replace("(k", "(j")))


def proved(kernel: Kernel) -> bool:
    return all(o.verdict is Verdict.PROVED for o in verify(kernel).argument)


@pytest.mark.parametrize(("fills", "uses"), [*product(("always", "two", "else"), repeat=2)])
def test_a_position_in_each_of_two_arms_is_one_of_every_iteration(fills: str, uses: str) -> None:
    for condition, otherwise in CONDITIONS.items():
        assert proved(ring(end(FILL, fills, condition, otherwise), end(USE, uses, condition, otherwise))), condition


@pytest.mark.parametrize("uses", ["always", "two", "else"])
def test_arms_that_are_no_opposites_are_not(uses: str) -> None:
    for condition, otherwise in (("k < 3", "k > 3"), ("k < 3", "k >= 0"), ("k < 3 && blockIdx.x == 0", "k >= 3 && blockIdx.x != 0")):
        kernel = ring(end(FILL, "two", condition, otherwise), end(USE, uses, "k < 3", "k >= 3"))
        assert not proved(kernel)
        assert find_fault(kernel, [{"N": 6}], 2) is not None


@pytest.mark.parametrize(("fills", "uses"), [("always", "else"), ("two", "always"), ("else", "two")])
def test_two_positions_in_one_of_the_arms_are_not(fills: str, uses: str) -> None:
    kernel = ring(end(FILL, fills, "k < 3", "k >= 3", 2), end(USE, uses, "k < 3", "k >= 3"))
    if fills == "always":
        kernel = ring(end(FILL, fills, "k < 3", "k >= 3"), end(USE, uses, "k < 3", "k >= 3", 2))
    assert not proved(kernel)
    assert find_fault(kernel, [{"N": 6}], 2) is not None


def test_two_positions_in_both_arms_need_two_slots() -> None:
    """A position that is given back in the same iteration is waited for behind that, in each arm."""
    fill, use = (p * 2 for p in (FILL, USE))
    kernel = ring(end(fill, "else", "k < 3", "k >= 3"), end(use, "two", "k < 3", "k >= 3"))
    assert proved(kernel)
    one = str(kernel).replace("[2, 32]", "[1, 32]").replace("[2]", "[1]").replace("slots 2", "slots 1").replace("0..2", "0..1")
    assert proved(parse_kernel(one))


def test_other_counts_of_arrivals_are_not() -> None:
    kernel = ring(end(FILL, "else", "k < 3", "k >= 3").replace("ARRIVE full", "IF threadIdx.x < 16:\n        ARRIVE full", 1), end(USE, "always", "", ""))
    assert not proved(kernel)
    assert find_fault(kernel, [{"N": 6}], 2) is not None
