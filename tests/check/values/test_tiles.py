"""Matrices and boxes in a run: what instructions move, and neighbors that they must not move instead; the proof agrees."""

import pytest

from tests.check.values.transposed import TRANSPOSED
from tests.executions import changed, finding

BOX = """\
KERNEL k(x: float32[3, 32]) -> (y: float32[3, 32])
  TENSORMAP in = x box (2, 32) swizzle 0
  TENSORMAP out = y box (2, 32) swizzle 0
  GRID (2, 1, 1)  BLOCK (32, 1, 1)
  SHARED s: float32[2, 32] align 1024
  MBARRIER full[1]
  DEFINE s: float32[3, 32] = copy(x[i0, i1])
  DEFINE y: float32[3, 32] = copy(s[i0, i1])

IF threadIdx.x == 0:
  INIT full[0] count 1
  FENCE mbarrier_init
SYNC block
IF threadIdx.x == 0:
  EXPECT full[0] bytes 256
  TMA s[0, 0] <- in(2*blockIdx.x, 0) on full[0]  ~ value s[2*blockIdx.x + tile.0, tile.1] tile (2, 32)
WAIT full[0] parity 0
IF threadIdx.x == 0:
  TMA out(2*blockIdx.x, 0) <- s[0, 0]  ~ value y[2*blockIdx.x + tile.0, tile.1] tile (2, 32)
  COMMIT bulk
  WAIT_GROUP bulk <= 0
"""


@pytest.mark.parametrize("text", [TRANSPOSED, BOX], ids=["matrices", "boxes"])
def test_it_holds(text: str) -> None:
    assert finding(text) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".x2.trans", ".x2"),
        ("b_s[16*t + threadIdx.x % 16, 0]", "b_s[16*t + (threadIdx.x + 8) % 16, 0]"),
        ("b_s[16*t + threadIdx.x % 16, 0]", "b_s[threadIdx.x % 16, 0]"),
        ("+ threadIdx.x % 16, 16*t + 8*(threadIdx.x//16)]", "+ 8*(threadIdx.x//16) + threadIdx.x % 8, 16*t + 8*(threadIdx.x//8 % 2)]"),
        ("a_s[16*threadIdx.y + threadIdx.x % 16", "a_s[threadIdx.x % 16"),
        ("acc[0], a_r[0], b_r[0]", "acc[0], a_r[0], b_r[2]"),
        ("b_s[threadIdx.x, 4*threadIdx.y + i] = copy", "b_s[threadIdx.x, 7 - 4*threadIdx.y - i] = copy"),
    ],
)
def test_other_matrices(old: str, new: str) -> None:
    assert finding(changed(TRANSPOSED, old, new).replace("LOCAL b_r: bfloat16[4]", "LOCAL b_r: bfloat16[6]")) != ""


BOXES = [
    ("in(2*blockIdx.x, 0)", "in(blockIdx.x, 0)"),
    ("out(2*blockIdx.x, 0)", "out(2 - 2*blockIdx.x, 0)"),
    ("in = x box (2, 32) swizzle 0", "in = x box (2, 32) swizzle 128"),
]


@pytest.mark.parametrize(("old", "new"), BOXES)
def test_other_boxes(old: str, new: str) -> None:
    assert finding(changed(BOX, old, new)) != ""
