"""Order between roles: an array that one role reads ahead through a ring, and another overwrites behind it."""

from __future__ import annotations

import pytest

import taskfuse as tf
from taskfuse.reports.certificate import Verdict

THREE_ROLES = """\
KERNEL stream(x: float32[N, 32]) -> (y: float32[N, 32] into x)
  DIM N
  TENSORMAP x.map = x box (1, 32) swizzle 0
  GRID (2, 1, 1)  BLOCK (32, 3, 1)
  SHARED s: float32[2, 32] align 128 @ 0
  SHARED t: float32[2, 32] align 128 @ 256
  MBARRIER full[2], empty[2], filled[2], free[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 1
    INIT empty[i] count 32
    INIT filled[i] count 32
    INIT free[i] count 32
  FENCE mbarrier_init
SYNC block
IF threadIdx.y == 0:  # load
  p = CURSOR(slots 2, slot 0, parity 1)
  IF threadIdx.x == 0:
    FOR k in 0..ceildiv(N - blockIdx.x, 2):
      WAIT empty[p.slot] parity p.parity
      EXPECT full[p.slot] bytes 128
      TMA s[p.slot, 0] <- x.map(blockIdx.x + 2*k, 0) on full[p.slot]
      p.advance(1)
ELSE IF threadIdx.y == 1:  # compute
  c = CURSOR(slots 2, slot 0, parity 0)
  q = CURSOR(slots 2, slot 0, parity 1)
  FOR k in 0..ceildiv(N - blockIdx.x, 2):
    WAIT full[c.slot] parity c.parity
    WAIT free[q.slot] parity q.parity
    t[q.slot, threadIdx.x] = exp(s[c.slot, threadIdx.x])
    ARRIVE filled[q.slot]
    q.advance(1)
    ARRIVE empty[c.slot]
    c.advance(1)
ELSE IF threadIdx.y == 2:  # store
  d = CURSOR(slots 2, slot 0, parity 0)
  FOR k in 0..ceildiv(N - blockIdx.x, 2):
    WAIT filled[d.slot] parity d.parity
    y[blockIdx.x + 2*k, threadIdx.x] = copy(t[d.slot, threadIdx.x])
    ARRIVE free[d.slot]
    d.advance(1)
"""
"""The copy engine reads a row; another role computes, a third one stores: two rings between the read and the write."""

TWO_PASSES = """\
KERNEL passes(x: float32[N, T, 32]) -> (y: float32[N, T, 32] into x)
  DIM N, T
  TENSORMAP x.map = x box (1, 1, 32) swizzle 0
  GRID (2, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[3, 32] align 128 @ 0
  LOCAL a: float32[]
  MBARRIER full[3], empty[3]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..3:
    INIT full[i] count 1
    INIT empty[i] count 32
  FENCE mbarrier_init
SYNC block
IF threadIdx.y == 0 && threadIdx.x == 0:  # load
  p = CURSOR(slots 3, slot 0, parity 1)
  FOR k in 0..ceildiv(N - blockIdx.x, 2):
    FOR pass in 0..2:
      FOR j in 0..T:
        WAIT empty[p.slot] parity p.parity
        EXPECT full[p.slot] bytes 128
        TMA s[p.slot, 0] <- x.map(blockIdx.x + 2*k, j, 0) on full[p.slot]
        p.advance(1)
ELSE IF threadIdx.y == 1:  # compute
  c = CURSOR(slots 3, slot 0, parity 0)
  FOR k in 0..ceildiv(N - blockIdx.x, 2):
    a = copy(0.0)
    FOR pass in 0..2:
      FOR j in 0..T:
        WAIT full[c.slot] parity c.parity
        a = add(a, s[c.slot, threadIdx.x])
        ARRIVE empty[c.slot]
        c.advance(1)
    FOR j in 0..T:
      y[blockIdx.x + 2*k, j, threadIdx.x] = copy(a)
"""
"""A row is read twice in chunks, then overwritten: the loops over passes and chunks are over by then."""

COPIES = """\
KERNEL copies(x: float32[N, 32]) -> (y: float32[N, 32] into x)
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 16
  MBARRIER full[2], empty[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 32
    INIT empty[i] count 32
SYNC block
IF threadIdx.y == 0:  # load
  p = CURSOR(slots 2, slot 0, parity 1)
  FOR k in 0..N:
    WAIT empty[p.slot] parity p.parity
    COPY.async s[p.slot, threadIdx.x] <- x[k, threadIdx.x] width 1
    ARRIVE.async full[p.slot]
    p.advance(1)
ELSE IF threadIdx.y == 1:  # compute
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR k in 0..N:
    WAIT full[c.slot] parity c.parity
    y[k, threadIdx.x] = exp(s[c.slot, threadIdx.x])
    ARRIVE empty[c.slot]
    c.advance(1)
"""
"""Asynchronous copies read; the arrival that waits for them hands the row over."""


def replaced(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


STORE = "    y[blockIdx.x + 2*k, threadIdx.x] = copy(t[d.slot, threadIdx.x])\n"
COMPUTE = "    t[q.slot, threadIdx.x] = exp(s[c.slot, threadIdx.x])\n    ARRIVE filled[q.slot]\n    q.advance(1)\n"
WRITE = "    FOR j in 0..T:\n      y[blockIdx.x + 2*k, j, threadIdx.x] = copy(a)\n"
GOOD = {
    "three roles": THREE_ROLES,
    "stored after the slot is given back": replaced(
        THREE_ROLES, (STORE, ""), ("    d.advance(1)\n", "    d.advance(1)\n" + STORE.replace("copy(t[d.slot, threadIdx.x])", "copy(1.0)"))
    ),
    "of one slot": THREE_ROLES.replace("[2, 32] align", "[1, 32] align").replace("[2]", "[1]").replace("slots 2", "slots 1").replace("0..2:", "0..1:"),
    "two passes": TWO_PASSES,
    "asynchronous copies": COPIES,
    "elements in another order": replaced(COPIES, ("y[k, threadIdx.x]", "y[k, 31 - threadIdx.x]")),
}
BAD = {
    "the next row": replaced(THREE_ROLES, (STORE, "    IF blockIdx.x + 2*k + 2 < N:\n  " + STORE.replace("y[blockIdx.x + 2*k,", "y[blockIdx.x + 2*k + 2,"))),
    "rows in the other order": replaced(THREE_ROLES, ("y[blockIdx.x + 2*k,", "y[2*ceildiv(N - blockIdx.x, 2) - 2 - 2*k + blockIdx.x,")),
    "stored before the wait": replaced(THREE_ROLES, (STORE, ""), ("    WAIT filled", STORE.replace("t[d.slot, threadIdx.x]", "1.0") + "    WAIT filled")),
    "handed on before the wait": replaced(
        THREE_ROLES,
        (COMPUTE, ""),
        (
            "    WAIT full[c.slot] parity c.parity\n    WAIT free[q.slot] parity q.parity\n",
            "    WAIT free[q.slot] parity q.parity\n" + COMPUTE.replace("s[c.slot, threadIdx.x]", "1.0") + "    WAIT full[c.slot] parity c.parity\n",
        ),
    ),
    "before the second pass": replaced(
        TWO_PASSES,
        (WRITE, ""),
        (
            "        ARRIVE empty[c.slot]\n        c.advance(1)\n",
            "        ARRIVE empty[c.slot]\n        c.advance(1)\n        y[blockIdx.x + 2*k, j, threadIdx.x] = copy(a)\n",
        ),
    ),
    "before both passes": replaced(TWO_PASSES, (WRITE, ""), ("    a = copy(0.0)\n", "    a = copy(0.0)\n" + WRITE)),
    "an arrival that does not wait for copies": replaced(COPIES, ("ARRIVE.async", "ARRIVE")),
}


def open_reasons(text: str) -> set[str]:
    return {o.reason for o in tf.parse_kernel(text).verify().argument if o.verdict is not Verdict.PROVED}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_written_behind_the_wait_for_its_read_is_proved(name: str) -> None:
    assert tf.parse_kernel(GOOD[name]).verify().is_proved


@pytest.mark.parametrize("name", BAD)
def test_what_may_be_written_before_its_read_is_refuted(name: str) -> None:
    certificate = tf.parse_kernel(BAD[name]).verify()
    assert not certificate.is_proved
    assert certificate.verdict is Verdict.REFUTED
    assert any(o.subject in ("x", "s") for o in certificate.argument if o.verdict is not Verdict.PROVED)


def test_a_wait_in_one_of_two_arms_shows_nothing() -> None:
    """Of two places in which a consumer visits a position, the one that is passed may be the other one."""
    loop = "    WAIT full[c.slot] parity c.parity\n    y[k, threadIdx.x] = exp(s[c.slot, threadIdx.x])\n    ARRIVE empty[c.slot]\n    c.advance(1)\n"
    arm = "      WAIT full[c.slot] parity c.parity\n      a = copy(s[c.slot, threadIdx.x])\n      ARRIVE empty[c.slot]\n      c.advance(1)\n"
    written = "    y[k, threadIdx.x] = copy(a)\n"
    text = replaced(COPIES, ("  MBARRIER", "  LOCAL a: float32[]\n  MBARRIER"), (loop, f"    IF k % 2 == 0:\n{arm}    ELSE:\n{arm}{written}"))
    assert open_reasons(text) == {"they stand in different arms, and nothing orders them"}  # though it is right


def test_a_row_that_another_block_writes_is_not_ordered() -> None:
    """A ring orders what threads of its block do."""
    text = replaced(THREE_ROLES, ("x.map(blockIdx.x + 2*k,", "x.map(2*k + 1 - blockIdx.x,"))
    assert open_reasons(text) == {"they stand in different arms, and nothing orders them"}
