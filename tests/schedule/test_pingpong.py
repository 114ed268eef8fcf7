"""The axis of pingpong."""

import pytest

from taskfuse.errors import TaskError
from taskfuse.ir.types import ParallelType as P
from taskfuse.schedule.pingpong import check_pingpong
from tests.schedule.points import pair


def test_pingpong() -> None:
    _, a, b = pair(4, 8)
    load, use = a.fusion.group([a.fusion.task([a])], "load"), a.fusion.group([a.fusion.task([b])], "use")
    check_pingpong(use)
    b.axis(0).parallelize(P.TIDy)
    use.pingpong(b.axis(0))
    check_pingpong(use)
    load.pingpong(b.axis(0))
    with pytest.raises(TaskError) as caught:
        check_pingpong(load)
    assert caught.value.message == "load: it takes turns over an axis of extent 4, which is not a loop axis of its tensors"
    assert caught.value.help == "load.pingpong(tensor.axis(k)) with a tensor of the group"
    use.pingpong(b.axis(1))
    with pytest.raises(TaskError) as caught:
        check_pingpong(use)
    assert caught.value.message == "use: it takes turns over axis 1 of tv2, which is bound to Serial"
    assert caught.value.help == "instances that take turns differ in a thread index: bind the axis to one"
