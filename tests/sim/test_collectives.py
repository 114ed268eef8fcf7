"""Instructions on several elements per thread, or on all threads of a warp at once."""

import numpy as np
import pytest

from taskfuse.errors import SimulationError
from taskfuse.sim.collectives import by_warps
from taskfuse.sim.lanes import LaneTable
from tests.sim.kernels import kernel


@pytest.mark.parametrize(
    ("ids", "parts"),
    [
        ([*range(64)], [[*range(64)]]),
        ([*range(16)], [[*range(16)]]),
        ([*range(40)], [[*range(32)], [*range(32, 40)]]),
        ([*range(8, 72)], [[*range(32, 64)], [*range(8, 32)], [*range(64, 72)]]),
        ([1, 33], [[1], [33]]),
    ],
)
def test_whole_warps_are_together_and_each_torn_one_alone(ids: list[int], parts: list[list[int]]) -> None:
    table = LaneTable((96, 1, 1))
    found = by_warps(table.get(np.array(ids)), table)
    assert [lanes.ids.tolist() for lanes in found] == parts


def test_a_shuffle_by_a_part_of_a_warp() -> None:
    text = "r = copy(1.0)\nIF threadIdx.x < 16:\n  SHUFFLE r <- r xor 1\n"
    with pytest.raises(SimulationError, match="shuffle executed by 16 threads of warp 0"):
        kernel(text, "LOCAL r: float32[]").simulate(np.zeros(32, np.float32))
