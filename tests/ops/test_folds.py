"""Folds, against NumPy loops; exclusive scans, against shifted ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import DTypeError, ShapeError, TaskfuseError


def recurrence(x: np.ndarray, decay: np.ndarray, axis: int, init: float = 0.0) -> np.ndarray:
    x, decay = np.moveaxis(x.astype(np.float64), axis, 0), np.moveaxis(decay.astype(np.float64), axis, 0)
    state = np.full(x.shape[1:], init)
    for a, b in zip(decay, x, strict=True):
        state = state * a + b
    return state


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16], ids=str)
def test_a_linear_recurrence(axis: int, dtype: tf.DType) -> None:
    with tf.Fusion() as fusion:
        x, decay = (tf.define_tensor([5, 9], dtype=dtype) for _ in range(2))
        fusion.add_output(tf.decayed_sum(x, decay, axis=axis, init=0.5))
    fusion.inline_most()
    rng = np.random.default_rng(1)
    args = [rng.uniform(0, 1, (5, 9)).astype(dtype.numpy) for _ in range(2)]
    wanted = recurrence(args[0], args[1], axis, 0.5)
    tolerance = 1e-6 if dtype is tf.float32 else 2.0**-8
    np.testing.assert_allclose(fusion.evaluate(*args)[0].astype(np.float64), wanted, rtol=tolerance)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    np.testing.assert_allclose(kernel.simulate(*args, seed=1)[0].astype(np.float64), wanted, rtol=tolerance)


def test_steps_are_taken_in_order() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["N"], dtype=tf.int32)
        fusion.add_output(tf.fold("sub", x, init=100))
        fusion.add_output(tf.fold("floor_divide", tf.maximum(x, 1), init=1000))
    fusion.inline_most()
    x = np.array([1, 2, 3], np.int32)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    for found in (fusion.evaluate(x), kernel.simulate(x, seed=0)):
        assert [int(v) for v in found] == [94, 166]


def test_without_steps_it_is_the_first_state() -> None:
    with tf.Fusion() as fusion:
        n = tf.dim("N", min=0)
        fusion.add_output(tf.fold("maximum", tf.define_tensor([3, n]), init=-2.0))
    assert fusion.evaluate(np.zeros((3, 0), np.float32))[0].tolist() == [-2.0] * 3
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert kernel.simulate(np.zeros((3, 0), np.float32), seed=0)[0].tolist() == [-2.0] * 3


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
def test_exclusive_scans(name: str) -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"], dtype=tf.float32)
        fusion.add_output(getattr(tf, name)(x, 1, exclusive=True))
        fusion.add_output(getattr(tf, name)(x, 1))
    x = np.random.default_rng(0).integers(-4, 5, (3, 6)).astype(np.float32)
    first = {"cumsum": 0, "cumprod": 1, "cummax": -np.inf, "cummin": np.inf}[name]
    kernel = tf.lower(fusion)
    kernel.verify().require()
    for before, inclusive in (fusion.evaluate(x), kernel.simulate(x, seed=2)):
        assert (before[:, 0] == first).all()
        assert (before[:, 1:] == inclusive[:, :-1]).all()


@pytest.mark.parametrize("extent", [2, 4])
def test_exclusive_scans_in_chunks(extent: int) -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor([7], dtype=tf.bfloat16)
        total = tf.cumsum(x, 0, dtype=tf.float32, exclusive=True)
        fusion.add_output(total)
    total.chunk_scan(extent)
    x = np.arange(1, 8).astype(tf.bfloat16.numpy)
    assert fusion.evaluate(x)[0].tolist() == [0, 1, 3, 6, 10, 15, 21]


def test_the_text_comes_back() -> None:
    with tf.Fusion("f") as fusion:
        x, y = tf.define_tensor(["M", "N"], name="x"), tf.define_tensor(["N"], name="y")
        fusion.add_output(tf.fold("fma", x, y, axis=1, init=1.5))
        fusion.add_output(tf.cumsum(x, 1, exclusive=True))
    text = str(fusion)
    assert "= fold fma of (x, y[i1]) along i1: N init 1.5" in text
    assert "= scan add of x along i1 exclusive" in text
    assert str(tf.parse_fusion(text)) == text
    kernel = tf.lower(fusion)
    assert tf.parse_kernel(kernel.text(witness=True)) == kernel


@pytest.mark.parametrize(
    ("step", "count", "dtype", "error", "reason"),
    [
        ("nothing", 1, tf.float32, ShapeError, "'nothing' is not an elementwise function, or the name of one"),
        ("fma", 1, tf.float32, ShapeError, "takes 3 operands, of which the state is the first; 1 others are given"),
        ("lt", 1, tf.float32, DTypeError, "gives bool, which cannot be the state of the next step"),
        ("exp", 0, tf.float32, ShapeError, "the number of steps is unknown"),
        ("where", 2, tf.float32, DTypeError, "the state would be the condition of 'where'"),
        ("bitwise_and", 1, tf.float32, DTypeError, "needs bool or integer operands"),
    ],
)
def test_what_is_no_step(step: str, count: int, dtype: tf.DType, error: type[TaskfuseError], reason: str) -> None:
    with tf.Fusion():
        x = tf.define_tensor(["N"], dtype=dtype)
        with pytest.raises(error, match=reason):
            tf.fold(step, *[x] * count)


def test_a_start_that_is_no_number() -> None:
    with tf.Fusion(), pytest.raises(DTypeError, match="init= is 'a', not a number"):
        tf.fold("add", tf.define_tensor(["N"]), init="a")


def test_a_scan_is_exclusive_or_not() -> None:
    wrong: Any = "yes"
    with tf.Fusion(), pytest.raises(DTypeError, match="cumsum: exclusive= is 'yes'"):
        tf.cumsum(tf.define_tensor(["N"]), 0, exclusive=wrong)


def test_a_fold_is_not_split_over_threads() -> None:
    with tf.Fusion() as fusion:
        y = tf.decayed_sum(tf.define_tensor(["M", "N"]), tf.define_tensor(["M", "N"]))
        fusion.add_output(y)
    y.axis(1).parallelize(tf.ParallelType.TIDx)
    with pytest.raises(tf.errors.LoweringError, match="runs along the axis of its fold and is bound to TIDx: each state needs the one before it"):
        tf.lower(fusion)


def test_a_function_for_its_name() -> None:
    texts: list[str] = []
    for step in ("maximum", tf.maximum):
        with tf.Fusion("greatest") as fusion:
            fusion.add_output(tf.fold(step, tf.define_tensor([3, 4], name="x"), axis=0, init=-9.0))
        texts.append(str(fusion))
    assert texts[0] == texts[1]
    with tf.Fusion("own"), pytest.raises(ShapeError, match="is not an elementwise function") as caught:
        tf.fold(abs, tf.define_tensor([3], name="x"))
    assert "tf.associative_scan" in str(caught.value)
