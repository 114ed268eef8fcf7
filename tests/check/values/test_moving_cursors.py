"""Cursors that move, or do not, between a write and a read at their slots."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import Kernel, parse_kernel

SLOTS = """\
KERNEL slots(x: float32[N, 8]) -> (y: float32[N, 8])
  DIM N
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[3, 8]
  DEFINE a: float32[N, 8] = neg(x[i0, i1])
  DEFINE y: float32[N, 8] = exp(a[i0, 7 - i1])

FOR i in 0..N:
  c = CURSOR(slots 3, slot 0, parity 0)
  {before}
  s[c.slot, threadIdx.x] = neg(x[i, threadIdx.x])  ~ value a[i, threadIdx.x]
  SYNC block
  {between}
  y[i, threadIdx.x] = exp(s[c.slot, 7 - threadIdx.x])  ~ value y[i, threadIdx.x]
  SYNC block
  {behind}
"""
MOVE = "c.advance(1)"
HALF = "IF threadIdx.x < 4:\n    c.advance(1)"
ODD = "IF i % 2 == 1:\n    c.advance(1)"
OWN = "FOR k in 0..threadIdx.x:\n    c.advance(1)"


def kernel(before: str = "PASS", between: str = "PASS", behind: str = "PASS") -> Kernel:
    lines = SLOTS.format(before=before, between=between, behind=behind).split("\n")
    return parse_kernel("\n".join(line for line in lines if line.strip() != "PASS"))


@pytest.mark.parametrize("behind", ["PASS", MOVE, HALF])
@pytest.mark.parametrize("before", ["PASS", MOVE, ODD])
def test_it_stays(before: str, behind: str) -> None:
    found = verify(kernel(before, "PASS", behind))
    assert found.verdict is (Verdict.PROVED if behind is not HALF else Verdict.OUTSIDE), found


@pytest.mark.parametrize("between", [MOVE, HALF, ODD])
def test_it_moves_in_between(between: str) -> None:
    assert verify(kernel(between=between)).verdict is Verdict.REFUTED


@pytest.mark.parametrize("before", [HALF, OWN, "c.advance(threadIdx.x)"])
def test_threads_move_theirs_apart(before: str) -> None:
    assert verify(kernel(before)).verdict is Verdict.REFUTED


def test_a_loop_around_the_write_moves_it() -> None:
    write = "s[c.slot, threadIdx.x] = neg(x[i, threadIdx.x])  ~ value a[i, threadIdx.x]"
    lines = SLOTS.format(before="PASS", between="PASS", behind="PASS").replace(write, f"FOR k in 0..2:\n    {write}\n    {MOVE}").split("\n")
    moved = parse_kernel("\n".join(line for line in lines if line.strip() != "PASS"))
    assert verify(moved).verdict is Verdict.REFUTED
