"""Blocks, conditions and who executes, counted without the checker."""

import pytest

from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.sides.side import Declared, Shape, condition, holds, number, shape
from taskfuse.testing.small.text import Text


def test_threads_are_numbered_in_the_order_of_their_warps() -> None:
    of = Shape((4, 3, 2))
    assert of.threads == 24
    assert [of.number(t) for t in of.all()] == list(range(24))
    assert [number(of.linear, t, {}) for t in of.all()] == list(range(24))
    assert of.selected(of.first) == [(0, 0, 0)]
    assert Shape((1, 1, 1)).linear == "0"


@pytest.mark.parametrize(
    ("condition_", "count"), [("threadIdx.x == threadIdx.y", 8), ("threadIdx.x < 3 && threadIdx.y > 5", 6), ("xor(threadIdx.x, 1) == 0 || i == 2", 8)]
)
def test_conditions_select_threads(condition_: str, count: int) -> None:
    assert len(Shape((8, 8, 1)).selected(condition_, {"i": 0})) == count


def test_whole_warps() -> None:
    of = Shape((16, 4, 1))
    assert of.are_whole_warps(of.selected("threadIdx.y < 2"))
    assert of.are_whole_warps([])
    assert not of.are_whole_warps(of.selected("threadIdx.y < 3"))
    assert not of.are_whole_warps(of.selected("threadIdx.x < 8"))


@pytest.mark.parametrize("seed", range(20))
def test_a_drawn_condition_is_kernel_ir_and_python(seed: int) -> None:
    chooser = RandomChooser(seed)
    of = shape(chooser)
    drawn = condition(chooser, of, ["i"])
    t = Text()
    with t.block("FOR i in 0..2"), t.block(f"IF {drawn}"):
        t.add(f"y[{of.linear}] = copy(x[{of.linear}])")
    side = Declared(of).side("drawn", t, None)
    assert side.kind == "drawn"
    assert all(holds(drawn, thread, {"i": 1}) in (True, False) for thread in of.all())
