"""Conditions that a warp reads from its first lane: only where all its lanes come, and agree on all of them."""

import pytest

from taskfuse.cuda.agreement import asked_of_a_lane
from taskfuse.kir import parse_kernel, walk
from taskfuse.kir.nodes import If

HEAD = """\
KERNEL k(x: float32[4]) -> (y: float32[512])
  DIM N min 1
  GRID (4, 1, 1)  BLOCK {block}
  LOCAL acc: float32[32]
  SHARED s: bfloat16[2, 64, 64] align 1024

c = CURSOR(slots 2, slot 0, parity 0)
FENCE wgmma
"""
TILE = "desc(s[0, 0, 0] + 0, swizzle 128, lbo 0, sbo 1024, major K)"
PRODUCT = f"WGMMA.m64n64k16.bfloat16 acc[0], {TILE}, {TILE}, accumulate true"
FIRST = "y[0] = copy(1.0)"


def asked(body: str, block: str = "(128, 2, 1)") -> list[str]:
    """The conditions of the branches that are asked of a lane."""
    kernel = parse_kernel(HEAD.format(block=block) + body)
    found = asked_of_a_lane(kernel)
    return [str(s.branches[0].cond) for s in walk(kernel) if isinstance(s, If) and id(s) in found]


@pytest.mark.parametrize(
    "body",
    [
        f"IF threadIdx.y == 1:\n  {PRODUCT}",
        f"IF threadIdx.x//128 + threadIdx.y < N:\n  {PRODUCT}",
        f"FOR k in 0..N:\n  IF k < 3 - threadIdx.y:\n    {PRODUCT}",
        f"IF blockIdx.x < 2:\n  {FIRST}\nELSE IF threadIdx.y == 1:\n  {PRODUCT}",
        f"IF threadIdx.x < 32:\n  IF threadIdx.y == 1:\n    {PRODUCT}",
    ],
)
def test_where_warps_agree(body: str) -> None:
    assert asked(body)


@pytest.mark.parametrize(
    "body",
    [
        f"IF threadIdx.x < 16:\n  {FIRST}\nELSE IF threadIdx.y == 1:\n  {PRODUCT}",  # lanes 16 to 31 would follow the first
        f"IF threadIdx.y == 1:\n  {PRODUCT}\nELSE IF threadIdx.x < 16:\n  {FIRST}",
        f"IF threadIdx.x + 128*threadIdx.y >= 16:\n  IF threadIdx.y == 1:\n    {PRODUCT}",  # and would wait for the first 16
        f"FOR k in 0..threadIdx.x + 1:\n  IF threadIdx.y == 1:\n    {PRODUCT}",
        f"IF c.slot + threadIdx.y == 1:\n  {PRODUCT}",
        f"IF threadIdx.y == 1:\n  FENCE wgmma\n  {PRODUCT}",  # a batch of its own
        f"IF blockIdx.x == 1:\n  {PRODUCT}",
    ],
)
def test_where_they_may_not(body: str) -> None:
    assert asked(body) == []


def test_blocks_of_symbolic_extents_say_nothing() -> None:
    assert asked(f"IF threadIdx.y == 1:\n  {PRODUCT}", "(128, N, 1)") == []
