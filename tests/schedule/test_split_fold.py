"""Folds by parts: the states of parts are joined as their steps compose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import LoweringError, ScheduleError
from taskfuse.ir.expr import Fold
from tests.schedule.folded import FOLDS, Build, by_threads, made


def arguments(shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(shape).astype(np.float32), rng.uniform(0.2, 1.1, shape).astype(np.float32)]


@pytest.mark.parametrize("parts", [1, 3, 4, 16])
@pytest.mark.parametrize("name", FOLDS)
def test_the_result_is_that_of_the_fold(name: str, parts: int) -> None:
    fusion, out = made(FOLDS[name], ["M", "N"])
    args = arguments((12, 13))
    (wanted,) = fusion.evaluate(*args)
    assert out.split_fold(parts)
    fusion.check()
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    np.testing.assert_allclose(fusion.evaluate(*args)[0], wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["recurrence", "maximum"])
def test_threads_have_parts(name: str) -> None:
    """Eight threads of a row fold eight parts, and join them: proved for all extents."""
    fusion, out = made(FOLDS[name], ["M", "N"])
    args = arguments((3, 21))
    (wanted,) = fusion.evaluate(*args)
    by_threads(fusion, out, 8)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    np.testing.assert_allclose(kernel.simulate(*args, seed=1)[0], wanted, rtol=2e-5, atol=1e-5)


def test_parts_are_folds_and_their_join_is_a_reduction() -> None:
    fusion, out = made(FOLDS["recurrence"], [4, 64])
    out.split_fold(8)
    (states,) = [e.output for e in fusion.exprs() if isinstance(e, Fold)]
    assert [str(a.extent) for a in states.root] == ["4", "8", "8"]
    assert not isinstance(out.definition, Fold)


def test_refusals() -> None:
    def refusal(build: Build, parts: Any = 4) -> str:
        _, out = made(build, ["M", "N"])
        with pytest.raises(ScheduleError) as caught:
            out.split_fold(parts)
        return str(caught.value)

    assert "is not a fold" in refusal(lambda x, d: tf.sum(x, axis=1))
    assert "there are 0 parts" in refusal(FOLDS["sum"], 0)
    assert "there are 'two' parts" in refusal(FOLDS["sum"], "two")
    assert "how two sequences of steps sub compose is not known" in refusal(lambda x, d: tf.fold("sub", x, axis=1))
    _, out = made(FOLDS["sum"], ["M", "N"])
    out.split(0, 4)
    with pytest.raises(ScheduleError, match="before split"):
        out.split_fold(4)


def started() -> tf.Fusion:
    """A sum of one part, which starts at 2."""
    with tf.Fusion("started") as fusion:
        fusion.add_output(tf.fold("add", tf.define_tensor([3, 16]), axis=1, init=2))
    fusion.outputs[0].split_fold(1)
    return fusion


def test_a_start_is_counted_once() -> None:
    """A reduction of one term is no copy of it; threads with partial results would each begin with the start."""
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    fusion = started()
    tf.schedulers.fallback(fusion)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert np.allclose(kernel.simulate(x)[0], x.sum(1) + 2, rtol=1e-5)
    bound = started()
    bound.outputs[0].split(1, 4)
    bound.outputs[0].axis(2).parallelize(tf.ParallelType.TIDx)
    with pytest.raises(LoweringError, match="each would begin with its initial value 2"):
        tf.lower(bound)


def test_integers_have_neutral_elements_of_their_own() -> None:
    """Parts that end past the axis, and the decays of none, are whole numbers: kernel IR has no other of integers. An unsigned byte decays an integer."""
    with tf.Fusion() as fusion:
        x, decay = tf.define_tensor([2, 5], tf.int32), tf.define_tensor([2, 5], tf.uint8)
        out = tf.decayed_sum(x, decay, axis=1)
        fusion.add_output(out)
    args = np.arange(10, dtype=np.int32).reshape(2, 5), np.arange(3, 13, dtype=np.uint8).reshape(2, 5) % 4
    (wanted,) = fusion.evaluate(*args)
    assert out.split_fold(3)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    np.testing.assert_array_equal(kernel.simulate(*args)[0], wanted)
