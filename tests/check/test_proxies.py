"""Writes to Global memory that bulk copies see, or that follow bulk reads: whose order counts, and what the proof says is missing."""

import pytest

from taskfuse.check import verify
from taskfuse.kir import parse_kernel

REREAD = """\
KERNEL reread(x: float32[8, 32]) -> (y: float32[8, 32], z: float32[8, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[8, 32] align 128
  MBARRIER full[1]

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
FOR i in 0..8:
  y[i, threadIdx.x] = copy(x[i, threadIdx.x])
FENCE proxy.async.global
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 1024
  TMA s[0, 0] <- m(0, 0) on full[0]
WAIT full[0] parity 0
FOR i in 0..8:
  z[i, threadIdx.x] = copy(s[i, threadIdx.x])
"""
READ_FIRST = """\
KERNEL read_first(x: float32[16, 32]) -> (y: float32[16, 32], z: float32[16, 32])
  TENSORMAP m = y box (8, 32) swizzle 0
  GRID (2, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[8, 32] align 128
  MBARRIER full[1]

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 1024
  TMA s[0, 0] <- m(8*blockIdx.x, 0) on full[0]
WAIT full[0] parity 0
FOR i in 0..8:
  y[8*blockIdx.x + i, threadIdx.x] = copy(x[8*blockIdx.x + i, threadIdx.x])
FOR i in 0..8:
  z[8*blockIdx.x + i, threadIdx.x] = copy(s[i, threadIdx.x])
"""
FENCE = "FENCE proxy.async.global"


@pytest.mark.parametrize("text", [REREAD, READ_FIRST])
def test_what_is_fenced_or_waited_for_is_proved(text: str) -> None:
    verify(parse_kernel(text)).require()


@pytest.mark.parametrize(
    ("text", "old", "new", "reason"),
    [
        (REREAD, FENCE, "PASS", f"an engine sees a write, and no {FENCE} of the writer stands between them in one iteration"),
        (REREAD, FENCE, "FENCE proxy.async", f"an engine sees a write, and no {FENCE} of the writer stands between them in one iteration"),
        (REREAD, f"{FENCE}\nSYNC block", FENCE, "nothing orders them in one iteration"),
        # the barrier of a load is one of its block: a thread of another one has not waited for the load
        (READ_FIRST, "m(8*blockIdx.x, 0)", "m(0, 0)", "nothing orders them in one iteration"),
        (READ_FIRST, "m(8*blockIdx.x, 0)", "m(8 - 8*blockIdx.x, 0)", "nothing orders them in one iteration"),
    ],
)
def test_what_is_missing(text: str, old: str, new: str, reason: str) -> None:
    assert old in text
    failures = verify(parse_kernel(text.replace(old, new))).failures
    assert reason in [f.reason for f in failures]
