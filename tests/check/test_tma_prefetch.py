"""Rings that one thread fills ahead by bulk loads: every position once, its bytes, and what the fill waits for."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.kir import parse_kernel

AHEAD = """\
KERNEL ahead(x: float32[N, 32]) -> (y: float32[N, 32])
  DIM N
  TENSORMAP map_x = x box (1, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[3, 1, 32] align 128
  MBARRIER full[3]

IF threadIdx.x == 0:
  FOR i in 0..3:
    INIT full[i] count 1
  FENCE mbarrier_init
SYNC block
c = CURSOR(slots 3, slot 0, parity 0)
FOR p in 0..2 UNROLL:
  IF threadIdx.x == 0 && p < N:
    EXPECT full[(c.slot + p) % 3] bytes 128
    TMA s[(c.slot + p) % 3, 0, 0] <- map_x(p, 0) on full[(c.slot + p) % 3]
FOR i in 0..N:
  WAIT full[c.slot] parity c.parity
  SYNC block
  IF threadIdx.x == 0 && i + 2 < N:
    EXPECT full[(c.slot + 2) % 3] bytes 128
    TMA s[(c.slot + 2) % 3, 0, 0] <- map_x(i + 2, 0) on full[(c.slot + 2) % 3]
  y[i, threadIdx.x] = neg(s[c.slot, 0, 31 - threadIdx.x])
  c.advance(1)
"""


def gaps(*edits: tuple[str, str]) -> list[str]:
    text = AHEAD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return [f"{o.subject}: {o.reason}" for o in verify(parse_kernel(text)).argument if o.verdict is not Verdict.PROVED]


def test_it_is_proved() -> None:
    assert gaps() == []


@pytest.mark.parametrize(
    "edits",
    [
        [("FOR p in 0..2 UNROLL", "FOR p in 0..1 UNROLL")],
        [("&& p < N", "&& p < N - 1")],
        [("&& i + 2 < N", "&& i + 3 < N")],
        [("&& i + 2 < N", "&& i + 1 < N")],
        [("EXPECT full[(c.slot + p) % 3] bytes 128", "EXPECT full[(c.slot + p) % 3] bytes 64")],
        [("EXPECT full[(c.slot + 2) % 3] bytes 128", "PASS")],
        [("INIT full[i] count 1", "INIT full[i] count 2")],
        [("  SYNC block\n  IF", "  IF")],
        [("IF threadIdx.x == 0 && i + 2", "IF threadIdx.x < 2 && i + 2")],
        [("map_x(i + 2, 0) on full[(c.slot + 2) % 3]", "map_x(i + 2, 0) on full[(c.slot + 1) % 3]")],
    ],
)
def test_what_is_wrong_is_not_proved(edits: list[tuple[str, str]]) -> None:
    assert gaps(*edits)
