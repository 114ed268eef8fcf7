"""Order that takes more than one meeting, and slots without a cursor in the index: right kernels are proved, and each mistake in them is refuted."""

import pytest

from taskfuse.check import Verdict
from taskfuse.kir import parse_kernel
from tests.lowering.over_clusters import ACQUIRE_IN_BLOCK, NOT_AFTER, NOT_BEFORE, ONE_SLOT, RELEASE_IN_BLOCK, SOMETIMES, TOO_FEW, meet

GRID = """\
KERNEL grid(x: float32[4, 64]) -> (y: float32[4, 64])
  GRID (4, 1, 1)  BLOCK (64, 1, 1)
  GLOBAL w: float32[4, 64] align 16
  COUNTER g

w[blockIdx.x, threadIdx.x] = mul(x[blockIdx.x, threadIdx.x], 2.0)
SYNC block
IF threadIdx.x < 32:
  SYNC grid g, 128
SYNC block
y[blockIdx.x, threadIdx.x] = copy(w[3 - blockIdx.x, 63 - threadIdx.x])
"""
GRID_LOOP = """\
KERNEL grid(x: float32[4, 64]) -> (y: float32[4, 64])
  DIM N
  GRID (4, 1, 1)  BLOCK (64, 1, 1)
  GLOBAL w: float32[4, 64] align 16
  COUNTER g

FOR k in 0..N:
  w[blockIdx.x, threadIdx.x] = mul(x[blockIdx.x, threadIdx.x], 2.0)
  SYNC block
  IF threadIdx.x < 32:
    SYNC grid g, 128
  SYNC block
  y[blockIdx.x, threadIdx.x] = copy(w[3 - blockIdx.x, 63 - threadIdx.x])
  SYNC block
  IF threadIdx.x < 32:
    SYNC grid g, 128
  SYNC block
"""
ONCE = """\
KERNEL once(x: float32[32]) -> (y: float32[32])
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[32] align 128
  MBARRIER go[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT go[0] count 32
SYNC block
IF threadIdx.y == 0:
  s[threadIdx.x] = mul(x[threadIdx.x], 2.0)
  ARRIVE go[0]
ELSE:
  WAIT go[0] parity 0
  y[threadIdx.x] = copy(s[31 - threadIdx.x])
"""
WRITE, READ = "  s[threadIdx.x] = mul(x[threadIdx.x], 2.0)\n", "  y[threadIdx.x] = copy(s[31 - threadIdx.x])\n"
ARRIVE, WAIT = "  ARRIVE go[0]\n", "  WAIT go[0] parity 0\n"
LANE = {
    "count 32": "count 1",
    ARRIVE: "  SYNC warp\n  IF threadIdx.x == 0:\n    ARRIVE go[0]\n",
    WAIT: "  IF threadIdx.x == 0:\n    WAIT go[0] parity 0\n  SYNC warp\n",
}
TRIPS = {
    "float32[32] align": "float32[128] align",
    WRITE: "  FOR k in 0..4:\n    s[32*k + threadIdx.x] = mul(x[threadIdx.x], 2.0)\n",
    READ: "  y[threadIdx.x] = copy(s[127 - threadIdx.x])\n",
}
BULK = {
    "  GRID": "  TENSORMAP m = y box (32) swizzle 0\n  GRID",
    ARRIVE: "  FENCE proxy.async\n  ARRIVE go[0]\n",
    "ELSE:": "ELSE IF threadIdx.x == 0 && threadIdx.y == 1:",
    READ: "  TMA m(0) <- s[0]\n  COMMIT bulk\n  WAIT_GROUP bulk <= 0\n",
}
COPIES = {WRITE: "  COPY.async s[threadIdx.x] <- x[threadIdx.x] width 1\n", ARRIVE: "  ARRIVE.async go[0]\n"}
ONE = """\
KERNEL ring(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[1, 32] align 128
  MBARRIER full[1], empty[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT full[0] count 32
  INIT empty[0] count 32
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots 1, slot 0, parity 1)
  FOR k in 0..N:
    WAIT empty[0] parity p.parity
    s[0, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)
    ARRIVE full[0]
    p.advance(1)
ELSE:
  c = CURSOR(slots 1, slot 0, parity 0)
  FOR k in 0..N:
    WAIT full[0] parity c.parity
    y[k, threadIdx.x] = copy(s[0, 31 - threadIdx.x])
    ARRIVE empty[0]
    c.advance(1)
"""
FULL, EMPTY = "    ARRIVE full[0]\n", "    ARRIVE empty[0]\n"
FILL, USE = "    s[0, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)\n", "    y[k, threadIdx.x] = copy(s[0, 31 - threadIdx.x])\n"
FLAT = {"s: float32[1, 32]": "s: float32[32]", "s[0, ": "s["}
MIXED = {"WAIT full[0]": "WAIT full[c.slot]", "s[0, 31": "s[c.slot, 31"}
LOADS = {
    "  GRID": "  TENSORMAP m = x box (1, 32) swizzle 0\n  GRID",
    "INIT full[0] count 32": "INIT full[0] count 1",
    "SYNC block": "IF threadIdx.x == 0 && threadIdx.y == 0:\n  FENCE mbarrier_init\nSYNC block",
    "IF threadIdx.y == 0:\n": "IF threadIdx.y == 0 && threadIdx.x == 0:\n",
    "ELSE:": "ELSE IF threadIdx.y == 1:",
    FILL: "    EXPECT full[0] bytes 128\n",
    FULL: "    TMA s[0, 0] <- m(k, 0) on full[0]\n",
}
CHAIN = """\
KERNEL chain(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 3, 1)
  SHARED s: float32[1, 32] align 16
  SHARED t: float32[1, 32] align 16
  MBARRIER fs[1], es[1], ft[1], et[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT fs[0] count 32
  INIT es[0] count 32
  INIT ft[0] count 32
  INIT et[0] count 32
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots 1, slot 0, parity 1)
  FOR k in 0..N:
    WAIT es[0] parity p.parity
    s[0, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)
    ARRIVE fs[0]
    p.advance(1)
ELSE IF threadIdx.y == 1:
  c = CURSOR(slots 1, slot 0, parity 0)
  q = CURSOR(slots 1, slot 0, parity 1)
  FOR k in 0..N:
    WAIT fs[0] parity c.parity
    WAIT et[0] parity q.parity
    t[0, threadIdx.x] = mul(s[0, 31 - threadIdx.x], 2.0)
    ARRIVE es[0]
    ARRIVE ft[0]
    c.advance(1)
    q.advance(1)
ELSE:
  d = CURSOR(slots 1, slot 0, parity 0)
  FOR k in 0..N:
    WAIT ft[0] parity d.parity
    y[k, threadIdx.x] = copy(t[0, 31 - threadIdx.x])
    ARRIVE et[0]
    d.advance(1)
"""
NAMES = """\
KERNEL ring(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[2, 32] align 16 @ 0
  SHARED t: float32[2, 4, 8] align 16 @ 0
  MBARRIER full[2], empty[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR i in 0..2:
    INIT full[i] count 32
    INIT empty[i] count 32
SYNC block
IF threadIdx.y == 0:
  p = CURSOR(slots 2, slot 0, parity 1)
  FOR k in 0..N:
    WAIT empty[p.slot] parity p.parity
    s[p.slot, threadIdx.x] = mul(x[k, threadIdx.x], 2.0)
    ARRIVE full[p.slot]
    p.advance(1)
ELSE:
  c = CURSOR(slots 2, slot 0, parity 0)
  FOR k in 0..N:
    WAIT full[c.slot] parity c.parity
    y[k, threadIdx.x] = copy(t[c.slot, 3 - threadIdx.x//8, threadIdx.x % 8])
    ARRIVE empty[c.slot]
    c.advance(1)
"""
T_USE = "    y[k, threadIdx.x] = copy(t[c.slot, 3 - threadIdx.x//8, threadIdx.x % 8])\n"

RIGHT: dict[str, tuple[str, dict[str, str]]] = {
    "a warp meets the grid": (GRID, {}),
    "a thread meets the grid": (GRID, {"IF threadIdx.x < 32": "IF threadIdx.x == 0", "g, 128": "g, 4"}),
    "a warp meets the grid in each trip": (GRID_LOOP, {}),
    "an mbarrier that completes once": (ONCE, {}),
    "one lane arrives, one waits": (ONCE, LANE),
    "data of a loop": (ONCE, TRIPS),
    "a bulk store waits": (ONCE, BULK),
    "copies arrive": (ONCE, COPIES),
    "a slot by the constant 0": (ONE, {}),
    "a slot without an axis": (ONE, FLAT),
    "a slot by 0 and by a cursor": (ONE, MIXED),
    "a slot that bulk loads fill": (ONE, LOADS),
    "two rings of one slot": (CHAIN, {}),
    "a second name": (NAMES, {}),
}
RACE = "race: nothing orders"
WRONG: dict[str, tuple[str, dict[str, str], str]] = {
    "no barrier before that of the grid": (GRID, {"2.0)\nSYNC block\n": "2.0)\n"}, RACE),
    "no barrier behind that of the grid": (GRID, {"128\nSYNC block\n": "128\n"}, RACE),
    "the next trip is not ordered": (GRID_LOOP, {"63 - threadIdx.x])\n  SYNC block\n": "63 - threadIdx.x])\n"}, RACE),
    "it writes after it arrives": (ONCE, {WRITE: "", ARRIVE: ARRIVE + WRITE}, RACE),
    "it reads before it waits": (ONCE, {WAIT: "", READ: READ + WAIT}, RACE),
    "half of the readers wait": (ONCE, {WAIT: "  IF threadIdx.x < 16:\n  " + WAIT}, RACE),
    "half of the writers arrive": (ONCE, {"count 32": "count 16", ARRIVE: "  IF threadIdx.x < 16:\n  " + ARRIVE}, RACE),
    "a lane arrives that nobody met": (ONCE, LANE | {ARRIVE: "  IF threadIdx.x == 0:\n  " + ARRIVE}, RACE),
    "a lane waits that nobody meets": (ONCE, LANE | {WAIT: "  IF threadIdx.x == 0:\n  " + WAIT}, RACE),
    "a bulk store without a fence": (ONCE, BULK | {ARRIVE: ARRIVE}, "an asynchronous engine sees what a thread wrote"),
    "an arrival that does not wait for copies": (ONCE, COPIES | {ARRIVE: ARRIVE}, RACE),
    "it fills the slot after it arrives": (ONE, {FILL: "", FULL: FULL + FILL}, RACE),
    "it reads the slot after its release": (ONE, {USE: "", EMPTY: EMPTY + USE}, RACE),
    "other rows": (NAMES, {"t: float32[2, 4, 8] align 16 @ 0": "t: float32[2, 4, 8] align 16 @ 64"}, RACE),
    "rows of another size": (
        NAMES,
        {"t: float32[2, 4, 8]": "t: float32[2, 4, 4]", "3 - threadIdx.x//8, threadIdx.x % 8": "3 - threadIdx.x//8, threadIdx.x//8"},
        RACE,
    ),
    "a second name behind the release": (NAMES, {T_USE: "", "    ARRIVE empty[c.slot]\n": "    ARRIVE empty[c.slot]\n" + T_USE}, RACE),
}


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("name", RIGHT)
def test_it_is_proved(name: str) -> None:
    kernel = parse_kernel(changed(*RIGHT[name]))
    kernel.check_ir()
    kernel.verify().require()


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refuted(name: str) -> None:
    text, changes, reason = WRONG[name]
    certificate = parse_kernel(changed(text, changes)).verify()
    assert certificate.verdict is Verdict.REFUTED
    assert certificate.failures[0].reason.startswith(reason)


def test_other_blocks_have_mbarriers_of_their_own() -> None:
    text = ONCE.replace("GRID (1", "GRID (2").replace("SHARED s", "GLOBAL s")
    assert "they stand in different arms, and nothing orders them" in [o.reason for o in parse_kernel(text).verify().failures]


def test_an_array_of_rings_is_no_single_slot() -> None:
    """A constant 0 in an array of two mbarriers says nothing about cursors."""
    text = ONE.replace("full[1], empty[1]", "full[2], empty[1]").replace("  INIT full[0] count 32\n", "  FOR i in 0..2:\n    INIT full[i] count 32\n")
    assert not parse_kernel(text).verify().is_proved


def test_all_threads_of_a_cluster_meet_through_one_of_each_block() -> None:
    certificate = meet().verify()
    assert certificate.verdict is Verdict.PROVED, certificate


@pytest.mark.parametrize("change", [NOT_BEFORE, NOT_AFTER, TOO_FEW, SOMETIMES])
def test_what_keeps_the_threads_of_a_cluster_apart(change: tuple[str, str]) -> None:
    assert meet(change).verify().verdict is Verdict.REFUTED


def test_rounds_take_turns_between_two_slots() -> None:
    """A thread that is a round ahead would arrive in the round of others."""
    assert meet(ONE_SLOT).verify().verdict is Verdict.OUTSIDE


@pytest.mark.parametrize("change", [RELEASE_IN_BLOCK, ACQUIRE_IN_BLOCK])
def test_at_the_scope_of_a_block_nothing_is_published(change: tuple[str, str]) -> None:
    certificate = meet(change).verify()
    assert certificate.verdict is Verdict.OUTSIDE
    assert any("at the scope of a block orders nothing that threads of other blocks store" in o.reason for o in certificate.argument)


LOADED = """\
KERNEL loaded(x: float32[32]) -> (y: float32[64])
  TENSORMAP m = x box (32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  SHARED s: float32[32] align 128
  MBARRIER b[1]

IF threadIdx.x == 0 && threadIdx.y == 0:
  INIT b[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0 && threadIdx.y == 0:
  EXPECT b[0] bytes 128
  TMA s[0] <- m(0) on b[0]
IF threadIdx.y == 0:
  WAIT b[0] parity 0
SYNC block
y[threadIdx.x + 32*threadIdx.y] = copy(s[threadIdx.x])
"""


def test_one_warp_waits_for_a_load_and_a_barrier_tells_the_other() -> None:
    parse_kernel(LOADED).verify().require()
    alone = parse_kernel(LOADED.replace("SYNC block\ny[", "y[")).verify()
    assert alone.verdict is Verdict.REFUTED
    assert alone.failures[0].reason == "race: nothing orders a read and a write of one element"
