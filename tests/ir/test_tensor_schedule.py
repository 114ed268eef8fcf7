"""The schedule of a tensor before and after calls."""

from dataclasses import fields, replace
from typing import Any

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.ir.tensor_schedule import TensorSchedule


def test_a_new_tensor_is_computed_element_by_element() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 4], name="x")
        fusion.add_output(y := x + 1)
    schedule = y.schedule
    assert tuple(schedule.loop) == y.root
    assert (schedule.inline, schedule.stages, schedule.in_flight) == (0, 1, 0)
    assert schedule.memory is None
    assert schedule.atom is None
    assert {schedule.ptype(axis) for axis in schedule.loop} == {P.Serial}


def test_two_tensors_share_nothing() -> None:
    with tf.Fusion("f") as fusion:
        x = tf.define_tensor([8, 4], name="x")
        y = x + 1
        fusion.add_output(z := y * 2)
    y.axis(0).parallelize(P.BIDx)
    y.split(1, 2)
    assert y.schedule.ptype(y.schedule.loop[0]) is P.BIDx
    assert z.schedule.ptype(z.schedule.loop[0]) is P.Serial
    assert (len(y.schedule.transforms), len(z.schedule.transforms)) == (1, 0)


def test_a_copy_has_every_field_and_shares_no_container() -> None:
    values: list[Any] = [[0], [1], {2: 2}, *range(3, len(fields(TensorSchedule)))]
    whole = TensorSchedule(*values)
    copied = whole.copied()
    assert copied == whole
    assert whole.copied("ring") == replace(whole, ring="ring")
    copied.loop.clear()
    copied.transforms.clear()
    copied.ptypes.clear()
    assert whole.loop
    assert whole.transforms
    assert whole.ptypes
