"""Schedulers are tried one after another, as Python that is recorded."""

import taskfuse as tf
from taskfuse.testing.automatic import automatic
from taskfuse.testing.program import Recorder
from tests.testing.choosers import Highest, Lowest


def rows() -> Recorder:
    recorder = Recorder()
    x = recorder.call(tf, "define_tensor", [64, 32])
    recorder.call(recorder.fusion, "add_output", recorder.call(tf, "sum", x, 1))
    return recorder


def test_the_first_that_takes_it_schedules() -> None:
    recorder = rows()
    assert automatic(Lowest(), recorder)
    assert recorder.fusion.has_schedule
    scheduled = [line for line in recorder.lines if line.startswith("tf.schedulers.")]
    assert scheduled == ["tf.schedulers.reduction(fusion)"]
    assert str(recorder.program().run()) == str(recorder.fusion)


def test_the_other_way_round_general_ones_come_first() -> None:
    recorder = rows()
    assert automatic(Highest(), recorder)
    assert [line for line in recorder.lines if line.startswith("tf.schedulers.")] == ["tf.schedulers.auto(fusion)"]
