"""Reductions against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.ir.axes import AxisKind
from taskfuse.ir.expr import Reduction, View
from taskfuse.ir.fusion import Fusion
from tests.ops.reference import evaluated, message, numbers, symbolic

REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "any": np.any,
    "all": np.all,
}
AXES: list[tuple[tuple[int, ...], Any]] = [
    ((3, 4), None),
    ((3, 4), 0),
    ((3, 4), -1),
    ((2, 3, 4), (0, 2)),
    ((2, 3, 4), (-1, 0)),
    ((1, 5), 0),
    ((3, 4), ()),
    ((), None),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, dtype: str) -> None:
    for shape, axis in AXES:
        x = numbers(shape, dtype, low=1, high=3)
        for keepdims in (False, True):
            found = evaluated(lambda a, axis=axis, keepdims=keepdims: getattr(tf, name)(a, axis, keepdims), x, shapes=[symbolic(x, "N")])
            expected = np.asarray(REDUCTIONS[name](x, axis=axis, keepdims=keepdims))
            assert found.dtype == expected.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "var", "std"])
def test_small_floats_are_accumulated_in_float32(name: str, dtype: str) -> None:
    x = numbers((2, 50), dtype, low=0.5, high=1.5)
    found = evaluated(lambda a: getattr(tf, name)(a, 1), x)
    assert found.dtype == x.dtype
    expected = REDUCTIONS[name](x.astype(np.float64), axis=1).astype(np.float32).astype(x.dtype)
    np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))


def test_over_no_elements() -> None:
    x = np.zeros((2, 0), np.float32)
    assert evaluated(lambda a: tf.sum(a, 1), x).tolist() == [0, 0]
    assert evaluated(lambda a: tf.prod(a, 1), x).tolist() == [1, 1]
    assert evaluated(lambda a: tf.max(a, 1), x).tolist() == [-np.inf, -np.inf]
    assert evaluated(lambda a: tf.min(a, 1), x).tolist() == [np.inf, np.inf]
    assert evaluated(lambda a: tf.any(a, 1), x).tolist() == [False, False]
    assert evaluated(lambda a: tf.all(a, 1), x).tolist() == [True, True]
    assert np.isnan(evaluated(lambda a: tf.mean(a, 1), x)).all()
    assert evaluated(lambda a: tf.sum(a, 0), x).shape == (0,)
    assert evaluated(lambda a: tf.min(a, 1), np.zeros((1, 0), np.int8)).tolist() == [127]


def test_nan_stays() -> None:
    x = np.array([1, np.nan, 2], np.float32)
    for op in (tf.sum, tf.max, tf.min, tf.mean):
        assert np.isnan(evaluated(op, x))


def test_correction() -> None:
    x = numbers((3, 4), "float64")
    np.testing.assert_allclose(evaluated(lambda a: tf.var(a, 1, correction=1), x), x.var(1, ddof=1))
    np.testing.assert_allclose(evaluated(lambda a: tf.std(a, 0, correction=2), x), x.std(0, ddof=2))


def test_dtype_of_a_sum() -> None:
    x = numbers((4,), "int32")
    assert evaluated(lambda a: tf.sum(a, dtype="int32"), x).dtype == np.int32
    assert evaluated(lambda a: tf.sum(a, dtype="float16"), x).dtype == np.float16
    half = np.full(4096, 1, np.float16)
    assert evaluated(lambda a: tf.sum(a, dtype="float32"), half) == 4096


def test_methods() -> None:
    x = numbers((3, 4), "float32")
    for name in ("sum", "prod", "max", "min", "mean"):
        np.testing.assert_allclose(evaluated(lambda a, n=name: getattr(a, n)(1, True), x), getattr(x, name)(1, keepdims=True), rtol=1e-5)


def test_root_axes_stay_in_place_and_kept_dimensions_are_a_view() -> None:
    with Fusion("f") as fusion:
        x = tf.define_tensor(["A", "B", "C"])
        y = tf.sum(x, 1)
        z = tf.sum(x, 1, keepdims=True)
    assert [a.kind for a in y.root] == [AxisKind.ITERATION, AxisKind.REDUCTION, AxisKind.ITERATION]
    assert isinstance(y.definition, Reduction)
    assert isinstance(z.definition, View)
    assert [str(e) for e in z.shape] == ["A", "1", "C"]
    assert fusion.owner(z.definition.operand.tensor) is z


def test_symbolic_mean_divides_by_the_extent() -> None:
    x = numbers((3, 5), "float32")
    np.testing.assert_allclose(evaluated(tf.mean, x, shapes=[["M", "N"]]), x.mean(), rtol=1e-6)


def test_errors() -> None:
    with Fusion("f") as fusion:
        x, scalar = tf.define_tensor(["B", 3]), tf.define_tensor([])
        count = len(fusion.tensors())
        assert message(lambda: tf.sum(x, 2)) == "sum: axis 2 is out of range for tv0 [B, 3]\nhelp: use an axis in [-2, 1]"
        assert message(lambda: tf.max(x, (0, -2))) == "max: axes (0, -2) of tv0 [B, 3] repeat an axis"
        assert message(lambda: tf.mean(scalar, 0)) == "mean: axis 0 is out of range for tv1 []\nhelp: a 0-d tensor has no axes"
        assert message(lambda: tf.var(x, correction=-1)) == ("var: correction is -1\nhelp: use 0 for the population's variance, 1 for the sample's")
        wrong: Any = 1.0
        assert message(lambda: tf.any(wrong)) == "any: takes a tensor, not float\nhelp: make constants with tf.full, inputs with tf.define_tensor"
        assert len(fusion.tensors()) == count
