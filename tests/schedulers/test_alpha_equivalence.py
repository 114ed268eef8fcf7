"""Equal pieces: scheduled, lowered and proved once, in the names of each."""

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.runtime import kernel
from taskfuse.runtime.chain import Chain
from taskfuse.schedulers import alpha_equivalence
from taskfuse.schedulers.auto import candidates
from taskfuse.schedulers.segmenter import choose_segments
from tests.schedulers.oracle import pasted


def layers(count: int) -> tf.Fusion:
    """Softmaxes of rows and of columns in turn, with a weight of each layer."""
    with tf.Fusion("layers") as fusion:
        x = tf.define_tensor([64, 64], name="x")
        for k in range(count):
            y = tf.softmax(x * tf.define_tensor([64], name=f"weight_{k}"), axis=1)
            x = tf.softmax(y, axis=0)
        fusion.add_output(x)
    return fusion


def piece(a: str, b: str, c: str, scale: float = 2.0) -> tf.Fusion:
    with tf.Fusion(a) as fusion:
        x = tf.define_tensor(["M", 64], name=a)
        y = tf.define_tensor([64], name=b)
        total = tf.sum(x * y * scale, axis=1)
        fusion.add_output(total)
    del c
    return fusion


def elementwise(name: str) -> tf.Fusion:
    with tf.Fusion(name) as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(["M", 64], name=name)))
    return fusion


def test_a_form_ignores_names_and_nothing_else() -> None:
    first = alpha_equivalence.form(piece("x", "y", "z"))
    assert alpha_equivalence.form(piece("tv9", "split", "x")).text == first.text
    assert alpha_equivalence.form(piece("x", "y", "z", 3.0)).text != first.text
    assert first.names[:2] == ("x", "y")


def test_the_order_of_inputs_counts() -> None:
    def ordered(turned: bool) -> tf.Fusion:
        fusion = piece("x", "y", "z")
        if turned:
            fusion.inputs.reverse()
        return fusion

    assert alpha_equivalence.form(ordered(True)).text != alpha_equivalence.form(ordered(False)).text


@pytest.mark.parametrize("names", [("tv5", "tv6"), ("fusion", "for"), ("y", "x"), ("axis", "split")])
def test_a_schedule_in_other_names_is_the_one_that_would_have_been_made(names: tuple[str, str]) -> None:
    one, other = piece("x", "y", "z"), piece(*names, "z")
    found = candidates(one).best
    assert found is not None
    renamed = alpha_equivalence.in_other_names(found, alpha_equivalence.form(one).names, alpha_equivalence.form(other).names)
    space = {"fusion": tf.copy_fusion(other)[0]}
    exec(renamed.schedule.code, space)
    renamed.fusion.name = other.name
    assert str(tf.lower(space["fusion"])) == str(tf.lower(renamed.fusion))
    assert alpha_equivalence.form(renamed.fusion).text == alpha_equivalence.form(found.fusion).text


def test_an_apostrophe_in_a_comment_does_not_begin_a_string() -> None:
    one, other = (elementwise(name) for name in ("x", "z"))
    found = candidates(one).best
    assert found is not None
    assert found.schedule.code.partition("# ")[2].partition("\n")[0].count("'") == 1
    renamed = alpha_equivalence.in_other_names(found, alpha_equivalence.form(one).names, alpha_equivalence.form(other).names)
    space = {"fusion": tf.copy_fusion(other)[0]}
    exec(renamed.schedule.code, space)
    assert "fusion.tensor('z')" in renamed.schedule.code
    assert "readers' points" in renamed.schedule.code


def test_code_of_equal_segments_makes_their_kernels() -> None:
    fusion = layers(3)
    found = choose_segments(fusion)
    assert len(found.steps) >= 4
    for step, again in zip(found.steps, pasted(fusion, found), strict=True):
        assert str(tf.lower(again)) == str(tf.lower(step.fusion))


def test_equal_layers_are_lowered_once_and_right(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []
    real = kernel.lower

    def noted(fusion: tf.Fusion, *rest: Any) -> tf.Kernel:
        lowered.append(fusion.name)
        return real(fusion, *rest)

    monkeypatch.setattr(kernel, "lower", noted)
    few = tf.compile(layers(2), backend="sim")
    cost = len(lowered)
    fusion = layers(5)
    many = tf.compile(fusion, backend="sim")
    assert isinstance(few, Chain)
    assert isinstance(many, Chain)
    assert len(many.links) > len(few.links)
    assert len(lowered) - cost <= cost + 2
    assert len({id(link.run) for link in many.links}) < len(many.links)
    arguments = [np.random.default_rng(k).uniform(0.1, 1.0, [int(n) for n in tv.shape]).astype(np.float32) for k, tv in enumerate(fusion.inputs)]
    (found,), (wanted,) = many(*arguments), fusion.evaluate(*arguments)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
