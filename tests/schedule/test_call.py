"""What every scheduling call checks of its axes and readers, and what its errors name."""

from typing import Any

import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.schedule.call import Call, constant, described, inlined_producers, is_power_of_two, storage_of
from tests.schedule.points import pair, refused

NUMBER: Any = 2.5  # a value that type checkers refuse


def test_positions_count_from_either_end() -> None:
    _, a, _ = pair(4, 6, 8)
    call = Call("split", a)
    assert [call.position(k, a.schedule.loop) for k in (-3, -2, -1, 0, 1, 2)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("axis", [3, -4])
def test_a_position_that_is_not_there(axis: int) -> None:
    _, a, _ = pair(4, 6, 8)
    expected = f"split(tv1): axis {axis} is out of range: the loop domain has 3 axes\nhelp: use an axis in [-3, 2]"
    assert refused(lambda: Call("split", a).position(axis, a.schedule.loop), a.fusion) == expected


def test_a_domain_without_axes_has_no_position_to_advise() -> None:
    _, a, _ = pair()
    assert refused(lambda: Call("split", a).position(0, a.schedule.loop), a.fusion) == "split(tv1): axis 0 is out of range: the loop domain has 0 axes"
    assert refused(lambda: Call("split", a).position(NUMBER, a.schedule.loop), a.fusion) == "split(tv1): 2.5 is not a position of an axis"


def test_errors_name_the_task_behind_other_notes() -> None:
    _, a, b = pair(4)
    assert Call("split", a).error("why").notes == ()
    a.fusion.task([a, b], "both")
    error = Call("split", a).error("why", "what to do", notes=("a fact",))
    assert (error.notes, error.help, error.message) == (("a fact", "tv1 lies in task both"), "what to do", "split(tv1): why")


def test_readers_are_given_once_and_known() -> None:
    x, a, b = pair(4)
    call = Call("duplicate", a)
    assert call.readers([b, b], (b,)) == (b,)
    with pytest.raises(ScheduleError, match=r"tv0 does not read it\n.*\n.*\n.*\nhelp: its readers are tv2"):
        call.readers([x], (b,))
    with pytest.raises(ScheduleError, match="no reader is given"):
        call.readers([], (b,))
    with pytest.raises(ScheduleError, match=r"'b' is not a tensor"):
        call.readers(["b"], (b,))
    with pytest.raises(ScheduleError, match="help: its readers are none"):
        call.readers([], ())


def test_axes_that_may_be_transformed() -> None:
    _, a, b = pair(4, 6)
    a.inline_at(1)
    for tv in (a, b):
        Call("split", tv).check_free(1)
    advice = "help: transform before inlining, or tv1.inline_at(0)"
    own, other = "split(tv1): axis 0 (extent 4) is shared with the readers: tv1 is inlined at 1", "split(tv2): axis 0 (extent 4) is shared with tv1, which"
    assert refused(lambda: Call("split", a).check_free(0), a.fusion) == f"{own}\n{advice}"
    assert refused(lambda: Call("split", b).check_free(0), a.fusion) == f"{other} is inlined at 1\n{advice}"
    b.axis(1).parallelize(tf.ParallelType.TIDx)
    with pytest.raises(ScheduleError, match=r"axis 1 \(extent 6\) is bound to TIDx"):
        Call("split", b).check_free(1)


def test_storage_and_producers() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([4, 6], name="x")
        a = tf.exp(x)
        turned = a.T
        y = tf.sin(turned)
        fusion.add_output(y)
    assert storage_of(turned) is a
    assert storage_of(y) is y
    assert inlined_producers(y) == ()
    y.reorder([1, 0])
    a.inline_at(2)
    assert inlined_producers(y) == (a,)  # behind its view
    assert inlined_producers(x) == ()


def test_what_is_shown_of_an_axis() -> None:
    _, a, _ = pair("N", 6)
    assert [described(k, axis) for k, axis in enumerate(a.schedule.loop)] == ["axis 0 (extent N)", "axis 1 (extent 6)"]
    assert [constant(axis) for axis in a.schedule.loop] == [None, 6]


@pytest.mark.parametrize(("n", "expected"), [(-2, False), (0, False), (1, True), (2, True), (3, False), (1 << 40, True), ((1 << 40) + 1, False)])
def test_powers_of_two(n: int, expected: bool) -> None:
    assert is_power_of_two(n) is expected
