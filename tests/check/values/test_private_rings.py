"""Values in rings that a role fills ahead for itself: each position that is read was filled; where nothing is read, nothing need be."""

from collections.abc import Callable

import pytest

from taskfuse.check import Verdict
from taskfuse.kir import parse_kernel
from taskfuse.testing.case import seeded_case
from taskfuse.testing.options import Mix

AHEAD = """\
KERNEL ahead(x: float32[{n}]) -> (y: float32[{n}])
  GRID (1, 1, 1)  BLOCK (1, 8, 1)
  SHARED s: float32[4, 8] align 16
  DEFINE t: float32[{n}] = copy(x[i0])
  DEFINE y: float32[{n}] = exp(t[i0])

c = CURSOR(slots 4, slot 0, parity 0)
FOR p in 0..3 UNROLL:
  IF {first} && threadIdx.y < 1:
    s[(p + c.slot) % 4, threadIdx.y] = copy(x[p + 8*threadIdx.y])  ~ value t[p + 8*threadIdx.y]
FOR i in 0..8:
  IF {more}:
    s[(c.slot + 3) % 4, threadIdx.y] = copy(x[i + 8*threadIdx.y + 3])  ~ value t[i + 8*threadIdx.y + 3]
  IF {used} && threadIdx.y < 1:
    y[i + 8*threadIdx.y] = exp(s[c.slot, threadIdx.y])  ~ value y[i + 8*threadIdx.y]
  c.advance(1)
"""
NEVER = "i < 0"


def ahead(n: int, first: str = "", more: str = NEVER, used: str = "") -> str:
    """Three positions ahead, of ``n`` elements in eight trips."""
    end = f"8*threadIdx.y < {n}"
    return AHEAD.format(n=n, first=first or f"p + {end}", more=more, used=used or f"i + {end}")


def gathered(n: int, first: str = "") -> str:
    """What is read from the ring says where to look."""
    text = ahead(n, first).replace("x: float32", "z: float32[1], x: int32").replace("s: float32", "s: int32").replace("t: float32", "t: int32")
    text = text.replace("= exp(t[i0])", "= find z[v0] at t[i0] of 1")
    return text.replace("y[i + 8*threadIdx.y] = exp(s[c.slot, threadIdx.y])", "GATHER y[i + 8*threadIdx.y] <- z[v] at v = s[c.slot, threadIdx.y] of 1")


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("text", [ahead, gathered])
def test_what_is_filled_in_front_may_be_all_there_is(n: int, text: Callable[[int], str]) -> None:
    parse_kernel(text(n)).verify().require()


def test_a_gather_at_a_position_that_nobody_fills() -> None:
    certificate = parse_kernel(gathered(2, "p + 8*threadIdx.y < 1")).verify()
    assert certificate.verdict is Verdict.REFUTED


def test_what_is_filled_in_the_loop() -> None:
    parse_kernel(ahead(5, more="i + 8*threadIdx.y + 3 < 5 && threadIdx.y < 1")).verify().require()


@pytest.mark.parametrize(
    ("n", "first", "more", "lacking"),
    [
        (1, "p + 8*threadIdx.y < 1 && p != 0", NEVER, "[0]"),
        (2, "p + 8*threadIdx.y < 1", NEVER, "[1]"),
        (3, "p + 8*threadIdx.y < 3 && p != 1", NEVER, "[1]"),
        (4, "", NEVER, "[3]"),
        (5, "", "i + 8*threadIdx.y + 3 < 4 && threadIdx.y < 1", "[4]"),
    ],
)
def test_a_position_that_nobody_fills(n: int, first: str, more: str, lacking: str) -> None:
    certificate = parse_kernel(ahead(n, first, more)).verify()
    assert certificate.verdict is Verdict.REFUTED
    assert any(lacking in f.subject or lacking in f.reason for f in certificate.failures if f.verdict is Verdict.REFUTED)


def test_a_ring_of_rows_of_which_one_exists() -> None:
    kernel = seeded_case(500062, Mix.ROWS).kernel
    assert kernel is not None
    kernel.verify().require()


TWO = """\
KERNEL two(x: float32[9, 32], z: float32[7, 32]) -> (y: float32[9, 32], u: float32[7, 32])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[2, 32] align 16
  DEFINE t: float32[9, 32] = exp(x[i0, i1])
  DEFINE y: float32[9, 32] = copy(t[i0, 31 - i1])
  DEFINE v: float32[7, 32] = sin(z[i0, i1])
  DEFINE u: float32[7, 32] = copy(v[i0, 31 - i1])

c = CURSOR(slots 2, slot 0, parity 0)
d = CURSOR(slots 2, slot 0, parity 0)
FOR i in 0..9:
  s[c.slot, threadIdx.x] = exp(x[i, threadIdx.x])  ~ value t[i, threadIdx.x]
  SYNC block
  y[i, threadIdx.x] = copy(s[c.slot, 31 - threadIdx.x])  ~ value y[i, threadIdx.x]
  c.advance(1)
SYNC block
FOR j in 0..7:
  s[d.slot, threadIdx.x] = sin(z[j, threadIdx.x])  ~ value v[j, threadIdx.x]
  SYNC block
  u[j, threadIdx.x] = copy(s[d.slot, 31 - threadIdx.x])  ~ value u[j, threadIdx.x]
  d.advance(1)
"""
BETWEEN = "  s[0, threadIdx.x] = sin(z[0, threadIdx.x])  ~ value v[0, threadIdx.x]\n  SYNC block\n"


def test_storage_that_another_ring_takes_later() -> None:
    parse_kernel(TWO).verify().require()


@pytest.mark.parametrize("read", ["  y[i", "  u[j"])
def test_storage_that_is_written_between_a_write_and_its_read(read: str) -> None:
    certificate = parse_kernel(TWO.replace(read, BETWEEN + read, 1)).verify()
    assert not certificate.is_proved


def test_another_ring_without_a_barrier_between_the_two() -> None:
    assert not parse_kernel(TWO.replace("  c.advance(1)\nSYNC block\n", "  c.advance(1)\n")).verify().is_proved


OVER = """\
KERNEL over(x: float32[N, 32]) -> (y: float32[N, 32], z: float32[32])
  DIM N min 2
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[3, 32] align 16 @ 0
  SHARED o: float32[32] align 16 @ 0
  DEFINE t: float32[N, 32] = copy(x[i0, i1])
  DEFINE y: float32[N, 32] = exp(t[i0, i1])
  DEFINE u: float32[32] = copy(x[1, i0])
  DEFINE z: float32[32] = exp(u[i0])

c = CURSOR(slots 3, slot 0, parity 0)
BEFORE
FOR p in 0..2 UNROLL:
  FILLING
  s[(p + c.slot) % 3, threadIdx.x] = copy(x[p, threadIdx.x])  ~ value t[p, threadIdx.x]
BETWEEN
FOR i in 0..N:
  WITHIN
  IF i + 2 < N:
    s[(c.slot + 2) % 3, threadIdx.x] = copy(x[i + 2, threadIdx.x])  ~ value t[i + 2, threadIdx.x]
  y[i, threadIdx.x] = exp(s[c.slot, threadIdx.x])  ~ value y[i, threadIdx.x]
  c.advance(1)
AFTER
"""


def over(where: str) -> str:
    """A ring of which the first slot lies on another buffer, which is used in one place."""
    text = OVER
    for place in ("BEFORE", "FILLING", "BETWEEN", "WITHIN", "AFTER"):
        indent = "  " if place in ("FILLING", "WITHIN") else ""
        use = ["o[threadIdx.x] = copy(x[1, threadIdx.x])  ~ value u[threadIdx.x]", "z[threadIdx.x] = exp(o[threadIdx.x])  ~ value z[threadIdx.x]"]
        lines = ["SYNC block", *use, "SYNC block"]
        text = text.replace(f"{indent}{place}\n", "".join(f"{indent}{line}\n" for line in lines) if place == where else "")
    return text


@pytest.mark.parametrize("where", ["BEFORE", "AFTER"])
def test_another_buffer_may_lie_on_a_ring_before_and_after_its_use(where: str) -> None:
    parse_kernel(over(where)).verify().require()


@pytest.mark.parametrize("where", ["FILLING", "BETWEEN", "WITHIN"])
def test_another_buffer_must_not_be_written_between_a_fill_and_its_read(where: str) -> None:
    assert parse_kernel(over(where)).verify().verdict is Verdict.REFUTED
