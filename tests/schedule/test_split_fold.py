"""Folds by parts: the states of parts are joined as their steps compose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.expr import Fold
from taskfuse.ir.identity import among
from taskfuse.ir.types import ParallelType as P

Build = Callable[[tf.TensorView, tf.TensorView], tf.TensorView]
FOLDS: dict[str, Build] = {
    "recurrence": lambda x, d: tf.decayed_sum(x, d, axis=1),
    "with a start": lambda x, d: tf.decayed_sum(x, d, axis=1, init=3),
    "first axis": lambda x, d: tf.decayed_sum(x, d, axis=0),
    "sum": lambda x, d: tf.fold("add", x * d, axis=1, init=2),
    "maximum": lambda x, d: tf.fold("maximum", x, axis=1, init=-1),
}


def made(build: Build, shape: list[int | str]) -> tuple[tf.Fusion, tf.TensorView]:
    with tf.Fusion("folded") as fusion:
        out = build(tf.define_tensor(shape, name="x"), tf.define_tensor(shape, name="d"))
        fusion.add_output(out)
    return fusion, out


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
    code = [*out.split_fold(8), out]
    for tv in code:
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    fusion.inline_most(code)
    walks = [tv for tv in code[:-1] if len(tv.loop) == 3 and tv.loop[2].is_reduction and str(tv.loop[2].extent) != "8"]
    for tv in walks:  # complete before any is joined
        tv.inline_at(1)
    fusion.inline_most([tv for tv in code if not among(tv, walks)])
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
