"""The state of a run: what cells hold, stores of one element by two threads, conversions, and words for what is wrong."""

import pytest

from tests.executions import changed, finding

COPIED = """\
KERNEL k(x: float32[8]) -> (y: float32[8])
  GRID (1, 1, 1)  BLOCK (8, 1, 1)
  SHARED s: float32[8] align 16 @ 0
  SHARED u: int32[8] align 16 @ 64
  LOCAL r: float32[]
  DEFINE s: float32[8] = copy(x[i0])
  DEFINE y: float32[8] = copy(s[i0])

s[threadIdx.x] = copy(x[threadIdx.x])  ~ value s[threadIdx.x]
SYNC block
y[threadIdx.x] = copy(s[threadIdx.x])  ~ value y[threadIdx.x]
"""


def test_it_holds() -> None:
    assert finding(COPIED) == ""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("y[threadIdx.x] = copy", "y[threadIdx.x//2] = copy", "y[0]: is stored twice"),
        ("s[threadIdx.x])  ~ value y", "s[7 - threadIdx.x])  ~ value y", "y[0]: reads element [7] of x where element [0] of x is defined"),
        ("s[threadIdx.x] = copy(x[threadIdx.x])", "IF threadIdx.x > 0:\n  s[threadIdx.x] = copy(x[threadIdx.x])", "y[0]: the stored value was never computed"),
        ("y[threadIdx.x] = copy", "IF threadIdx.x < 7:\n  y[threadIdx.x] = copy", "y[7]: is never stored"),
        ("s[threadIdx.x] = copy(x", "s[threadIdx.x + 1] = copy(x", "s: index 8 of axis 0 is outside 0..8"),
    ],
)
def test_what_is_wrong(old: str, new: str, said: str) -> None:
    assert finding(changed(COPIED, old, new)) == said


def test_storage_of_other_buffers_is_none_of_its_elements() -> None:
    over = COPIED.replace("@ 64", "@ 0").replace("SYNC block\n", "SYNC block\nu[threadIdx.x] = copy(3)\nSYNC block\n", 1)
    assert "where data of another buffer lie: the constant 3" in finding(over)
