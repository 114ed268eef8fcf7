"""The terms that accumulators take: pairs of kernels of which one takes those of its element and the other, of nearly the same text, does not."""

import pytest

import taskfuse as tf
from taskfuse import parse_kernel
from taskfuse.check import verify
from tests.check.values.twins import open_values, rejected, twins


def test_elements_behind_a_digit_of_the_axis_take_no_terms() -> None:
    with tf.Fusion("k") as fusion:
        x = tf.define_tensor([4, 1], name="x")
        y = tf.sum(x * x, axis=1)
        fusion.add_output(tf.copy(y))
    y.split(1, 8)
    y.rfactor([1])
    text = tf.lower(fusion).text(witness=True)
    guard = next(line.strip() for line in text.splitlines() if line.strip().startswith("IF i") and "< 1" in line)
    rejected(text, guard, guard.replace("< 1", "< 8"), "")


DOWN = """\
KERNEL k(x: float32[N], w: float32[N]) -> (total: float32[], y: float32[N])
  DIM N
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE total: float32[] over (N) at () = reduce add of mul(x[i0], w[i0]) from 0.0
  DEFINE y: float32[N] = copy(x[i0])

acc = copy(0.0)  ~ start total
FOR i in 0..ceildiv(N, 8):
  FOR j in 0..8:
    IF 8*i + j < N:
      acc = fma(x[N - 1 - 8*i - j], w[N - 1 - 8*i - j], acc)  ~ term total[N - 1 - 8*i - j]
total[] = copy(acc)  ~ value total[]
FOR i in 0..N:
  y[N - 1 - i] = copy(x[N - 1 - i])  ~ value y[N - 1 - i]
"""


@pytest.mark.parametrize(
    ("good", "bad"),
    [("IF 8*i + j < N", "IF 8*i + j < N - 1"), ("0..ceildiv(N, 8)", "0..N//8"), ("~ term total[N - 1 - 8*i - j]", "~ term total[8*i + j]"), ("0..N:", "1..N:")],
)
def test_an_axis_from_its_end_to_its_beginning(good: str, bad: str) -> None:
    right, wrong = twins(DOWN, good, bad)
    verify(right).require()
    assert open_values(wrong)


FRONT = """\
KERNEL k(x: float32[N]) -> (total: float32[])
  DIM N min 1 max 64
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  SHARED s: float32[72]
  DEFINE u: float32[N] = copy(x[i0])
  DEFINE total: float32[] over (N) at () = reduce add of copy(u[i0]) from 0.0

FOR i in 0..8:
  s[i] = copy(0.0)  ~ zero u
FOR i in 0..N:
  s[i + 8] = copy(x[i])  ~ value u[i]
acc = copy(0.0)  ~ start total
FOR i in 0..ceildiv(N, 8):
  FOR j in 0..8:
    IF 8*i + j < N:
      acc = add(acc, s[N + 7 - 8*i - j])  ~ term total[N - 1 - 8*i - j]
total[] = copy(acc)  ~ value total[]
"""


def test_elements_in_front_of_the_first_are_no_terms() -> None:
    right, wrong = twins(FRONT, "    IF 8*i + j < N:", "    IF 8*i + j < N + 8:")
    verify(right).require()
    assert "before the first" in open_values(wrong)


BEHIND = """\
KERNEL k(x: int32[4]) -> (y: int32[1])
  GRID (1, 1, 1)  BLOCK (3, 1, 1)
  LOCAL acc: int32[]
  SHARED part: int32[3]
  DEFINE y: int32[1] over (4) at (i0//5) = reduce add of copy(x[i0]) from 0

acc = copy(0)  ~ start y
FOR i in 0..2:
  IF i + 2*threadIdx.x < 4:
    acc = add(acc, x[i + 2*threadIdx.x])  ~ term y[i + 2*threadIdx.x]
part[threadIdx.x] = copy(acc)  ~ part y
SYNC block
IF threadIdx.x == 0:
  part[0] = add(part[0], part[2])  ~ part y
  part[0] = add(part[0], part[1])  ~ part y
  acc = copy(part[0])  ~ part y
  y[0] = copy(acc)  ~ value y[0]"""


def test_a_digit_of_a_point_behind_the_end_is_no_digit_of_one_that_exists() -> None:
    rejected(BEHIND, "i + 2*threadIdx.x < 4", "i + 2*threadIdx.x < 3", "lacks the term at [3]")
    assert not any(o.subject == "launch" for o in verify(parse_kernel(BEHIND)).argument)


FEW = """\
KERNEL k(x: float32[3, N]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED s: float32[8, N] align 16
  LOCAL s.acc: float32[]
  LOCAL y.acc: float32[]
  DEFINE s: float32[8, N] over (3, N) at (i0 % 8, i1) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[N] over (8, N) at (i1) = reduce add of copy(s[i0, i1]) from 0.0

FOR i0 in 0..8:
  FOR i1 in 0..N:
    IF i0 < 8:
      s.acc = copy(0.0)  ~ start s
    IF i0 < 3:
      s.acc = add(s.acc, x[i0, i1])  ~ term s[i0, i1]
    s[i0, i1] = copy(s.acc)  ~ value s[i0, i1]
FOR i1 in 0..N:
  y.acc = copy(0.0)  ~ start y
  FOR i0 in 0..8:
    y.acc = add(y.acc, s[i0, i1])  ~ term y[i0, i1]
  y[i1] = copy(y.acc)  ~ value y[i1]
"""


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("IF i0 < 8:", "IF i0 < 3:", "not every accumulator is set before it is read"),
        ("IF i0 < 3:", "IF i0 < 2:", "lacks the term at [2, 0]"),
        ("copy(s.acc)  ~ value s[i0, i1]", "copy(s.acc)  ~ value s[7 - i0, i1]", "it may find index"),
    ],
)
def test_an_accumulator_of_digits_of_an_axis_may_take_no_term(good: str, bad: str, reason: str) -> None:
    rejected(FEW, good, bad, reason)
    few = FEW.replace("i0 < 3:", "i0 < 1:").replace("over (3, N)", "over (1, N)").replace("x: float32[3, N]", "x: float32[1, N]")
    verify(parse_kernel(few)).require()


FEW_THREADS = """\
KERNEL k(x: float32[1, N]) -> (y: float32[N])
  DIM N min 1
  GRID (1, 1, 1)  BLOCK (12, 1, 1)
  SHARED s: float32[8, N] align 16
  LOCAL s.acc: float32[]
  LOCAL y.acc: float32[]
  DEFINE s: float32[8, N] over (1, N) at (i0 % 8, i1) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[N] over (8, N) at (i1) = reduce add of copy(s[i0, i1]) from 0.0

IF threadIdx.x < 8:
  FOR i1 in 0..N:
    s.acc = copy(0.0)  ~ start s
    IF threadIdx.x < 1:
      s.acc = add(s.acc, x[threadIdx.x, i1])  ~ term s[threadIdx.x, i1]
    s[threadIdx.x, i1] = copy(s.acc)  ~ value s[threadIdx.x, i1]
SYNC block
IF threadIdx.x == 0:
  FOR j in 0..N:
    y.acc = copy(0.0)  ~ start y
    FOR i0 in 0..8:
      y.acc = add(y.acc, s[i0, j])  ~ term y[i0, j]
    y[j] = copy(y.acc)  ~ value y[j]
"""


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("IF threadIdx.x < 8:", "IF threadIdx.x < 7:", "no write of s is known"),
        ("IF threadIdx.x < 1:", "IF threadIdx.x < 0:", "lacks the term at [0, 0]"),
        ("copy(s.acc)  ~ value s[threadIdx.x, i1]", "copy(s.acc)  ~ value s[7 - threadIdx.x, i1]", "it may find index"),
    ],
)
def test_an_accumulator_of_a_thread_may_take_no_term(good: str, bad: str, reason: str) -> None:
    rejected(FEW_THREADS, good, bad, reason)
