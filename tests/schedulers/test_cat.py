"""Concatenations and stacks of computed parts."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.walk import accesses, walk
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


def test_inputs_are_copied_by_parts_in_vectors() -> None:
    """A key cache: the loops of the result would load each element of both inputs under a condition. Copies of large inputs have one vector per thread."""
    with tf.Fusion("cache") as fusion:
        past, new = tf.define_tensor([8, 2048, 1024], tf.bfloat16, name="past"), tf.define_tensor([8, 64, 1024], tf.bfloat16, name="new")
        fusion.add_output(tf.cat([past, new], 1))
    found = tf.schedulers.cat(fusion)
    assert found.config.form is Form.BLOCKS
    assert [o.config.form for o in found.alternatives][1] is Form.GATHER
    lines = [line.strip() for line in str(tf.lower(fusion)).splitlines()]
    assert sum(line.endswith("width 8") for line in lines) == 4  # a load and a store of each
    assert not any("UNROLL" in line for line in lines)


def test_the_axes_of_what_is_joined_may_be_turned() -> None:
    """A rotary embedding whose result has heads before positions: each half is computed once, from vectors."""
    with tf.Fusion("rotary") as fusion:
        x, c, s = tf.define_tensor([2, 8, 4, 16], name="x"), tf.define_tensor([2, 8, 1, 8], name="c"), tf.define_tensor([2, 8, 1, 8], name="s")
        low, high = x[..., :8], x[..., 8:]
        fusion.add_output(tf.copy(tf.permute(tf.cat([low * c - high * s, high * c + low * s], 3), [0, 2, 1, 3])))
    given = [array(2, 8, 4, 16), array(2, 8, 1, 8), array(2, 8, 1, 8)]
    (wanted,) = fusion.evaluate(*given)
    assert tf.schedulers.cat(fusion).config.form is Form.SHARED
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    np.testing.assert_array_equal(kernel.simulate(*given)[0], wanted)
    assert all(isinstance(s, VectorCopy) for s in walk(kernel.body) if any(a.buffer == "x" for a in accesses(s)[1]))
