"""Concatenations and stacks of computed parts."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import CatConfig, Form
from tests.proofs import proved, sizes_of
from tests.schedulers.automatic import founding
from tests.schedulers.oracle import array, checked


@pytest.mark.parametrize("form", Form)
@pytest.mark.parametrize(("shape", "dim"), [((16, 24), 0), (("N", "M"), 1)])
def test_every_form_of_a_concatenation(form: Form, shape: tuple[int | str, ...], dim: int) -> None:
    fusion, x = founding(*shape, dim=dim), array(*((16, 24) if dim == 0 else (5, 7)))
    (wanted,) = fusion.evaluate(x)
    schedule = tf.schedulers.cat(fusion, CatConfig(form))
    kernel = tf.lower(fusion)
    proved(kernel, sizes_of(kernel, [x]))
    np.testing.assert_allclose(kernel.simulate(x)[0], wanted, rtol=1e-6)
    assert f"given: {form.value}" in schedule.explain()


def uneven() -> tf.Fusion:
    with tf.Fusion("uneven") as fusion:
        x, y = tf.define_tensor(["M", "N"], name="x"), tf.define_tensor(["M", 8], name="y")
        fusion.add_output(tf.exp(tf.cat([tf.sin(x), y, tf.relu(x) + 1], 1)))
    return fusion


def test_parts_of_unequal_shape() -> None:
    checked(uneven(), [array(4, 12), array(4, 8)])
    fusion = uneven()
    text = str(fusion)
    with pytest.raises(UnsupportedError, match="the parts of tv5 differ in shape, so they share no loop"):
        tf.schedulers.cat(fusion, CatConfig(Form.SHARED))
    assert str(fusion) == text
    tf.schedulers.cat(fusion, CatConfig(Form.BLOCKS))
    x, y = array(4, 12), array(4, 8)
    np.testing.assert_allclose(tf.lower(fusion).simulate(x, y)[0], uneven().evaluate(x, y)[0], rtol=1e-6)
