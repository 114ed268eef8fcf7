"""Elements that no definition reads, and statements that leave something else in their place."""

from __future__ import annotations

import pytest

from taskfuse import parse_kernel
from taskfuse.check import Layer, verify
from taskfuse.check.values.read_elements import ReadElements
from taskfuse.ir.scalar import parse_expr

UNREAD = """\
KERNEL k(x: float32[8, 4], t: int32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8] align 16
  LOCAL s.acc: float32[]
  DEFINE s: float32[8] over (8, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[8] = pick(s[i0] if i0 < clamp(t[0 of 8], 0, 8), otherwise 0.0)

s.acc = copy(0.0)  ~ start s
FOR i1 in 0..select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0):
  s.acc = add(s.acc, x[threadIdx.x, i1])  ~ term s[threadIdx.x, i1]
s[threadIdx.x] = copy(s.acc)  ~ value s[threadIdx.x]
y[threadIdx.x] = pick(s[threadIdx.x] if threadIdx.x < clamp(t[0 of 8], 0, 8), otherwise 0.0)  ~ value y[threadIdx.x]
"""
ALSO = """\
z[threadIdx.x] = mul(s[threadIdx.x], 2.0)  ~ value z[threadIdx.x]
"""


def test_what_nobody_reads_need_not_be_summed_up() -> None:
    verify(parse_kernel(UNREAD)).require()
    further = UNREAD.replace("select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0)", "select(threadIdx.x < clamp(t[0 of 8], 0, 8) + 1, 4, 0)")
    verify(parse_kernel(further)).require()


@pytest.mark.parametrize(
    "wrong",
    [
        UNREAD.replace("select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0)", "select(threadIdx.x < clamp(t[0 of 8], 0, 8) - 1, 4, 0)"),
        UNREAD.replace("select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0)", "select(threadIdx.x < clamp(t[1 of 8], 0, 8), 4, 0)"),
        UNREAD.replace("-> (y: float32[8])", "-> (y: float32[8], s: float32[8])").replace("  SHARED s: float32[8] align 16\n", ""),
        UNREAD.replace("(y: float32[8])", "(y: float32[8], z: float32[8])").replace("\n\n", "\n  DEFINE z: float32[8] = mul(s[i0], 2.0)\n\n") + ALSO,
        UNREAD.replace("pick(s[i0] if", "pick(s[7 - i0] if")
        .replace("pick(s[threadIdx.x] if", "pick(s[7 - threadIdx.x] if")
        .replace("y[thr", "SYNC block\ny[thr", 1),
    ],
)
def test_what_anybody_reads_is_summed_up(wrong: str) -> None:
    certificate = verify(parse_kernel(wrong))
    assert not certificate.is_proved
    assert certificate.open_layers <= {Layer.VALUES, Layer.INSTANCE}


def test_conditions_are_those_of_all_reads() -> None:
    kernel = parse_kernel(UNREAD)
    definitions = {d.tensor: d for d in kernel.definitions}
    element = (parse_expr("j"),)
    condition = parse_expr("j < clamp(t[0 of 8], 0, 8)")
    assert ReadElements(definitions, ["y"]).conditions("s", element) == (condition,)
    assert ReadElements(definitions, ["y", "s"]).conditions("s", element) == ()
    assert ReadElements(definitions, ["y"]).conditions("x", element) == ()


THROUGH = """\
KERNEL k(x: float32[8, 4], t: int32[8], w: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8] align 16
  SHARED u: float32[8] align 16
  LOCAL s.acc: float32[]
  DEFINE s: float32[8] over (8, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE u: float32[8] = add(s[i0], w[i0])
  DEFINE y: float32[8] = pick(u[i0] if i0 < clamp(t[0 of 8], 0, 8), otherwise 0.0)

s.acc = copy(0.0)  ~ start s
FOR i1 in 0..select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0):
  s.acc = add(s.acc, x[threadIdx.x, i1])  ~ term s[threadIdx.x, i1]
s[threadIdx.x] = copy(s.acc)  ~ value s[threadIdx.x]
u[threadIdx.x] = add(s[threadIdx.x], w[threadIdx.x])  ~ value u[threadIdx.x]
y[threadIdx.x] = pick(u[threadIdx.x] if threadIdx.x < clamp(t[0 of 8], 0, 8), otherwise 0.0)  ~ value y[threadIdx.x]
"""


def test_what_is_read_for_elements_that_nobody_reads_need_not_be_summed_up_either() -> None:
    verify(parse_kernel(THROUGH)).require()
    definitions = {d.tensor: d for d in parse_kernel(THROUGH).definitions}
    for tensor in "suw":
        assert ReadElements(definitions, ["y"]).conditions(tensor, (parse_expr("j"),)) == (parse_expr("j < clamp(t[0 of 8], 0, 8)"),)
    assert ReadElements(definitions, ["y", "u"]).conditions("s", (parse_expr("j"),)) == ()
    backwards = dict(reversed(definitions.items()))
    assert ReadElements(backwards, ["y"]).conditions("s", (parse_expr("j"),)) == ()


@pytest.mark.parametrize(
    "wrong",
    [
        THROUGH.replace("select(threadIdx.x < clamp(t[0 of 8], 0, 8), 4, 0)", "select(threadIdx.x < clamp(t[0 of 8], 0, 8) - 1, 4, 0)"),
        THROUGH.replace("(y: float32[8])", "(y: float32[8], z: float32[8])").replace("\n\n", "\n  DEFINE z: float32[8] = mul(s[i0], 2.0)\n\n") + ALSO,
        THROUGH.replace("(y: float32[8])", "(y: float32[8], z: float32[8])").replace("\n\n", "\n  DEFINE z: float32[8] = mul(u[i0], 2.0)\n\n")
        + ALSO.replace("(s[", "(u["),
        THROUGH.replace("add(s[i0], w[i0])", "add(s[7 - i0], w[i0])")
        .replace("add(s[threadIdx.x], w", "add(s[7 - threadIdx.x], w")
        .replace("\nu[thr", "\nSYNC block\nu[thr", 1),
    ],
)
def test_what_is_read_for_elements_that_anybody_reads_is_summed_up(wrong: str) -> None:
    certificate = verify(parse_kernel(wrong))
    assert not certificate.is_proved
    assert certificate.open_layers <= {Layer.VALUES, Layer.INSTANCE}


TABLE = """\
KERNEL k(x: float32[4, 2], t: int32[8]) -> (y: float32[4, 2])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  DEFINE y: float32[4, 2] = pick(x[i0, i1] if i1 < clamp(t[2*i0 of 8], 0, 2), otherwise 0.0)

y[threadIdx.x//2, threadIdx.x % 2] = pick(x[threadIdx.x//2, threadIdx.x % 2] if threadIdx.x % 2 < clamp(t[A of 8], 0, 2), otherwise 0.0)\
  ~ value y[threadIdx.x//2, threadIdx.x % 2]
"""


@pytest.mark.parametrize("index", ["2*(threadIdx.x//2)", "2*((2*threadIdx.x)//4)"])
def test_elements_of_tables_are_equal_at_equal_indices(index: str) -> None:
    verify(parse_kernel(TABLE.replace("A of", f"{index} of"))).require()


@pytest.mark.parametrize("index", ["threadIdx.x", "threadIdx.x//2", "threadIdx.x - threadIdx.x % 4"])
def test_elements_of_tables_at_other_indices_are_others(index: str) -> None:
    assert not verify(parse_kernel(TABLE.replace("A of", f"{index} of"))).is_proved


REGISTERS = """\
KERNEL k(x: float32[8, 4], t: int32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (1, 1, 1)
  LOCAL s: float32[8]
  DEFINE s: float32[8] over (8, 4) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[8] = pick(s[i0] if clamp(t[i0 of 8], 0, 8) < 3, otherwise 0.0)

FOR j in 0..8 UNROLL:
  s[j] = copy(0.0)  ~ start s
  FOR i1 in 0..select(clamp(t[j of 8], 0, 8) < 3, 4, 0):
    s[j] = add(s[j], x[j, i1])  ~ term s[j, i1]
FOR i0 in 0..8 UNROLL:
  y[i0] = pick(s[i0] if clamp(t[i0 of 8], 0, 8) < 3, otherwise 0.0)  ~ value y[i0]
"""


def test_registers_are_summed_up_where_they_are_read() -> None:
    verify(parse_kernel(REGISTERS)).require()
    for wrong in (REGISTERS.replace("(t[j of 8], 0, 8) < 3", "(t[7 - j of 8], 0, 8) < 3"), REGISTERS.replace("(t[j of 8], 0, 8) < 3", "(t[j of 8], 0, 8) < 2")):
        assert not verify(parse_kernel(wrong)).is_proved


def test_conditions_of_reads_are_said_over_digits() -> None:
    digits = UNREAD.replace(
        "s: float32[8] over (8, 4) at (i0) = reduce add of copy(x[i0, i1])",
        "s: float32[4, 2] over (4, 2, 4) at (i0, i1) = reduce add of copy(x[2*i0 + i1, i2])",
    )
    digits = digits.replace(
        "y: float32[8] = pick(s[i0] if i0 < clamp(t[0 of 8], 0, 8)", "y: float32[4, 2] = pick(s[i0, i1] if clamp(t[2*i0 + i1 of 8], 0, 8) < 3"
    )
    digits = digits.replace("-> (y: float32[8])", "-> (y: float32[4, 2])").replace(
        "threadIdx.x < clamp(t[0 of 8], 0, 8)", "clamp(t[threadIdx.x of 8], 0, 8) < 3"
    )
    digits = digits.replace("term s[threadIdx.x,", "term s[threadIdx.x//2, threadIdx.x % 2,").replace(
        "value s[threadIdx.x]", "value s[threadIdx.x//2, threadIdx.x % 2]"
    )
    digits = digits.replace("value y[threadIdx.x]", "value y[threadIdx.x//2, threadIdx.x % 2]").replace(
        "\ny[threadIdx.x]", "\ny[threadIdx.x//2, threadIdx.x % 2]"
    )
    verify(parse_kernel(digits)).require()
    assert not verify(parse_kernel(digits.replace("select(clamp(t[threadIdx.x of", "select(clamp(t[threadIdx.x//2 of"))).is_proved


ROWS = """\
KERNEL k(x: float32[N, K], q: float32[n]) -> (y: float32[N])
  DIM N min 1, K, n
  GRID (N, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[1] align 16
  LOCAL s.acc: float32[]
  DEFINE s: float32[N] over (N, K) at (i0) = reduce add of copy(x[i0, i1]) from 0.0
  DEFINE y: float32[N] = pick(s[i0] if i0 < n, otherwise 0.0)

IF threadIdx.x == 0:
  IF blockIdx.x < n:
    s.acc = copy(0.0)  ~ start s
  FOR j in 0..select(blockIdx.x < n, K, 0):
    s.acc = add(s.acc, x[blockIdx.x, j])  ~ term s[blockIdx.x, j]
  IF blockIdx.x < n:
    s[0] = copy(s.acc)  ~ value s[blockIdx.x]
  y[blockIdx.x] = pick(s[0] if blockIdx.x < n, otherwise 0.0)  ~ value y[blockIdx.x]
"""
START = "  IF blockIdx.x < n:\n    s.acc = copy(0.0)  ~ start s\n"
STORE = "    s[0] = copy(s.acc)  ~ value s[blockIdx.x]\n"


def test_rows_that_are_read_for_all_extents() -> None:
    verify(parse_kernel(ROWS)).require()
    verify(parse_kernel(ROWS.replace(START, "  s.acc = copy(0.0)  ~ start s\n"))).require()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (START, START.replace("x < n", "x + 1 < n")),
        (START, START.replace("x < n", "x + 1 < n") + "  ELSE:\n    s.acc = copy(1.0)  ~ start s\n"),
        ("select(blockIdx.x < n", "select(blockIdx.x + 1 < n"),
        (STORE, "    s[0] = copy(3.0)  ~ value s[blockIdx.x + n]\n"),
        (STORE, STORE + "    s[0] = copy(3.0)  ~ value s[blockIdx.x + n]\n"),
        (STORE, STORE + "  IF blockIdx.x + 1 >= n:\n    s[0] = copy(7.0)  ~ value s[blockIdx.x]\n"),
        (STORE, f"    IF blockIdx.x + n < N && K > 0:\n      s.acc = add(s.acc, x[blockIdx.x + n, 0])  ~ term s[blockIdx.x + n, 0]\n{STORE}"),
        (STORE, f"    IF blockIdx.x == 1:\n      s.acc = copy(0.0)  ~ start s\n{STORE}"),
    ],
)
def test_nothing_of_a_row_that_nobody_reads_is_taken_for_one_that_somebody_reads(old: str, new: str) -> None:
    assert old in ROWS
    certificate = verify(parse_kernel(ROWS.replace(old, new)))
    assert not certificate.is_proved
    assert certificate.open_layers <= {Layer.VALUES, Layer.INSTANCE}
