"""Running totals against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse.ops as tf
from taskfuse.dtypes import as_dtype
from taskfuse.ir.expr import Scan
from taskfuse.ir.fusion import Fusion
from taskfuse.ir.values import MODULAR
from tests.ops.reference import evaluated, message, numbers, symbolic

OPS: dict[str, Callable[..., Any]] = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate, "cummin": np.minimum.accumulate}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "int64", "bool"])
def test_like_numpy(op: str, dtype: str) -> None:
    x = numbers((3, 4, 5), dtype)
    for axis in (0, 1, -1):
        expected = OPS[op](x, axis=axis)
        for shape in (x.shape, symbolic(x, "N")):
            found = evaluated(lambda a, axis=axis: getattr(tf, op)(a, axis), x, shapes=[shape])
            assert found.dtype == (x.dtype if op in ("cummax", "cummin") else expected.dtype)
            np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(evaluated(getattr(tf, op), x), OPS[op](x.reshape(-1)))


@pytest.mark.parametrize("shape", [(0,), (1,), (0, 3), (3, 0), (1, 1)])
def test_empty_and_single(shape: tuple[int, ...]) -> None:
    x = numbers(shape, "float32")
    assert (evaluated(lambda a: tf.cumsum(a, 0), x) == np.cumsum(x, 0)).all()


def test_small_floats_are_accumulated_in_float32() -> None:
    x = np.full(4096, 0.25, np.float16)
    found = evaluated(lambda a: tf.cumsum(a, 0), x)
    assert found.dtype == np.float16
    assert found[-1] == 1024
    assert evaluated(lambda a: tf.cumsum(a, 0, dtype="float64"), x).dtype == np.float64


def test_nan_stays() -> None:
    x = np.array([1, 3, np.nan, 5], np.float32)
    np.testing.assert_array_equal(evaluated(lambda a: tf.cummax(a, 0), x), [1, 3, np.nan, np.nan])
    np.testing.assert_array_equal(evaluated(lambda a: tf.cummin(a, 0), x), [1, 1, np.nan, np.nan])


def test_in_the_ring() -> None:
    x = numbers((6,), "float32")
    words = MODULAR.encode(x, as_dtype("float32"))
    with np.errstate(over="ignore"):
        assert (evaluated(lambda a: tf.cumprod(a, 0), x, values=MODULAR) == np.cumprod(words)).all()


def test_one_expression() -> None:
    with Fusion("f") as fusion:
        total = tf.cumsum(tf.define_tensor(["M", "N"]), -1)
    assert isinstance(total.definition, Scan)
    assert len(fusion.exprs()) == 1
    assert "scan add of tv0 along i1" in str(fusion)


@pytest.mark.parametrize("op", OPS)
def test_errors(op: str) -> None:
    with Fusion("f"):
        x = tf.define_tensor(["M", "N"])
        wrong: Any = 3
        assert message(lambda: getattr(tf, op)(x, 2)) == f"{op}: axis 2 is out of range for tv0 [M, N]\nhelp: use an axis in [-2, 1]"
        assert message(lambda: getattr(tf, op)(wrong)) == f"{op}: takes a tensor, not int\nhelp: make constants with tf.full, inputs with tf.define_tensor"


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_extremes_so_far_and_where_they_are(dtype: str) -> None:
    x = numbers((3, 8), dtype, high=2)
    if dtype == "float32":
        x[1, 3] = x[1, 5] = np.nan
    for op, ufunc in (("cummax_with_indices", np.maximum), ("cummin_with_indices", np.minimum)):
        for axis in (0, 1):
            values, indices = (evaluated(lambda a, op=op, axis=axis, k=k: getattr(tf, op)(a, axis)[k], x) for k in (0, 1))
            expected = ufunc.accumulate(x, axis)
            np.testing.assert_array_equal(values, expected)
            is_extreme = (x == expected) | (x != x)
            place = np.expand_dims(np.arange(int(x.shape[axis])), 1 - axis)
            np.testing.assert_array_equal(indices, np.maximum.accumulate(np.where(is_extreme, place, 0), axis))


@pytest.mark.parametrize(("value", "dtype"), [(1, "int64"), (-3, "int32"), (1, "float32"), (2, "bfloat16"), (0, "float16"), (5, "uint8")])
@pytest.mark.parametrize("exclusive", [False, True])
def test_sums_of_one_integer_are_multiples_of_it(value: int, dtype: str, exclusive: bool) -> None:
    """As of a mask of ones, through views; no scan is left."""
    with Fusion("positions") as fusion:
        mask = tf.reshape(tf.full([2, 600], value, dtype=dtype), [4, 300])
        for axis in (0, 1):
            fusion.add_output(tf.cumsum(mask, axis, exclusive=exclusive))
    assert not any(isinstance(e, Scan) for e in fusion.exprs())
    for axis, found in enumerate(fusion.evaluate()):
        sums = np.cumsum(np.full((4, 300), value, np.float64), axis) - (value if exclusive else 0)
        assert found.dtype == fusion.outputs[axis].dtype.numpy
        assert (found.astype(np.float64) == sums.astype(found.dtype).astype(np.float64)).all()


@pytest.mark.parametrize(("value", "shape"), [(0.5, [8]), (np.nan, [8]), (np.inf, [8]), (1, ["N"]), (1 << 20, [64])])
def test_other_sums_are_scans(value: float, shape: list[int | str]) -> None:
    """Of fractions and of sums that floats round, and where no greatest sum is known."""
    with Fusion("sums") as fusion:
        fusion.add_output(tf.cumsum(tf.full(shape, value, dtype="float32"), 0))
    assert any(isinstance(e, Scan) for e in fusion.exprs())
