"""Instances that take turns at a ring: unequal numbers of slots, releases behind the turn, and what goes wrong with them."""

from pathlib import Path

import pytest

from taskfuse.kir import parse_kernel

KERNELS = Path(__file__).parent.parent / "kernels"

HEAD = """\
KERNEL pong(x: float32[R, K, 32]) -> (y: float32[R, K, 32])
  DIM R, K
  GRID (1, 1, 1)  BLOCK (32, LAST, 1)
  SHARED s: float32[SLOTS, 32] align 16
  MBARRIER full[SLOTS], empty[SLOTS], turns[COUNT]

IF threadIdx.x == 0 && threadIdx.y == 0:
  FOR n in 0..SLOTS:
    INIT full[n] count 32
    INIT empty[n] count 32
  FOR n in 0..COUNT:
    INIT turns[n] count 32
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
    WAIT turns[threadIdx.y - 1] parity xor(t.parity, threadIdx.y - 1 == 0)
    FOR k in 0..MINE:
      WAIT full[c.slot] parity c.parity
      y[COUNT*i + threadIdx.y - 1, k, threadIdx.x] = add(s[c.slot, threadIdx.x], 1.0)
      IF k >= LAG:
        ARRIVE empty[r.slot]
        r.advance(1)
      c.advance(1)
    ARRIVE turns[threadIdx.y % COUNT]
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
