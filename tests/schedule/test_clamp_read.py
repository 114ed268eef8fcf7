"""clamp_read: the math stays, whatever is padded; elements are loaded at places that exist; refused with a reason."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.kir import walk
from taskfuse.kir.nodes import VectorCopy
from tests.schedule.shifts import same, shifted


@pytest.mark.parametrize("size", [9, "S"])
def test_a_clamped_read_is_of_a_place_that_exists(size: int | str) -> None:
    fusion, tensors = shifted(1, 1, size=size)
    same(fusion, lambda: [tv.clamp_read() for tv in tensors])


def test_refused() -> None:
    with pytest.raises(ScheduleError, match="it is no choice between an element and a constant"):
        shifted(0, 0)[1][0].clamp_read()


@pytest.mark.parametrize(("before", "after"), [(4, 0), (4, 8), (0, 4)])
def test_vectors_have_an_element_or_none(before: int, after: int) -> None:
    with tf.Fusion("padded") as fusion:
        x = tf.define_tensor([2, 9, 8], name="x")
        padded = tf.pad(x, [(0, 0), (1, 0), (before, after)])
        y = tf.exp(padded)
        fusion.add_output(y)
    (tv,) = padded.recompute([y])
    given = [np.random.default_rng(0).standard_normal((2, 9, 8)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    new = tv.clamp_read(4)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    for t in (new, tv, y):
        t.split(-1, 4)
    new.axis(-1).parallelize(tf.ParallelType.Vectorize)
    fusion.inline_most([tv])
    fusion.inline_at([new], 3)
    kernel = tf.lower(fusion)
    assert [s.width for s in walk(kernel) if isinstance(s, VectorCopy)] == [4]
    assert kernel.verify().is_proved


@pytest.mark.parametrize(("before", "columns"), [(2, 8), (4, 6)])
def test_vectors_that_begin_elsewhere_are_refused(before: int, columns: int) -> None:
    with tf.Fusion("padded") as fusion:
        padded = tf.pad(tf.define_tensor([2, columns], name="x"), [(0, 0), (before, 8)])
        y = tf.exp(padded)
        fusion.add_output(y)
    (tv,) = padded.recompute([y])
    with pytest.raises(ScheduleError, match="elements of a vector of 4 are no vector of x, or some have no place"):
        tv.clamp_read(4)
