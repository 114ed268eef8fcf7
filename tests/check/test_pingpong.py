"""Instances that take turns at a ring: unequal numbers of slots, releases behind the turn, and what goes wrong with them."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from examples import gemm_pingpong
from taskfuse.check import Verdict, verify
from taskfuse.kir import Kernel, parse_kernel, specialized
from taskfuse.lowering import lower
from taskfuse.testing.faults import OPERATORS
from taskfuse.testing.outcomes import is_valid, misbehaves

KERNELS = Path(__file__).parent.parent / "kernels"
TILES = ("gemm_tiles", "gemm_pingpong")

HEAD = """\
KERNEL pong(x: float32[R, K, 32]) -> (y: float32[R, K, 32])
  DIM R, K
  GRID (1, 1, 1)  BLOCK (32, LAST, 1)
  SHARED s: float32[SLOTS, 32] align 16
  MBARRIER full[SLOTS], empty[SLOTS], order[COUNT]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR n in 0..SLOTS:
    INIT full[n] count 32
    INIT empty[n] count 32
  FOR n in 0..COUNT:
    INIT order[n] count 32
SYNC block  # the mbarriers are initialized
IF threadIdx.y == 0:  # producer
  p = CURSOR(slots SLOTS, slot 0, parity 1)
  FOR i in 0..ceildiv(R, COUNT):
    FOR v in 0..COUNT:
      FOR k in 0..select(COUNT*i + v < R, K, 0):
        WAIT empty[p.slot] parity p.parity
        s[p.slot, threadIdx.x] = copy(x[COUNT*i + v, k, threadIdx.x])
        ARRIVE full[p.slot]
        p.advance(1)
ELSE IF threadIdx.y >= 1:  # consumer
  c = CURSOR(slots SLOTS, slot 0, parity 0)
  r = CURSOR(slots SLOTS, slot 0, parity 0)
  t = CURSOR(slots 1, slot 0, parity 0)
  FOR i in 0..ceildiv(R, COUNT):
    r.advance(SKIP)
    c.advance(SKIP)
    WAIT order[threadIdx.y - 1] parity xor(t.parity, threadIdx.y - 1 == 0)
    FOR k in 0..MINE:
      WAIT full[c.slot] parity c.parity
      y[COUNT*i + threadIdx.y - 1, k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)
      IF k >= LAG:
        ARRIVE empty[r.slot]
        r.advance(1)
      c.advance(1)
    ARRIVE order[threadIdx.y % COUNT]
    t.advance(1)
    c.advance(REST)
    FOR d in 0..min(MINE, LAG):
      ARRIVE empty[r.slot]
      r.advance(1)
    r.advance(REST)
"""


def pong(count: int = 2, slots: int = 3, lag: int = 1) -> str:
    """``count`` instances, whose cursor that releases trails by ``lag`` positions: each has ``K`` of them, or none if its row is not there."""

    def trips(v: int) -> str:
        return f"select({count}*i + {v} < R, K, 0)"

    words = {
        "SKIP": " + ".join(f"select(threadIdx.y - 1 >= {v + 1}, {trips(v)}, 0)" for v in range(count - 1)),
        "REST": " + ".join(f"select(threadIdx.y - 1 < {v}, {trips(v)}, 0)" for v in range(1, count)),
        "MINE": f"select({count}*i + threadIdx.y - 1 < R, K, 0)",
        "COUNT": str(count),
        "SLOTS": str(slots),
        "LAST": str(count + 1),
        "LAG": str(lag),
    }
    text = HEAD
    for word, found in words.items():
        text = text.replace(word, found)
    return text


@pytest.mark.parametrize(("count", "slots", "lag"), [(2, 2, 1), (2, 3, 1), (2, 3, 2), (3, 4, 1), (4, 3, 2)])
def test_unequal_numbers_of_slots(count: int, slots: int, lag: int) -> None:
    parse_kernel(pong(count, slots, lag)).verify().require()


ROW = "x[2*i + v, k, threadIdx.x]"
GIVEN = "    ARRIVE order[threadIdx.y % 2]\n"
DRAIN = "    FOR d in 0..min(select(2*i + threadIdx.y - 1 < R, K, 0), 1):\n      ARRIVE empty[r.slot]\n      r.advance(1)\n"
BEFORE, AFTER = ("select(threadIdx.y - 1 >= 1, select(2*i + 0 < R, K, 0), 0)", "select(threadIdx.y - 1 < 1, select(2*i + 1 < R, K, 0), 0)")

# what is changed, to what
BAD = {
    "a skip of the cursor that waits is missing": (f"    c.advance({AFTER})\n", ""),
    "a skip of the cursor that releases is missing": (f"    r.advance({BEFORE})\n", ""),
    "a skip as if the others were all there": (f"    c.advance({AFTER})\n", f"    c.advance({AFTER.replace('2*i + 1 < R', '2*i < R')})\n"),
    "a skip by another instance's number": (f"    r.advance({AFTER})\n", f"    r.advance({AFTER.replace('< 1,', '< 2,')})\n"),
    "the producer fills for an instance that is not there": ("select(2*i + v < R, K, 0)", "K"),
    "the producer fills for the other one": ("select(2*i + v < R, K, 0)", "select(2*i + 1 - v < R, K, 0)"),
    "an instance visits what is not there": ("FOR k in 0..select(2*i + threadIdx.y - 1 < R, K, 0)", "FOR k in 0..K"),
    "the drain stands behind the skip": (f"{DRAIN}    r.advance({AFTER})\n", f"    r.advance({AFTER})\n{DRAIN}"),
    "the drain is missing": (DRAIN, ""),
    "more is drained than was left": ("K, 0), 1):", "K, 0), 2):"),
    "all instances meet before the drain": (DRAIN, f"    SYNC named 1, 64\n{DRAIN}"),
    "all instances meet in a turn": (GIVEN, f"    SYNC named 1, 64\n{GIVEN}"),
    "the turn is passed before the slots are used": (f"{GIVEN}    t.advance(1)\n", "    t.advance(1)\n"),
    "an instance that is not there takes no turn": (
        "    WAIT order[threadIdx.y - 1] parity xor(t.parity, threadIdx.y - 1 == 0)\n",
        "    IF 2*i + threadIdx.y - 1 < R:\n      WAIT order[threadIdx.y - 1] parity xor(t.parity, threadIdx.y - 1 == 0)\n",
    ),
    "an instance that is not there passes no turn": (GIVEN, "    IF 2*i + threadIdx.y - 1 < R:\n      ARRIVE order[threadIdx.y % 2]\n"),
    "the first round passes no turn": (GIVEN, "    IF i >= 1:\n      ARRIVE order[threadIdx.y % 2]\n"),
    "trips that differ between threads of an instance": (
        "FOR k in 0..select(2*i + threadIdx.y - 1 < R, K, 0)",
        "FOR k in 0..select(2*i + threadIdx.y - 1 < R, K + threadIdx.x//31, 0)",
    ),
}  # fmt: skip


LAST = ("a skip as if the others were all there", "an instance that is not there passes no turn")
"""These do no harm, since an instance is missing in the last round alone; that is more than the proof knows."""


@pytest.mark.parametrize("name", BAD)
def test_faults_of_turns(name: str) -> None:
    old, new = BAD[name]
    good = pong()
    assert old in good
    certificate = parse_kernel(good.replace(old, new)).verify()
    assert not certificate.is_proved
    assert name in LAST or certificate.verdict is Verdict.REFUTED, str(certificate)


def test_as_many_slots_as_the_lag_deadlock() -> None:
    assert parse_kernel(pong(2, 2, 2)).verify().verdict is Verdict.REFUTED


def test_one_instance_shares_with_nobody() -> None:
    """Its trips are not those that its producer's own thread index would give."""
    text = pong().replace("BLOCK (32, 3, 1)", "BLOCK (32, 2, 1)").replace("order[2]", "order[1]").replace("0..2", "0..1").replace("% 2]", "% 1]")
    skips = text.replace(f".advance({BEFORE})", ".advance(0)").replace(f".advance({AFTER})", ".advance(0)")
    mine = skips.replace("select(2*i + v < R, K, 0)", "select(2*i - 1 < R, K, 0)").replace(ROW, "x[0, 0, threadIdx.x]")
    certificate = parse_kernel(mine).verify()
    assert not certificate.is_proved


@cache
def scheduled(name: str) -> Kernel:
    """A GEMM as schedules make it: tiles for persistent blocks, for two consumers in turn, stores from a ring inside one role."""
    return parse_kernel((KERNELS / f"{name}.kir").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", TILES)
def test_scheduled_gemms_are_proved(name: str) -> None:
    scheduled(name).verify().require()


WRONG = (
    "one slot less in a cursor", "barrier later", "warp barrier for a larger one", "arrive much earlier", "one trip less", "expect fewer bytes", "drop load",
    "drop proxy fence", "wait for sources only", "drop commit", "turn to instance 0",
)  # fmt: skip


@pytest.mark.parametrize("operator", WRONG)
def test_faults_of_scheduled_gemms_are_refuted(operator: str) -> None:
    op = next(op for op in OPERATORS if op.name == operator)
    assert any(verify(m).verdict is Verdict.REFUTED for m in op.apply(scheduled("gemm_pingpong")) if is_valid(m))


def test_what_is_proved_of_turns_behaves() -> None:
    proved = [(op.name, m) for op in OPERATORS for m in op.apply(parse_kernel(pong())) if is_valid(m) and m.verify().is_proved]
    arguments = [np.arange(5 * 3 * 32, dtype=np.float32).reshape(5, 3, 32)]
    assert [(name, found) for name, m in proved if (found := misbehaves(m, arguments)) is not None] == []


GUARDED = """\
KERNEL guarded(x: float32[N, 3, WIDE]) -> (y: float32[N, 3, WIDE])
  DIM N
  GRID (1, 1, 1)  BLOCK (WIDE, 3, 1)
  SHARED s: float32[3, WIDE]

FOR i in 0..N:
  FOR k in 0..threadIdx.y:
    IF threadIdx.y + k < i:
      s[threadIdx.y, threadIdx.x] = copy(x[i, threadIdx.y, threadIdx.x])
      SYNC warp
      y[i, threadIdx.y, threadIdx.x] = copy(s[threadIdx.y, xor(threadIdx.x, 1)])
      SYNC warp
"""


@pytest.mark.parametrize(("wide", "old", "new", "proved"), [
    (32, "", "", True),
    (16, "", "", False),
    (32, "threadIdx.y + k < i", "threadIdx.x//16 + k < i", False),
    (32, "FOR k in 0..threadIdx.y", "FOR k in 0..threadIdx.x", False),
    (64, "", "", True),
    (64, "xor(threadIdx.x, 1)", "xor(threadIdx.x, 32)", False),
    (32, "s[threadIdx.y, xor", "s[(threadIdx.y + 1) % 3, xor", False),
])  # fmt: skip
def test_warps_may_differ_in_what_their_threads_agree_on(wide: int, old: str, new: str, proved: bool) -> None:
    text = GUARDED.replace(old, new) if old else GUARDED
    assert parse_kernel(text.replace("WIDE", str(wide))).verify().is_proved is proved


DEALT = """\
KERNEL dealt() -> (y: float32[4, 32, 8])
  GRID (132, 1, 1)  BLOCK (32, 1, 1)

FOR i in 0..4:
  IF threadIdx.x == 0 && blockIdx.x + 264*i < 1024:
    y[(blockIdx.x + 264*i)//256, (blockIdx.x//8 + 33*i) % 32, blockIdx.x % 8] = copy(1.0)
"""


def test_the_digits_of_a_tile_are_its_number() -> None:
    parse_kernel(DEALT).verify().require()
    for digit in ("(blockIdx.x + 264*i)//256", "(blockIdx.x//8 + 33*i) % 32", "blockIdx.x % 8"):
        assert not parse_kernel(DEALT.replace(digit, "0")).verify().is_proved


@pytest.mark.parametrize("trips", ["min(WORK, 1)", "1", "min(WORK, 1) + 1", "0"])
def test_slots_are_given_back_behind_a_loop_of_one_position(trips: str) -> None:
    """A product of one tile of k: the loop around the wait has one position where there is work, and none where there is none."""
    kernel = specialized(lower(gemm_pingpong.build()), {"M": 512, "N": 512, "K": 64})
    text = kernel.text()
    (head,) = re.findall(r"FOR ch0\.c\.r\.k in 0\.\.min\((.*), 1\):", text)
    mutant = parse_kernel(text.replace(f"0..min({head}, 1):", f"0..{trips.replace('WORK', head)}:"))
    assert verify(mutant).is_proved == (trips == "min(WORK, 1)")


TURNS = """\
KERNEL turns(x: float32[R, 2, 32]) -> (y: float32[R, 2, 32])
  DIM R
  GRID (1, 1, 1)  BLOCK (32, 2, 1)
  MBARRIER turn[2]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR n in 0..2:
    INIT turn[n] count 1
SYNC block  # the mbarriers are initialized
t = CURSOR(slots 1, slot 0, parity 0)
FOR i in 0..R:
  WAIT turn[threadIdx.y] parity xor(t.parity, threadIdx.y == 0)
  y[i, threadIdx.y, threadIdx.x] = add(x[i, threadIdx.y, threadIdx.x], 1.0)
  SYNC warp  # before one lane arrives for the warp
  IF threadIdx.x == 0:
    ARRIVE turn[(threadIdx.y + 1) % 2]
  t.advance(1)
"""


def test_turns_without_a_ring() -> None:
    certificate = verify(parse_kernel(TURNS))
    assert certificate.verdict is Verdict.PROVED
    assert any(o.subject == "turn turn" for o in certificate.argument)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    ARRIVE turn[(threadIdx.y + 1) % 2]\n", "    ARRIVE turn[threadIdx.y]\n"),  # it goes to the one that has it
        ("  IF threadIdx.x == 0:\n    ARRIVE", "  IF threadIdx.x == 0 && i > 0:\n    ARRIVE"),  # it is not passed in the first iteration
        ("xor(t.parity, threadIdx.y == 0)", "t.parity"),  # nobody does
        ("  t.advance(1)\n", ""),  # each waits for the first phase
        ("INIT turn[n] count 1", "INIT turn[n] count 2"),  # nobody gives the second arrival
        ("FOR i in 0..R:", "FOR i in 0..R + threadIdx.y:"),  # one instance has a trip more
        ("  SYNC warp  # before one lane arrives for the warp\n", ""),  # another lane may still be at work
        ("  y[i,", "  SYNC block\n  y[i,"),  # all instances meet where one has its turn
    ],
)
def test_faults_of_turns_without_a_ring(old: str, new: str) -> None:
    assert TURNS.count(old) == 1
    kernel = parse_kernel(TURNS.replace(old, new))
    assert verify(kernel).verdict is not Verdict.PROVED


NESTED = """\
KERNEL nested(x: float32[R, 2, 4, 32]) -> (y: float32[R, 2, 4, 32])
  DIM R
  GRID (1, 1, 1)  BLOCK (32, 4, 1)
  MBARRIER outer[2], inner[INSTANCES]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR n in 0..2:
    INIT outer[n] count 64
  FOR n in 0..INSTANCES:
    INIT inner[n] count 32
SYNC block  # the mbarriers are initialized
o = CURSOR(slots 1, slot 0, parity 0)
t = CURSOR(slots 1, slot 0, parity 0)
FOR i in 0..R:
  WAIT outer[threadIdx.y//2] parity xor(o.parity, threadIdx.y//2 == 0)
  FOR k in 0..2:
    IF threadIdx.y < INSTANCES:
      WAIT inner[threadIdx.y] parity xor(t.parity, threadIdx.y == 0)
      y[i, k, threadIdx.y, threadIdx.x] = neg(x[i, k, threadIdx.y, threadIdx.x])
      ARRIVE inner[(threadIdx.y + 1) % INSTANCES]
      t.advance(1)
  ARRIVE outer[(threadIdx.y//2 + 1) % 2]
  o.advance(1)
"""


@pytest.mark.parametrize("instances", [2, 4])
def test_turns_within_turns(instances: int) -> None:
    """The inner turn goes round among instances that hold the outer one together; otherwise the next of them waits for both, for ever."""
    kernel = parse_kernel(NESTED.replace("INSTANCES", str(instances)))
    assert (verify(kernel).open_layers == frozenset()) is (instances == 2)
    assert (misbehaves(kernel, [np.zeros((2, 2, 4, 32), np.float32)]) is None) is (instances == 2)
