"""split_reduction: the math stays, for every axis and operator; what was read at digits is read in place; refused with a reason."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Reduction
from taskfuse.ir.storage import storage_reads
from taskfuse.ir.values import MODULAR
from taskfuse.schedule.split_reduction import digits

RNG = np.random.default_rng(0)


def reshaped(op: str = "sum", axis: int = 1) -> tuple[tf.Fusion, tf.TensorView]:
    """A reduction of a computed tensor whose middle axes are merged."""
    with tf.Fusion("merged") as fusion:
        y = getattr(tf, op)(tf.reshape(tf.exp(tf.define_tensor([4, 6, 8, 3], name="x")), [4, 48, 3]), axis)
        fusion.add_output(y)
    return fusion, y


def found(fusion: tf.Fusion, tv: tf.TensorView) -> tuple[int, int] | None:
    expr = fusion.definition(tv)
    assert isinstance(expr, Reduction)
    return digits(fusion, expr)


@pytest.mark.parametrize("op", ["sum", "max", "prod"])
@pytest.mark.parametrize(("axis", "inner"), [(0, 2), (1, 8), (1, 4), (2, 3)])
def test_the_math_stays(op: str, axis: int, inner: int) -> None:
    fusion, y = reshaped(op, axis)
    given = [RNG.uniform(0.5, 1.5, (4, 6, 8, 3)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    y.split_reduction(axis, inner)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    fusion.inline_most()
    assert tf.lower(fusion).verify().is_proved


def test_what_is_read_at_digits_is_read_in_place() -> None:
    fusion, y = reshaped()
    assert found(fusion, y) == (1, 8)
    y.split_reduction(1, 8)
    assert y.definition is not None
    (read,) = storage_reads(fusion, y.definition)
    assert [str(e) for e in read.index] == ["i0", "i1", "i2", "i3"]
    assert found(fusion, y) is None


def test_an_axis_that_is_not_read_at_digits_alone_stays() -> None:
    with tf.Fusion("shifted") as fusion:
        x, w = tf.define_tensor([4, 6, 8], name="x"), tf.define_tensor([48], name="w")
        y = tf.sum(tf.reshape(tf.exp(x), [4, 48]), 1)
        z = tf.reshape(tf.exp(x), [4, 48]) @ tf.exp(w)
        fusion.add_output(y, z)
    assert found(fusion, y) == (1, 8)
    products = [e for e in fusion.exprs() if isinstance(e, Reduction) and len(e.operands) == 2]
    assert [digits(fusion, e) for e in products] == [None]  # w has the whole axis


def test_symbolic_extents() -> None:
    with tf.Fusion("rows") as fusion:
        h = tf.exp(tf.define_tensor(["B", 8, 3], name="x"))
        y = tf.sum(tf.reshape(h, [-1, 3]), 0)
        fusion.add_output(y)
    assert found(fusion, y) == (0, 8)
    y.split_reduction(0, 8)
    x = RNG.uniform(size=(5, 8, 3)).astype(np.float32)
    assert np.allclose(evaluate(fusion, [x])[0], np.exp(x).sum((0, 1)), rtol=1e-5)


def test_refused() -> None:
    fusion, y = reshaped()
    with pytest.raises(ScheduleError, match="5 does not divide the axis of 48"):
        y.split_reduction(1, 5)
    with pytest.raises(ScheduleError, match="axis 0 of tv3 is not a reduction axis"):
        y.split_reduction(0, 2)
    with pytest.raises(ScheduleError, match="tv1 is not a reduction"):
        fusion.tensor("tv1").split_reduction(0, 2)


def test_a_reduction_of_a_reshaped_result_is_one_kernel_with_it() -> None:
    with tf.Fusion("gradients") as fusion:
        h = tf.exp(tf.define_tensor([3, 4, 8, 8], name="x"))
        fusion.add_output(h, tf.sum(tf.reshape(h, [3, 4, 64]), 2))
    chosen = tf.schedulers.reduction(fusion)
    assert "split_reduction(2, 8)" in chosen.code
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    x = RNG.uniform(size=(3, 4, 8, 8)).astype(np.float32)
    assert np.allclose(kernel.simulate(x)[1], np.exp(x).sum((2, 3)), rtol=1e-5)
