"""Loops are named by axes."""

import taskfuse as tf
from taskfuse.testing.loops import Loops
from taskfuse.testing.program import Recorder


def test_loops_are_named_by_axes() -> None:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [6, 10])
    y = recorder.call(tf, "neg", x)
    loops = Loops(recorder, y)
    first, second = y.loop
    outer, inner = loops.split(second, 5)
    loops.last([first, outer])
    loops.bind(first, tf.ParallelType.TIDx)
    loops.done()
    loops.done()
    assert y.loop == (inner, first, outer)
    assert recorder.lines[2:] == ["tv1.split(1, 5)", "tv1.reorder([2, 0, 1])", "tv1.axis(1).parallelize(P.TIDx)"]
