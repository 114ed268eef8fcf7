"""The shape of a launch, and the warps of it that are looked at."""

import numpy as np
import pytest

from taskfuse.count.launch import ROWS, Launch, Sample
from taskfuse.kir import parse_kernel
from taskfuse.target import DEFAULT

TEXT = """KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID ({grid}, 1, 1)  BLOCK ({block}, 1, 1)
  {shared}

IF blockIdx.x == 0 && threadIdx.x == 0:
  y[0] = copy(x[0])
"""


def launch(grid: str = "N", block: int = 128, shared: str = "LOCAL t: float32[]", **extents: int) -> Launch:
    return Launch.of(parse_kernel(TEXT.format(grid=grid, block=block, shared=shared)), extents, DEFAULT)


def test_the_shape_follows_from_the_extents() -> None:
    found = launch("ceildiv(N, 128)", N=1000)
    assert (found.blocks, found.threads, found.warps) == (8, 128, 4)


@pytest.mark.parametrize(("block", "shared", "resident"), [(1024, "", 2), (64, "", 32), (64, "SHARED t: float32[25600] align 16 @ 0", 2)])
def test_a_multiprocessor_holds_as_many_blocks_as_fit(block: int, shared: str, resident: int) -> None:
    assert launch(block=block, shared=shared or "LOCAL t: float32[]", N=1).resident == resident


def test_tables_are_in_their_range() -> None:
    text = TEXT.format(grid="1", block=32, shared="LOCAL t: float32[]").replace("(x:", "(t: int32[5], u: int32[3] rising 0..N, x:")
    found = Launch.of(parse_kernel(text + "  y[clamp(t[threadIdx.x // 8 of 5], 2, 10)] = copy(x[clamp(u[1 of 3], 0, N)])\n"), {"N": 40}, DEFAULT)
    assert {name: elements.tolist() for name, elements in found.tables.items()} == {"t": [2, 4, 6, 8, 10], "u": [0, 20, 40]}


def test_registers_of_buffers_count() -> None:
    used = TEXT.format(grid="N", block=256, shared="LOCAL t: float32[200]") + "  t[0] = copy(x[0])\n"
    assert Launch.of(parse_kernel(used), {"N": 1}, DEFAULT).resident == 1


def test_the_sample_is_spread_over_the_launch() -> None:
    found = Sample.of(launch(block=96, N=10_000))
    assert found.active.shape[0] <= ROWS + 16
    blocks = np.unique(found.env["blockIdx.x"])
    assert len(blocks) == found.blocks
    assert blocks.min() < 2500
    assert blocks.max() > 7500
    assert np.unique(found.env["threadIdx.x"] // 32).tolist() == [0, 1, 2]


def test_of_a_small_launch_all_warps_are_looked_at() -> None:
    found = Sample.of(launch(block=48, N=3))
    assert found.active.sum() == 3 * 48


def test_of_arms_a_thread_has_the_registers_of_one() -> None:
    text = """KERNEL k(x: float32[N]) -> (y: float32[N])
  DIM N min 1
  GRID (N, 1, 1)  BLOCK (256, 1, 1)
  LOCAL t: float32[100]
  LOCAL u: float32[100]

IF blockIdx.x == 0:
  t[0] = copy(x[0])
  y[0] = copy(t[0])
ELSE:
  u[0] = copy(x[0])
"""
    at_once = text.replace("ELSE:", "IF blockIdx.x == 1:") + "y[0] = copy(t[0])\n"
    assert [Launch.of(parse_kernel(t), {"N": 1}, DEFAULT).resident for t in (text, at_once)] == [2, 1]
