"""Accumulators are set before their first term, once, to the initial value of their reduction."""

import pytest

import taskfuse as tf
from taskfuse.check import Layer, Verdict
from tests.executions import changed, finding

KERNEL = """\
KERNEL k(x: float32[4, N]) -> (y: float32[4])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE y: float32[4] over (4, N) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

t = copy(0.0)  ~ start y
FOR k in 0..N:
  t = add(t, x[threadIdx.x, k])  ~ term y[threadIdx.x, k]
y[threadIdx.x] = copy(t)  ~ value y[threadIdx.x]
"""
START = "t = copy(0.0)  ~ start y\n"


def gaps(text: str) -> list[str]:
    kernel = tf.parse_kernel(text)
    kernel.check_ir()
    return [o.reason for o in kernel.verify().argument if o.layer is Layer.VALUES and o.verdict is not Verdict.PROVED]


def test_it_holds() -> None:
    assert gaps(KERNEL) == []
    assert finding(KERNEL, N=3) == ""


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (START, "", "nothing sets an accumulator before its first term"),
        (START, START.replace("0.0", "1.0"), "an accumulator starts with 1.0 in the place of 0.0"),
        (START, START.replace("copy(0.0)", "copy(x[0, 0])"), "an accumulator does not start with a constant"),
        (START, f"IF threadIdx.x < 3:\n  {START}", "not every accumulator is set before its first term"),
        ("FOR k in 0..N:\n", f"FOR k in 0..N:\n  {START}", "an accumulator is set again after its first term"),
    ],
)
def test_starts_that_are_missing_wrong_or_repeated(old: str, new: str, why: str) -> None:
    bad = changed(KERNEL, old, new)
    assert set(gaps(bad)) == {why}
    assert finding(bad, N=3) != ""


NOTHING = """\
KERNEL k(x: float32[4, 0]) -> (y: float32[4])
  GRID (1, 1, 1)  BLOCK (4, 1, 1)
  LOCAL t: float32[]
  DEFINE m: float32[4] over (4, 0) at (i0) = reduce maximum of copy(x[i0, i1]) from -inf
  DEFINE y: float32[4] = neg(m[i0])

t = copy(-inf)  ~ start m
FOR k in 0..0:
  t = maximum(t, x[threadIdx.x, k])  ~ term m[threadIdx.x, k]
y[threadIdx.x] = neg(t)  ~ value y[threadIdx.x]
"""


def test_a_reduction_of_nothing_is_an_operand() -> None:
    for k in (NOTHING, changed(NOTHING, "FOR k in 0..0:\n  t = maximum(t, x[threadIdx.x, k])  ~ term m[threadIdx.x, k]\n", "")):
        assert gaps(k) == []
        assert any(o.subject == "writes" for o in tf.parse_kernel(k).verify().argument)  # without a run of the launch
        assert finding(k) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t = copy(-inf)  ~ start m\n", ""),
        ("t = copy(-inf)  ~ start m", "t = copy(0.0)  ~ start m"),
        ("t = copy(-inf)  ~ start m", "IF threadIdx.x > 0:\n  t = copy(-inf)  ~ start m"),
    ],
)
def test_a_reduction_of_nothing_without_its_value(old: str, new: str) -> None:
    wrong = changed(NOTHING, old, new)
    assert gaps(wrong) != []
    assert finding(wrong) != ""
