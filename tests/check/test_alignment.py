"""Where instructions that move several bytes may begin: what is proved from extents, steps, conditions and offsets, and what is refused."""

import pytest

from taskfuse.check import Verdict, verify
from taskfuse.check.alignment import TENSORS
from taskfuse.kir import parse_kernel

VECTORS = """\
KERNEL vectors(x: float32[M, N]) -> (y: float32[M, N])
  DIM M min 1, N min 8 multiple_of 4
  GRID (M, 1, 1)  BLOCK (1, 1, 1)
  LOCAL r: float32[4]

FOR i in 0..N//4:
  COPY r[0] <- x[blockIdx.x, 4*i] width 4
  COPY y[blockIdx.x, 4*i] <- r[0] width 4
"""
GATHER = """\
KERNEL gather(t: float32[10, 8], v: int32[32]) -> (y: float32[32, 4])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL r: float32[4]

GATHER r[0] <- t[i, 0] width 4 at i = v[threadIdx.x] of 10
COPY y[threadIdx.x, 0] <- r[0] width 4
"""
ROWS = """\
KERNEL rows(x: float16[32, 16]) -> (y: float16[32, 8])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float16[32, 16] align 16
  LOCAL r: float16[8]

FOR i in 0..16:
  s[threadIdx.x, i] = copy(x[threadIdx.x, i])
SYNC block
LDMATRIX r[0] <- s[threadIdx.x, 0]
FOR i in 0..8 UNROLL:
  y[threadIdx.x, i] = copy(r[i])
"""


COPY = "a copy of 16 bytes begins at byte 4*"


def reasons(text: str) -> list[str]:
    """What stands against a kernel but counterexamples."""
    return [o.reason for o in verify(parse_kernel(text)).failures if o.verdict is Verdict.OUTSIDE]


@pytest.mark.parametrize(
    "text",
    [
        VECTORS,
        VECTORS.replace("0..N//4", "0..N - 3 step 4").replace("4*i", "i"),
        VECTORS.replace("0..N//4", "4..N - 3 step 4").replace("4*i", "i"),
        VECTORS.replace("FOR i in 0..N//4:", "FOR k in 0..N step 8:\n  FOR i in k..min(k + 8, N - 3) step 4:")
        .replace("  COPY", "    COPY")
        .replace("4*i", "i"),
        VECTORS.replace("FOR i in 0..N//4:", "FOR i in 0..8:\n  IF i % 4 == 0:").replace("  COPY", "    COPY").replace("4*i", "i"),
        VECTORS.replace("multiple_of 4", "multiple_of 12"),
        GATHER,
        ROWS,
        ROWS.replace("s[threadIdx.x, 0]", "s[threadIdx.x, 8]"),
        ROWS.replace("align 16", "align 8 @ 32"),  # the offset says more than the alignment
    ],
)
def test_what_begins_at_multiples_is_proved(text: str) -> None:
    verify(parse_kernel(text)).require()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (VECTORS.replace(" multiple_of 4", ""), COPY),
        (VECTORS.replace("multiple_of 4", "multiple_of 2"), COPY),
        (
            VECTORS.replace("0..N//4", "0..N - 3 step 6").replace("4*i", "i"),
            COPY,
        ),
        (
            VECTORS.replace("FOR i in 0..N//4:", "FOR k in 0..N - 5 step 2:\n  FOR i in k..k + 4 step 4:").replace("  COPY", "    COPY").replace("4*i", "i"),
            COPY,
        ),
        (GATHER.replace("t: float32[10, 8]", "t: float32[10, 6]"), "a copy of 16 bytes begins at byte 24*i, which is not known to be a multiple of 16"),
        (GATHER.replace("t[i, 0]", "t[i, 2]"), "a copy of 16 bytes begins at byte 32*i + 8, which is not known to be a multiple of 16"),
        (ROWS.replace("align 16", "align 8"), "a row of a matrix needs multiples of 16 bytes, and the buffer is aligned to 8"),
        (ROWS.replace("align 16", "align 8 @ 8"), "a row of a matrix needs multiples of 16 bytes, and the buffer is aligned to 8"),
        (
            ROWS.replace("s[threadIdx.x, 0]", "s[threadIdx.x, 4]"),
            "a row of a matrix begins at byte 32*threadIdx.x + 8, which is not known to be a multiple of 16",
        ),
    ],
)
def test_what_may_not_is_refused(text: str, reason: str) -> None:
    assert any(reason in r for r in reasons(text))


def test_a_loop_of_the_checkers_own_name_is_another_one() -> None:
    """The count of steps is a symbol of its own, whatever loops are called."""
    text = (
        VECTORS.replace("FOR i in 0..N//4:", "FOR trip.0 in 0..4:\n  FOR i in 2*trip.0..2*trip.0 + 1 step 4:").replace("  COPY", "    COPY").replace("4*i", "i")
    )
    assert any(COPY in r for r in reasons(text))


def test_what_a_launch_checks_of_tensors_is_assumed_where_several_bytes_move() -> None:
    assert TENSORS in str(verify(parse_kernel(VECTORS)))
    assert TENSORS not in str(verify(parse_kernel(ROWS)))
