"""Scans across the threads of a block on the GPU, into poisoned outputs, beside NumPy; also where their lengths are bounded at the call."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse.dtypes import as_dtype
from taskfuse.schedulers import ScanConfig
from tests.gpu.device import poisoned, same, to_numpy, to_torch

OPS = ("cumsum", "cumprod", "cummax", "cummin")
DTYPES = ("float32", "bfloat16", "int8", "int64")


def numbers(*shape: int, dtype: tf.DType) -> Any:
    """Whose sums and products are exact."""
    return np.random.default_rng(0).integers(-1, 2, shape).astype(dtype.numpy)


def total(shape: list[Any], op: str, dtype: tf.DType) -> tf.Fusion:
    with tf.Fusion("totals") as fusion:
        fusion.add_output(getattr(tf, op)(tf.define_tensor(shape, dtype=dtype, name="x"), len(shape) - 1))
    return fusion


def agrees(run: Any, fusion: tf.Fusion, x: Any) -> None:
    (wanted,) = fusion.evaluate(x)
    out = poisoned(wanted.shape, fusion.outputs[0].dtype)
    run(to_torch(x), out=out)
    assert same(to_numpy(out), wanted)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ops(op: str, dtype: str) -> None:
    for shape in ((300, 100), (37, 1024), (5, 4093), (1000, 1), (1, 16384)):
        fusion = total([*shape], op, as_dtype(dtype))
        agrees(tf.compile(fusion, backend="cuda"), fusion, numbers(*shape, dtype=as_dtype(dtype)))


@pytest.mark.parametrize("config", [ScanConfig(1), ScanConfig(4, 3), ScanConfig(8), ScanConfig(16, 8), ScanConfig(32)])
def test_parameters(config: ScanConfig) -> None:
    fusion = total([777, 1000], "cumsum", tf.float32)
    ours, _ = tf.copy_fusion(fusion)
    tf.schedulers.scan(ours, config)
    agrees(tf.compile(ours, backend="cuda"), fusion, numbers(777, 1000, dtype=tf.float32))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_side_by_side(op: str, dtype: str) -> None:
    for shape in ((3, 360, 321), (2, 2048, 64), (1, 1021, 7), (5, 16, 96), (1000, 1), (70, 1, 33), (4093, 40)):
        axis = len(shape) - 2
        with tf.Fusion("totals") as fusion:
            fusion.add_output(getattr(tf, op)(tf.define_tensor([*shape], dtype=as_dtype(dtype), name="x"), axis))
        agrees(tf.compile(fusion, backend="cuda"), fusion, numbers(*shape, dtype=as_dtype(dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_lengths_that_are_not_known(dtype: str) -> None:
    fusion = total(["M", "N"], "cumsum", as_dtype(dtype))
    run = tf.compile(fusion, backend="cuda")
    for m, n in ((500, 1000), (500, 1001), (3, 70_000), (200, 5000), (2000, 17), (2, 3)):
        agrees(run, fusion, numbers(m, n, dtype=as_dtype(dtype)))
    assert run.specializations
