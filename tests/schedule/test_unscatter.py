"""unscatter: what is assembled of parts as a concatenation in gather form: the same values; what it does not take."""

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Assemble, FirstValid
from tests.lowering.running import agrees, numbers
from tests.schedule.points import refused


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("op", [tf.cat, tf.stack])
def test_the_same_values(op: Callable[..., tf.TensorView], dim: int) -> None:
    with tf.Fusion("joined") as fusion:
        x, y = (tf.define_tensor([3, 4], name=name) for name in "xy")
        whole = op([tf.relu(x), y * 2.0], dim, "scatter")
        fusion.add_output(whole)
    args = numbers(3, 4), numbers(3, 4, seed=1)
    (before,) = fusion.evaluate(*args)
    assert isinstance(fusion.definition(whole), Assemble)
    assert whole.unscatter() is whole
    assert isinstance(fusion.definition(whole), FirstValid)
    np.testing.assert_array_equal(before, fusion.evaluate(*args)[0])
    agrees(fusion, *args)


def test_there_and_back() -> None:
    with tf.Fusion("joined") as fusion:
        x, y = (tf.define_tensor([3, n], name=name) for name, n in (("x", 4), ("y", 1)))
        fusion.add_output(tf.cat([x, y], 1))
    fusion.outputs[0].scatter()
    fusion.outputs[0].unscatter()
    args = numbers(3, 4), numbers(3, 1, seed=1)
    assert isinstance(fusion.definition(fusion.outputs[0]), FirstValid)
    np.testing.assert_array_equal(fusion.evaluate(*args)[0], np.concatenate(args, 1))
    agrees(fusion, *args)


def test_what_is_not_assembled() -> None:
    with tf.Fusion("sum") as fusion:
        x = tf.define_tensor([4], name="x")
        y = x + 1.0
        fusion.add_output(y)
    assert "it is not assembled from parts" in refused(y.unscatter, fusion)


def test_assemblies_of_assemblies_are_scheduled() -> None:
    """No kernel stores the slices of one tensor as slices of another: the last resort stores none."""
    with tf.Fusion("nested") as fusion:
        x = tf.define_tensor([3, 3], name="x")
        inner = tf.stack([tf.exp(x), tf.sin(x)], 0, "scatter")
        fusion.add_output(tf.cat([inner, inner], 1, "scatter"))
    run = tf.compile(fusion, "sim")
    args = (numbers(3, 3),)
    np.testing.assert_allclose(run(*args)[0], fusion.evaluate(*args)[0], rtol=1e-6)
    assert run.schedule is not None
    assert "unscatter()" in run.schedule.code
