"""Booleans of places: which are conditions, and choices by them."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.expr import FirstValid, IndexValue, Pointwise, Read
from taskfuse.schedule.index_conditions import as_choice, condition_of, of_indices

T = tf.TensorView
Build = Callable[[T, T, T], T]


def built(build: Build) -> tuple[tf.Fusion, T]:
    """Of x [M, N], with the numbers of its rows and columns."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        out = build(x, tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0))
        fusion.add_output(out)
    return fusion, out


CONDITIONS: dict[str, tuple[Build, str]] = {
    "a diagonal": (lambda x, i, j: j <= i, "i1 <= i0"),
    "shifted": (lambda x, i, j: j - 3 > i * 2, "2*i0 < i1 - 3"),
    "a band": (lambda x, i, j: tf.logical_and(j <= i, j > i - 20), "i1 <= i0 && i0 - 20 < i1"),
    "either": (lambda x, i, j: tf.logical_or(j < 4, j <= i), "i1 < 4 || i1 <= i0"),
    "not": (lambda x, i, j: tf.logical_not(j <= i), "i0 < i1"),
    "one of several": (lambda x, i, j: tf.eq(j, i), "i0 == i1"),
    "the larger one": (lambda x, i, j: j < tf.maximum(i + 1, 7), "i1 < max(i0 + 1, 7)"),
    "elements": (lambda x, i, j: x > 0.0, "None"),
    "of numbers that round": (lambda x, i, j: tf.cast(j, tf.float32) <= tf.cast(i, tf.float32), "None"),
    "of numbers that wrap": (lambda x, i, j: tf.cast(j, tf.int32) * 65536 <= tf.cast(i, tf.int32), "None"),
    "of integers as booleans": (lambda x, i, j: tf.logical_and(j, i), "None"),
    "also of elements": (lambda x, i, j: tf.logical_and(j <= i, x > 0.0), "None"),
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name: str) -> None:
    build, wanted = CONDITIONS[name]
    fusion, out = built(build)
    assert str(condition_of(fusion, Read(out, iteration_point(2)))) == wanted


CHOICES: dict[str, tuple[Build, bool]] = {
    "an element or a constant": (lambda x, i, j: tf.where(j <= i, x, -math.inf), True),
    "a constant or an element": (lambda x, i, j: tf.where(j > i, -math.inf, x), True),
    "one of two elements": (lambda x, i, j: tf.where(j < i, x, -x), True),
    "one of two constants": (lambda x, i, j: tf.where(j < i, 1.0, 2.0) + x, False),
    "by elements": (lambda x, i, j: tf.where(x > 0.0, x, 0.0), False),
    "another op": (lambda x, i, j: tf.add(x, 1.0), False),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    build, is_choice = CHOICES[name]
    fusion, out = built(build)
    expr = next(e for e in reversed(fusion.exprs()) if isinstance(e, Pointwise) and (e.op.name == "where" or e.output is out))
    made = as_choice(fusion, expr)
    assert isinstance(made, FirstValid) == is_choice
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    (wanted,) = fusion.evaluate(x)
    fusion.define(made)
    np.testing.assert_array_equal(fusion.evaluate(x)[0], wanted)


OF_INDICES: dict[str, tuple[Build, str]] = {
    "a distance": (lambda x, i, j: tf.cast(j - i, tf.float32), "i1 - i0"),
    "an index as a number": (lambda x, i, j: tf.cast(tf.broadcast_to(i, list(x.shape)), tf.float32), "i0"),
    "of numbers that wrap": (lambda x, i, j: tf.cast(tf.cast(j, tf.int32) * 65536, tf.float32) + x, "None"),
    "an integer": (lambda x, i, j: j - i, "None"),
    "elements": (lambda x, i, j: tf.cast(tf.cast(x, tf.int64), tf.float32), "None"),
}


@pytest.mark.parametrize("name", OF_INDICES)
def test_functions_of_indices(name: str) -> None:
    build, wanted = OF_INDICES[name]
    fusion, out = built(build)
    expr = fusion.definition(out)
    assert isinstance(expr, Pointwise)
    made = of_indices(fusion, expr)
    found = [str(o.index) for o in made.operands if isinstance(o, IndexValue)]
    assert found == ([] if wanted == "None" else [wanted])
    x = np.random.default_rng(0).standard_normal((5, 9)).astype(np.float32)
    (given,) = fusion.evaluate(x)
    fusion.define(made)
    np.testing.assert_array_equal(fusion.evaluate(x)[0], given)
