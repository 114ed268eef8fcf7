"""Threads at one place: their numbers and symbols; some of them and the others together are all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.check.refuted import TooLarge
from taskfuse.check.values.lanes import ExecutedLanes, ExecutedLaunch, ExecutionFrame
from taskfuse.ir.scalar import parse_expr
from taskfuse.kir import Kernel, parse_kernel


def kernel(grid: str, block: str, cluster: str = "") -> Kernel:
    text = f"KERNEL k() -> (y: float32[1])\n  DIM N\n  GRID ({grid})  BLOCK ({block}){cluster}\n\nPASS\n"
    return parse_kernel(text)


def lanes(launch: ExecutedLaunch, **own: int) -> ExecutedLanes:
    return ExecutedLanes(launch, launch.everybody, dict(own), [ExecutionFrame((), 0, "role")])


@given(st.tuples(*[st.integers(1, 3)] * 3), st.tuples(st.integers(1, 33), st.integers(1, 3), st.integers(1, 2)))
def test_numbers_of_threads(grid: tuple[int, ...], block: tuple[int, ...]) -> None:
    """Block after block, x first; each block begins with a warp of its own."""
    launch = ExecutedLaunch(kernel(", ".join(map(str, grid)), ", ".join(map(str, block))), {"N": 1})
    every = lanes(launch)
    assert len(every) == np.prod(grid) * np.prod(block)
    assert launch.per % 32 == 0
    assert launch.per - launch.threads < 32
    x, y, z = (every.values(parse_expr(f"threadIdx.{a}")) for a in "xyz")
    assert (x + block[0] * (y + block[1] * z) == every.ids % launch.per).all()
    x, y, z = (every.values(parse_expr(f"blockIdx.{a}")) for a in "xyz")
    assert (x + grid[0] * (y + grid[1] * z) == every.blocks).all()


def test_a_place_in_a_cluster() -> None:
    launch = ExecutedLaunch(kernel("4, 1, 1", "1, 1, 1", "  CLUSTER (2, 1, 1)"), {"N": 1})
    assert lanes(launch).values(parse_expr("clusterIdx.x")).tolist() == [0, 1, 0, 1]


@given(st.lists(st.booleans(), min_size=8, max_size=8))
def test_some_and_the_others_are_all(mask: list[bool]) -> None:
    launch = ExecutedLaunch(kernel("2, 1, 1", "4, 1, 1"), {"N": 5})
    every = lanes(launch, i=3)
    every.own["j"] = np.arange(8) * 10
    where = np.array(mask)
    one, two = every.some(where), every.some(~where)
    assert one.values(parse_expr("i + j + threadIdx.x + N")).tolist() == every.values(parse_expr("i + j + threadIdx.x + N"))[where].tolist()
    both = two.joined(one)
    assert both.ids.tolist() == every.ids.tolist()
    assert both.values(parse_expr("i + j")).tolist() == every.values(parse_expr("i + j")).tolist()


def test_a_condition_of_all_of_none_and_of_some() -> None:
    every = lanes(ExecutedLaunch(kernel("1, 1, 1", "4, 1, 1"), {"N": 5}))
    assert every.holds(parse_expr("threadIdx.x < N")) is True
    assert every.holds(parse_expr("threadIdx.x > N")) is False
    found = every.holds(parse_expr("threadIdx.x > 1"))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [False, False, True, True]


def test_whole_warps() -> None:
    every = lanes(ExecutedLaunch(kernel("1, 1, 1", "72, 1, 1"), {"N": 1}))
    assert not every.whole_warps
    assert every.some(np.arange(32, 64)).whole_warps
    assert every.some(np.arange(64)).whole_warps
    assert not every.some(np.arange(16, 48)).whole_warps
    assert not every.some(np.arange(0, 64, 2)).whole_warps


def test_iterations_at_once_and_values_that_change() -> None:
    every = lanes(ExecutedLaunch(kernel("1, 1, 1", "2, 1, 1"), {"N": 1}))
    some = every.in_iterations("i", np.array([4, 7]))
    assert some.values(parse_expr("10*i + threadIdx.x")).tolist() == [40, 70, 41, 71]
    mask = np.array([False, True])
    for i in (1, 2):
        every.own["i"] = i
        part = every.part((0, 0), mask)
        assert part.values(parse_expr("i + threadIdx.x")).tolist() == [i + 1]


def test_launches_that_are_not_looked_at() -> None:
    for grid, block in (("N, 1, 1", "1024, 1, 1"), ("1, 1, 1", "2048, 1, 1"), ("1, 1, 1", "N - 100, 1, 1")):
        with pytest.raises(TooLarge):
            ExecutedLaunch(kernel(grid, block), {"N": 100})


def test_threads_in_words() -> None:
    launch = ExecutedLaunch(kernel("2, 2, 1", "4, 1, 1"), {"N": 1})
    assert [launch.thread(k) for k in (3, 33, 96)] == ["block 0, thread 3", "block 1, thread 1", "block (1, 1, 0), thread 0"]
    assert ExecutedLaunch(kernel("1, 1, 1", "4, 1, 1"), {"N": 1}).thread(3) == "thread 3"
