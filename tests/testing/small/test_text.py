"""The text of a small kernel: blocks, declarations, and how roles arrive."""

import pytest

from taskfuse.check import verify
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.small.text import EXTENT, TRIED, ArrivalSignal, Head, Text, arrivals, declare, dim, signal, signals


def test_blocks_are_indented_and_never_empty() -> None:
    t = Text()
    with t.block("FOR i in 0..2"), t.blocks(["IF i > 0", "IF i > 1"]):
        pass
    with t.blocks([]):
        t.add("a", "b")
    assert t.lines == ["FOR i in 0..2:", "  IF i > 0:", "    IF i > 1:", "      PASS", "a", "b"]


@pytest.mark.parametrize(("lanes", "how"), [(lanes, how) for lanes in (32, 64, 8) for how in signals(lanes)])
def test_as_many_threads_arrive_as_are_counted(lanes: int, how: ArrivalSignal) -> None:
    """A phase that counts one more never completes."""
    for wrong in (0, 1):
        h, t = Head(lanes, 1, inputs=["x: float32[1]"], outputs=["y: float32[1]"]), Text()
        h.mbarriers["b"] = 1, arrivals(how, lanes) + wrong
        declare(h, lanes, 3)
        h.initialize(t)
        signal(t, how, lanes, 3, "b[0]")
        t.add("WAIT b[0] parity 0")
        assert verify(h.small("signal", t).kernel).is_proved is not bool(wrong)


def test_extents_that_are_tried() -> None:
    t = Text()
    with t.block("IF threadIdx.x == 0"):
        t.add("y[0] = copy(x[0])")
    h = Head(2, 1, inputs=["x: float32[1]"], outputs=["y: float32[1]"])
    assert h.small("none", t).extents == ({},)
    h.dim = EXTENT
    assert h.small("some", t).extents == tuple({EXTENT: n} for n in TRIED)
    assert {dim(RandomChooser(seed)).split(" ")[0] for seed in range(90)} == {"", EXTENT}
