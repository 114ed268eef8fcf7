"""gather_as_sum: the math stays, for indices from both ends and outside, of all types; refused with a reason."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Reduction
from taskfuse.ir.values import MODULAR
from tests.errors import text_of

RNG = np.random.default_rng(0)
COLUMNS = 7
INDICES = np.array([0, 6, -1, -7, 7, -8, 100, 3])
"""From both ends, the last two outside."""


def picked(dtype: tf.DType = tf.float32, index: tf.DType = tf.int64, *, keeps: bool = False, columns: int | str = COLUMNS) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("picked") as fusion:
        x = tf.define_tensor([len(INDICES), columns], dtype=dtype, name="x")
        at = tf.define_tensor([len(INDICES)], dtype=index, name="at")
        found = tf.take_along_axis(x, tf.expand_dims(at, 1), 1)
        fusion.add_output(found if keeps else tf.neg(tf.squeeze(found, 1)))
    return fusion, found


@pytest.mark.parametrize("index", [tf.int64, tf.int32, tf.int8, tf.uint8])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int32])
def test_the_math_stays(dtype: tf.DType, index: tf.DType) -> None:
    """Words of modular arithmetic: of one term a sum is that."""
    for keeps, columns in ((True, COLUMNS), (False, "V")):
        fusion, found = picked(dtype, index, keeps=keeps, columns=columns)
        x = RNG.integers(-50, 50, (len(INDICES), COLUMNS)).astype(dtype.numpy)
        at = np.where(INDICES < 0, 4, INDICES).astype(index.numpy) if index is tf.uint8 else INDICES.astype(index.numpy)
        (wanted,) = evaluate(fusion, [x, at], MODULAR)
        made = found.gather_as_sum()
        assert isinstance(made.definition, Reduction)
        assert made.ndim == 1
        assert np.array_equal(evaluate(fusion, [x, at], MODULAR)[0], wanted)
        assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_what_it_makes_is_a_proved_kernel() -> None:
    fusion, found = picked()
    found.gather_as_sum()
    fusion.inline_most()
    kernel = tf.lower(fusion)
    assert kernel.verify().verdict is Verdict.PROVED
    x = RNG.random((len(INDICES), COLUMNS), np.float32)
    assert np.array_equal(kernel.simulate(x, INDICES, seed=0)[0], picked()[0].evaluate(x, INDICES)[0])


def scheduled() -> object:
    found = picked()[1]
    found.split(0, 2)
    return found.gather_as_sum()


def elementwise() -> object:
    with tf.Fusion("negative"):
        return tf.neg(tf.define_tensor([3, 4])).gather_as_sum()


REFUSED: list[tuple[Callable[[], object], str]] = [
    (scheduled, "call gather_as_sum before split"),
    (elementwise, "is not a gather of numbers along one axis"),
    (lambda: picked(tf.bool_, keeps=True)[1].gather_as_sum(), "is not a gather of numbers along one axis"),
]


@pytest.mark.parametrize(("call", "reason"), REFUSED)
def test_what_is_refused(call: Callable[[], object], reason: str) -> None:
    assert reason in text_of(call, ScheduleError)
