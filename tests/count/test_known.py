"""Integers that the lanes of a sample are known to have."""

import numpy as np

from taskfuse.count.known import KnownIntegers
from taskfuse.ir.scalar import Evaluation
from taskfuse.kir import parse_kernel
from taskfuse.kir.nodes import Compute
from taskfuse.kir.walk import walk

TEXT = """KERNEL k(x: float32[64]) -> (y: int32[64])
  GRID (1, 1, 1)  BLOCK (32, 1, 1)
  LOCAL low: int32[]
  LOCAL high: int32[]
  LOCAL more: bool[]
  LOCAL found: int32[]
  LOCAL cast: int32[]

low = cast.int64(index(threadIdx.x - 1))
high = add(low, 16)
more = gt.float32(x[0], x[1])
found = where(more, high, low)
cast = cast.float32(x[threadIdx.x])
"""


def test_functions_of_the_lanes_are_known_and_data_is_not() -> None:
    """A choice by data is the same for the lanes of a warp, which are neighbors before and after it."""
    known, lanes = KnownIntegers(64, np.random.default_rng(0)), np.broadcast_to(np.arange(32), (64, 32))
    for stmt in walk(parse_kernel(TEXT)):
        if isinstance(stmt, Compute):
            known.compute(stmt, Evaluation({"threadIdx.x": lanes}))
    high, found = known.get("high"), known.get("found")
    assert high is not None
    assert found is not None
    np.testing.assert_array_equal(high, lanes + 15)
    np.testing.assert_array_equal(np.diff(found), 1)
    assert set(found[:, 0]) == {-1, 15}
    assert known.get("more") is known.get("cast") is None
    known.forget("high")
    assert known.get("high") is None
