"""DropSingleTrips: the body of a loop that runs exactly once, with the value of its variable."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.passes.trips import DropSingleTrips

HEAD = """\
KERNEL k(x: float32[N, 4]) -> (y: float32[N, 4])
  DIM N
  GRID (1, 1, 1)  BLOCK (64, 1, 1)

"""


def dropped(body: str) -> str:
    return str(DropSingleTrips().run(parse_kernel(HEAD + body))).split("\n\n", 1)[1].strip()


CASES = {
    "once": ("FOR i in 0..1:\n  y[i, 2] = copy(x[i, 2])", "y[0, 2] = copy(x[0, 2])"),
    "from elsewhere": ("FOR i in 3..4:\n  y[0, i] = copy(x[0, i])", "y[0, 3] = copy(x[0, 3])"),
    "a step over the end": ("FOR i in 1..4 step 3:\n  y[0, i] = copy(x[0, i])", "y[0, 1] = copy(x[0, 1])"),
    "nested": ("FOR i in 0..1:\n  FOR j in 0..4:\n    FOR l in 2..3:\n      y[i, j] = copy(x[i, l])", "FOR j in 0..4:\n  y[0, j] = copy(x[0, 2])"),
    "an arm that is never taken": (
        "FOR i in 0..1:\n  IF i == 1:\n    y[0, 0] = copy(x[0, 0])\n  ELSE IF threadIdx.x < 2:\n    y[0, 1] = copy(x[0, 1])",
        "IF threadIdx.x < 2:\n  y[0, 1] = copy(x[0, 1])",
    ),
    "all of them": ("FOR i in 0..1:\n  IF i == 1:\n    y[0, 0] = copy(x[0, 0])\n  y[0, 1] = copy(x[0, 1])", "y[0, 1] = copy(x[0, 1])"),
}


@pytest.mark.parametrize("name", CASES)
def test_dropped(name: str) -> None:
    before, after = CASES[name]
    assert dropped(before) == after
    assert dropped(after) == after


@pytest.mark.parametrize("loop", ["0..2", "0..0", "0..N", "2..1", "0..4 step 2", "N..N + 1"])
def test_other_loops_stay(loop: str) -> None:
    body = f"FOR i in {loop}:\n  y[0, 1] = copy(x[0, 1])"
    assert dropped(body) == body
