"""cut_reduction: the math stays, for every axis and operator; the parts may be divided further; refused with a reason."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
@pytest.mark.parametrize(("axis", "at"), [((1,), 12), ((0, 2), 3), ((2,), 1)])
def test_the_math_stays(op: str, axis: tuple[int, ...], at: int) -> None:
    with tf.Fusion("cut") as fusion:
        y = getattr(tf, op)(tf.exp(tf.define_tensor([4, 13, 5], name="x")), axis)
        fusion.add_output(tf.neg(y))
    given = [RNG.uniform(0.5, 1.5, (4, 13, 5)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    y.cut_reduction(axis[-1] if at == 3 else axis[0], at)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    fusion.inline_most()
    assert tf.lower(fusion).verify().is_proved


def test_the_first_part_is_divided_by_what_does_not_divide_the_whole() -> None:
    with tf.Fusion("product") as fusion:
        a, b = tf.define_tensor([3, 29], name="a"), tf.define_tensor([29, 5], name="b")
        y = a @ b
        fusion.add_output(tf.relu(y))
    k = next(p for p, axis in enumerate(y.root) if axis.is_reduction)
    first, rest = y.cut_reduction(k, 24)
    assert [str(e) for e in first.chunk_reduction(k, 8).shape] == ["3", "3", "5"]
    assert [str(e) for e in rest.shape] == ["3", "5"]
    given = [RNG.integers(-2, 3, shape).astype(np.float32) for shape in ((3, 29), (29, 5))]
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert np.array_equal(kernel.simulate(*given)[0], np.maximum(given[0] @ given[1], 0))


def test_refused() -> None:
    with tf.Fusion("sums") as fusion:
        y = tf.sum(tf.define_tensor([4, "K"], name="x"), 1)
        z = tf.sum(tf.define_tensor([4, 6], name="z"), 1)
        fusion.add_output(y, z)
    for tv, axis, at, text in (
        (z, 0, 2, "is not a reduction axis"),
        (z, 1, 6, "behind 6 elements of an axis of 6 none may be left"),
        (y, 1, 1, "behind 1 elements of an axis of K none may be left"),
        (z, 1, 0, "the first part has 0 elements"),
    ):
        with pytest.raises(ScheduleError, match=text):
            tv.cut_reduction(axis, at)
