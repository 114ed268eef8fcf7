"""SimplifyGuards: what the scopes imply goes, what they contradict goes with its statements, neighbors of one condition are one."""

import pytest

from taskfuse.kir import parse_kernel
from taskfuse.passes.guards import SimplifyGuards

HEAD = """\
KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N multiple_of 4
  GRID (1, 1, 1)  BLOCK (64, 1, 1)

"""


def simplified(body: str) -> str:
    return str(SimplifyGuards().run(parse_kernel(HEAD + body))).split("\n\n", 1)[1]


CASES = {
    "implied by the launch": ("IF threadIdx.x < 64:\n  y[0] = copy(x[0])\n", "y[0] = copy(x[0])\n"),
    "contradicted by the launch": ("IF threadIdx.x >= 64:\n  y[0] = copy(x[0])\ny[1] = copy(x[1])\n", "y[1] = copy(x[1])\n"),
    "implied by the scope around": (
        "IF threadIdx.x < 8:\n  IF threadIdx.x < 9:\n    y[0] = copy(x[0])\n",
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\n",
    ),
    "half of it implied": (
        "FOR i in 0..N:\n  IF i < N && i < threadIdx.x:\n    y[i] = copy(x[i])\n",
        "FOR i in 0..N:\n  IF i < threadIdx.x:\n    y[i] = copy(x[i])\n",
    ),
    "neighbors": (
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\nIF threadIdx.x < 8:\n  y[1] = copy(x[1])\n",
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\n  y[1] = copy(x[1])\n",
    ),
    "a loop of nothing": ("FOR i in 0..N:\n  IF i < 0:\n    y[i] = copy(x[i])\ny[0] = copy(x[0])\n", "y[0] = copy(x[0])\n"),
    "asked in each trip": (
        "FOR i in 0..N:\n  FOR j in 0..i:\n    IF threadIdx.x < 8:\n      y[j] = copy(x[i])\n",
        "IF threadIdx.x < 8:\n  FOR i in 0..N:\n    FOR j in 0..i:\n      y[j] = copy(x[i])\n",
    ),
    "asked in each trip, and behind the loop": (
        "FOR i in 0..N:\n  IF threadIdx.x < 8:\n    y[i] = copy(x[i])\nIF threadIdx.x < 8:\n  y[0] = copy(x[1])\n",
        "IF threadIdx.x < 8:\n  FOR i in 0..N:\n    y[i] = copy(x[i])\n  y[0] = copy(x[1])\n",
    ),
    "an arm that always holds ends the chain": (
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\nELSE IF threadIdx.x < 64:\n  y[1] = copy(x[1])\nELSE IF threadIdx.x < 70:\n  y[2] = copy(x[2])\n",
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\nELSE:\n  y[1] = copy(x[1])\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_simplified(name: str) -> None:
    before, after = CASES[name]
    assert simplified(before).strip() == after.strip()
    assert simplified(after).strip() == after.strip()


@pytest.mark.parametrize(
    "body",
    [
        "IF threadIdx.x < 63:\n  y[0] = copy(x[0])\n",  # not all threads
        "IF N >= 5:\n  y[0] = copy(x[0])\n",  # N may be 4
        "IF threadIdx.x < 8:\n  y[0] = copy(x[0])\nSYNC block\nIF threadIdx.x < 8:\n  y[1] = copy(x[1])\n",  # a barrier between
        "IF threadIdx.x < 8:  # a\n  y[0] = copy(x[0])\nIF threadIdx.x < 8:  # b\n  y[1] = copy(x[1])\n",  # labels are roles
        "FOR i in 0..N:\n  IF threadIdx.x < 8:  # a\n    y[i] = copy(x[i])\n",
        "FOR i in 0..N:\n  IF threadIdx.x < i:\n    y[i] = copy(x[i])\n",  # each trip has an answer of its own
        "FOR i in 0..N:\n  IF threadIdx.x < 32:\n    y[i] = copy(x[i])\n    SYNC warp\n",  # what threads wait for together stays where it is
        "FOR i in 0..4 UNROLL:\n  IF threadIdx.x < 8:\n    y[i] = copy(x[i])\n",  # copies of a statement have predicates, and no branches
    ],
)
def test_what_stays(body: str) -> None:
    assert simplified(body).strip() == body.strip()
