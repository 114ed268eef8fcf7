"""The registers that a thread holds at once."""

import pytest

from taskfuse.count.live import most_at_once
from taskfuse.kir import parse_kernel

SIZES = {"t": 8, "u": 4, "v": 2}


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("t = copy(x[0])\nu = copy(t)\nv = copy(u)\ny[0] = copy(v)", 12),  # each is dead when the next but one is made
        ("t = copy(x[0])\nu = copy(x[1])\nv = add(t, u)\ny[0] = copy(v)", 14),
        ("t = copy(x[0])\nFOR i in 0..8:\n  u = copy(t)\n  v = copy(u)\n  y[i] = copy(v)", 14),  # the next trip needs t again
        ("FOR i in 0..8:\n  t = copy(x[i])\n  u = copy(t)\n  v = copy(u)\n  y[i] = copy(v)", 12),
        ("IF threadIdx.x == 0:\n  t = copy(x[0])\n  y[0] = copy(t)\nELSE:\n  u = copy(x[0])\n  y[0] = copy(u)", 8),
        (
            "IF threadIdx.x == 0:\n  t = copy(x[0])\n  y[0] = copy(t)\nELSE IF threadIdx.x == 1:\n  u = copy(x[0])\n  y[0] = copy(u)\n"
            "ELSE:\n  t = copy(x[0])\n  y[0] = copy(t)",
            8,
        ),
        ("y[0] = copy(x[0])", 0),
    ],
)
def test_the_most_that_is_held_at_once(body: str, most: int) -> None:
    text = "KERNEL k(x: float32[8]) -> (y: float32[8])\n  GRID (1, 1, 1)  BLOCK (32, 1, 1)\n"
    text += "".join(f"  LOCAL {name}: float32[]\n" for name in SIZES)
    assert most_at_once(parse_kernel(f"{text}\n{body}\n").body, SIZES) == most
