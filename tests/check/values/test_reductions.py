"""Accumulators and what is around them: pairs of kernels of which one computes what it says and the other, of nearly the same text, does not.

Each was proved once, and contradicted by the simulator.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse import MemoryType, parse_kernel
from taskfuse import ParallelType as P
from taskfuse.check import verify
from tests.check.values.twins import rejected

SYMBOLIC_BLOCK = """\
KERNEL k(x: float32[2], z: float32[K]) -> (y: float32[2])
  DIM K min 1 max 1024
  GRID (1, 1, 1)  BLOCK (ceildiv(K, 3), 1, 1)
  DEFINE y: float32[2] = copy(x[i0])

IF threadIdx.x == 0:
  FOR i in 0..2:
    y[i] = copy(x[i])  ~ value y[i]"""


def test_a_thread_that_may_not_exist_stores_nothing() -> None:
    rejected(SYMBOLIC_BLOCK, "threadIdx.x == 0", "threadIdx.x - 32 == 0", "is never stored")


CHOICE = """\
KERNEL k(x: float32[2]) -> (y: float32[2])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL t: float32[4]
  DEFINE t: float32[2] = pick(x[1] if i0 == 0, x[0] if i0 == 1)
  DEFINE y: float32[2] = copy(t[i0])

FOR i in 0..4 UNROLL:
  IF i < 2:
    t[i] = stack(x[1] if i == 0, x[0] if i == 1)  ~ value t[i]
FOR j in 0..2 UNROLL:
  y[j] = copy(t[j])  ~ value y[j]"""


def test_a_choice_has_a_case_wherever_it_is_executed() -> None:
    rejected(CHOICE, "  IF i < 2:", "  IF i < 4:", "case of its choice")


TOTAL = """\
KERNEL k(x: int64[8]) -> (y: int64[])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: int64[]
  DEFINE y: int64[] over (8) at () = reduce minimum of copy(x[i0]) from 9223372036854775807

FOR j in 0..3:
  acc = copy(9223372036854775807)  ~ start y
  FOR i in 0..8:
    IF j < 3:
      acc = minimum(acc, x[i])  ~ term y[i]
y[] = copy(acc)  ~ value y[]"""
TERM = "acc = minimum(acc, x[i])  ~ term y[i]"


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("acc = copy(9223372036854775807)", "acc = copy.int8(9223372036854775807:int64)", "joins the constant -1"),
        ("y[] = copy(acc)", "y[] = copy.int8(acc)", "int8"),
        (TERM, TERM + "\n      acc = minimum(acc, x[i])  ~ body y[i]", "takes minimum in int64 where a term of y is copy"),
        (TERM, TERM.replace("term", "body"), "takes minimum in int64 where a term of y is copy"),
        ("IF j < 3:", "IF j < 1:", "lacks the term"),  # the last iteration, which is read, takes none
        ("  acc = copy(9223372036854775807)  ~ start y", "  IF j < 1:\n    acc = copy(9223372036854775807)  ~ start y", ""),
    ],
)
def test_totals(good: str, bad: str, reason: str) -> None:
    rejected(TOTAL, good, bad, reason)


def reduced(schedule: Callable[[tf.TensorView, tf.TensorView], None]) -> str:
    """A sum of rows, as text with its witness."""
    with tf.Fusion("k") as fusion:
        x = tf.define_tensor([4, 40], name="x")
        y = tf.sum(x, axis=1)
        fusion.add_output(y * 2.0)
    schedule(x, y)
    return tf.lower(fusion).text(witness=True)


def test_every_thread_whose_partial_result_is_joined_has_set_it() -> None:
    def schedule(x: tf.TensorView, y: tf.TensorView) -> None:
        y.split(1, 8).axis(2).parallelize(P.TIDx)

    text = reduced(schedule)
    start = next(line for line in text.splitlines() if "~ start" in line)
    indent = start[: len(start) - len(start.lstrip())]
    rejected(text, start, f"{indent}IF threadIdx.x != 1:\n  {start}", "joins nothing")


def test_partial_results_do_not_lie_on_what_is_read_later() -> None:
    def schedule(x: tf.TensorView, y: tf.TensorView) -> None:
        x.cache_after().set_memory_type(MemoryType.Shared)
        y.split(1, 8).axis(2).parallelize(P.TIDx)

    text = reduced(schedule)
    shared = [line for line in text.splitlines() if line.startswith("  SHARED")]
    assert len(shared) == 2
    part = next(line for line in shared if ".part" in line)
    rejected(text, part, part.split(" @ ")[0] + " @ 0", "")


def test_partial_results_are_joined_with_those_of_the_same_element() -> None:
    with tf.Fusion("k") as fusion:
        x = tf.define_tensor([8, 3, 3], name="x")
        fusion.add_output(tf.sum(x, axis=0) * 2.0)
    y = fusion.tensor("tv1")
    y.split(0, 4).axis(1).parallelize(P.TIDx)
    text = tf.lower(fusion).text(witness=True)
    put = next(line for line in text.splitlines() if "tv1.part[" in line and "copy(tv1[" in line)
    index = put[put.index("copy(tv1[") + 9 : put.index("])")].split(", ")
    rejected(text, put, put.replace(f"copy(tv1[{index[0]}, {index[1]}])", f"copy(tv1[{index[1]}, {index[0]}])"), "which is of another")


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ("add(tv1.part[threadIdx.x], tv1.part[1])  ~ start tv1", "twice: by thread 7"),
        ("copy(0.0)  ~ start tv1", "lacks the term at [0, 0] and 39 more"),
        ("copy(tv1.part[1])  ~ start tv1", "lacks the term at [0, 0]"),
        ("add(tv1.part[threadIdx.x], x[i1, threadIdx.x])  ~ term tv1[i1, threadIdx.x]", "has the term at [0, 0] twice: by thread 0 and thread 0"),
    ],
)
def test_what_joins_partial_results_are_parts_and_nothing_else(step: str, reason: str) -> None:
    def schedule(x: tf.TensorView, y: tf.TensorView) -> None:
        y.split(1, 8).axis(2).parallelize(P.TIDx)

    text = reduced(schedule)
    last = next(line for line in text.splitlines() if "tv1.part[1])" in line)
    rejected(text, last, f"{last}\n{last.split(' = ')[0]} = {step}", reason)


def test_an_accumulator_that_takes_no_term_is_set_where_it_is_read() -> None:
    with tf.Fusion("k") as fusion:
        x = tf.define_tensor([5], name="x")
        y = tf.max(x, axis=0)
        fusion.add_output(tf.copy(y))
    y.split(0, 8)
    part = y.rfactor([0])
    part.set_memory_type(MemoryType.Shared)
    part.axis(0).parallelize(P.TIDx)
    text = tf.lower(fusion).text(witness=True)
    start = next(line for line in text.splitlines() if f"~ start {part.name}" in line)
    indent = start[: len(start) - len(start.lstrip())]
    rejected(text, start, f"{indent}IF threadIdx.x < 5:\n  {start}", "")


SCAN = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[8] = scan maximum along 0 of x[i0]

acc = copy(-inf)  ~ start y
FOR i in 0..8:
  acc = maximum(acc, x[i])  ~ term y[i]
  y[i] = copy(acc)  ~ value y[i]"""


@pytest.mark.parametrize(("good", "bad"), [("acc = copy(-inf)", "acc = abs(-inf)"), ("acc = copy(-inf)", "acc = copy(0.0)"), ("copy(acc)", "neg(acc)")])
def test_scans(good: str, bad: str) -> None:
    rejected(SCAN, good, bad, "")


def test_rings_do_not_lie_on_each_other() -> None:
    with tf.Fusion("k") as fusion:
        x = tf.define_tensor([64, 4], name="x")
        a = tf.relu(x)
        fusion.add_output(tf.abs(a))
    b = a.cache_after()
    for tv in (a, b):
        tv.set_memory_type(MemoryType.Shared)
        tv.inline_at(1)
        tv.circular_buffer(2)
    text = tf.lower(fusion).text(witness=True)
    shared = [line for line in text.splitlines() if line.startswith("  SHARED")]
    assert len(shared) == 2
    rejected(text, shared[1], shared[1].split(" @ ")[0] + " @ 0", "")


OVERLAID = """\
KERNEL k(x: float32[12]) -> (y: float32[3])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  SHARED a: float32[4] @ 0
  SHARED b: float32[3] @ 16
  LOCAL acc: float32[]
  DEFINE a: float32[12] = copy(x[i0])
  DEFINE b: float32[3] over (12) at (i0//4) = reduce add of copy(a[i0]) from 0.0
  DEFINE y: float32[3] = abs(b[i0])

FOR i in 0..3:
  FOR j in 0..4:
    a[j] = copy(x[4*i + j])  ~ value a[4*i + j]
  acc = copy(0.0)  ~ start b
  FOR j in 0..4:
    acc = add(acc, a[j])  ~ term b[4*i + j]
  b[i] = copy(acc)  ~ value b[i]
FOR i in 0..3:
  y[i] = abs(b[i])  ~ value y[i]"""


def test_later_iterations_leave_what_is_read_behind_their_loop() -> None:
    """In the text all accesses of one buffer stand in front of those of the other, but the loop around them runs again."""
    rejected(OVERLAID, "b: float32[3] @ 16", "b: float32[3] @ 0", "")


SMALL = """\
KERNEL k(x: float32[3, N]) -> (y: float32[3, N])
  DIM N min 1 max 5
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  DEFINE y: float32[3, N] = abs(x[i0, i1])

FOR i in 0..3:
  IF threadIdx.x < N:
    y[i, threadIdx.x] = abs(x[i, threadIdx.x])  ~ value y[i, threadIdx.x]"""


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("threadIdx.x < N", "threadIdx.x < N - 1", "which points threadIdx.x < N - 1 leaves"),
        ("threadIdx.x < N", "threadIdx.x < N && threadIdx.x < 4", "4 points are visited along an axis of N"),
        ("threadIdx.x < N", "threadIdx.x < N && threadIdx.x != 2", "point [0, 2] is not visited"),
        ("max 5", "max 9", "8 points are visited along an axis of N"),
    ],
)
def test_an_axis_that_is_no_longer_than_a_block(good: str, bad: str, reason: str) -> None:
    rejected(SMALL, good, bad, reason)


GATHERED = """\
KERNEL k(x: float32[M, 9], at: int32[7]) -> (y: float32[7, 9])
  DIM M min 2
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  DEFINE y: float32[7, 9] = find x[-v0, i1] at at[i0] of 1

FOR i in 0..7:
  FOR j in 0..9:
    GATHER y[i, j] <- x[0, j] at v = at[i] of 1  ~ value y[i, j]"""


def test_a_gather_reads_what_its_value_says_where_there_is_an_element() -> None:
    """The only index along an axis of one element is 0, whatever its definition makes of the value."""
    rejected(GATHERED, "<- x[0, j]", "<- x[1, j]", "reads index 1 of x on axis 0")


LANES = """\
KERNEL k(x: float32[3, 64]) -> (y: float32[3])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL t: float32[2, 2]
  LOCAL lane: float32[]
  LOCAL peer: float32[]
  DEFINE y: float32[3] over (3, 64) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

FOR a in 0..2 UNROLL:
  FOR b in 0..2 UNROLL:
    t[a, b] = copy(0.0)  ~ start y
    FOR k in 0..2:
      IF 2*a + b < 3:
        t[a, b] = add(t[a, b], x[2*a + b, 32*k + threadIdx.x])  ~ term y[2*a + b, 32*k + threadIdx.x]
FOR a in 0..2 UNROLL:
  FOR b in 0..2 UNROLL:
    lane = copy(t[a, b])  ~ part y
    SHUFFLE peer <- lane xor 16  ~ part y
    lane = add(lane, peer)  ~ part y
    SHUFFLE peer <- lane xor 8  ~ part y
    lane = add(lane, peer)  ~ part y
    SHUFFLE peer <- lane xor 4  ~ part y
    lane = add(lane, peer)  ~ part y
    SHUFFLE peer <- lane xor 2  ~ part y
    lane = add(lane, peer)  ~ part y
    SHUFFLE peer <- lane xor 1  ~ part y
    lane = add(lane, peer)  ~ part y
    IF b + 2*a < 3:
      t[a, b] = copy(lane)  ~ part y
IF threadIdx.x == 0:
  FOR a in 0..2 UNROLL:
    FOR b in 0..2 UNROLL:
      IF 2*a + b <= 2:
        y[2*a + b] = copy(t[a, b])  ~ value y[2*a + b]"""


def test_accumulators_that_are_not_read_may_be_joined_in_another_way() -> None:
    rejected(LANES, "b + 2*a < 3", "b + 2*a < 2", "element [2] of y lacks the term at [2, 1] and 61 more")
    assert not any(o.subject == "launch" for o in verify(parse_kernel(LANES)).argument)


ONE_LANE = """\
KERNEL k(x: float32[N, 1]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  LOCAL acc: float32[]
  LOCAL p: float32[]
  DEFINE y: float32[N] over (N, 1) at (i0) = reduce add of copy(x[i0, i1]) from 0.0

IF threadIdx.x < 32:
  acc = copy(0.0)  ~ start y
IF threadIdx.x < 1:
  acc = add(acc, x[blockIdx.x, 0])  ~ term y[blockIdx.x, 0]
SHUFFLE p <- acc xor 16  ~ part y
acc = add(acc, p)  ~ part y
SHUFFLE p <- acc xor 8  ~ part y
acc = add(acc, p)  ~ part y
SHUFFLE p <- acc xor 4  ~ part y
acc = add(acc, p)  ~ part y
SHUFFLE p <- acc xor 2  ~ part y
acc = add(acc, p)  ~ part y
SHUFFLE p <- acc xor 1  ~ part y
acc = add(acc, p)  ~ part y
IF threadIdx.x == 0:
  y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("IF threadIdx.x < 32:", "IF threadIdx.x < 31:", "not every accumulator is set"),
        ("IF threadIdx.x < 1:", "IF threadIdx.x < 2:", "twice"),
        ("IF threadIdx.x < 1:", "IF threadIdx.x < 0:", "lacks the term at [0, 0]"),
        ("acc = copy(0.0)  ~ start y", "acc = copy(1.0)  ~ start y", "starts with 1.0"),
    ],
)
def test_threads_that_take_no_terms_are_joined_any_number_of_times(good: str, bad: str, reason: str) -> None:
    rejected(ONE_LANE, good, bad, reason)


FIRST = """\
KERNEL k(x: float32[8, N]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (1, 1, 1)
  LOCAL acc: float32[]
  DEFINE y: float32[N] over (8, N) at (i1) = reduce add of copy(x[i0, i1]) from 0.0

FOR i in 0..4:
  IF i < 1:
    acc = copy(0.0)  ~ start y
  FOR j in 0..8:
    IF 2*i < 1:
      acc = add(acc, x[j, blockIdx.x])  ~ term y[j, blockIdx.x]
y[blockIdx.x] = copy(acc)  ~ value y[blockIdx.x]
"""


@pytest.mark.parametrize(
    ("good", "bad", "reason"),
    [
        ("IF i < 1:", "IF i < 2:", "may not be taken in the last iteration"),
        ("IF 2*i < 1:", "IF 2*i < 3:", "may not be taken in the last iteration"),
        ("IF 2*i < 1:", "IF i >= 1 && i < 2:", "may not be taken in the last iteration"),
        ("IF i < 1:", "IF i >= 3:", "may not be taken in the last iteration"),
    ],
)
def test_iterations_that_leave_an_accumulator_alone(good: str, bad: str, reason: str) -> None:
    rejected(FIRST, good, bad, reason)
