"""Gathers, positions of extremes, running totals and einsum on a GPU: the bits of NumPy where they are exact."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import taskfuse as tf
from taskfuse import MemoryType
from taskfuse import ParallelType as P
from taskfuse.dtypes import as_dtype
from tests.gpu.device import Array, same, to_numpy, to_torch
from tests.gpu.programs import in_blocks

DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3", "int8", "int64", "uint16", "bool"]


def numbers(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    """Small integers of a dtype."""
    wanted = as_dtype(dtype)
    low = 0 if wanted.min_value == 0 else -4
    return np.random.default_rng(seed).integers(low, 5, shape).astype(wanted.numpy)


def indices(*shape: int, extent: int, dtype: str = "int32", seed: int = 1) -> Array:
    """Indices, some negative, some out of range."""
    return np.random.default_rng(seed).integers(-extent - 3, extent + 3, shape).astype(dtype)


def agrees(fusion: tf.Fusion, *args: Array, debug: bool = False) -> None:
    """The GPU gives the bits of the reference."""
    run = tf.compile(fusion, backend="cuda", debug=debug)
    for found, expected in zip(run(*map(to_torch, args)), fusion.evaluate(*args), strict=True):
        assert same(to_numpy(found), expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("index", ["int32", "int64", "int16"])
def test_take(dtype: str, index: str) -> None:
    with tf.Fusion("take") as fusion:
        w, t = tf.define_tensor(["V", "D"], as_dtype(dtype), name="w"), tf.define_tensor(["N"], as_dtype(index), name="t")
        fusion.add_output(tf.take(w, t, 0))
    in_blocks(fusion)
    for v, d, n in ((7, 5, 300), (1, 1, 1), (1000, 64, 257)):
        agrees(fusion, numbers(v, d, dtype=dtype), indices(n, extent=v, dtype=index))


@pytest.mark.parametrize("debug", [False, True])
def test_rows_by_vectors(debug: bool) -> None:
    with tf.Fusion("rows") as fusion:
        w, t = tf.define_tensor(["V", tf.dim("D", multiple_of=8)], tf.bfloat16, name="w"), tf.define_tensor(["N"], tf.int32, name="t")
        rows = tf.take(w, t, 0)
        y = tf.copy(rows)
        fusion.add_output(y)
    for tv in (rows, y):
        tv.split(1, 8)
        for axis, p in enumerate((P.BIDx, P.TIDx, P.Vectorize)):
            tv.axis(axis).parallelize(p)
    fusion.inline_most()
    for v, d, n in ((9, 64, 100), (5000, 1024, 3000)):
        agrees(fusion, numbers(v, d, dtype="bfloat16"), indices(n, extent=v), debug=debug)


@pytest.mark.parametrize("memory", [MemoryType.Shared, MemoryType.Global])
def test_tables_that_the_kernel_makes(memory: MemoryType) -> None:
    with tf.Fusion("made") as fusion:
        x, i = tf.define_tensor(["M", 64], name="x"), tf.define_tensor(["M", 64], tf.int32, name="i")
        table = x * 3
        y = tf.take_along_axis(table, i, 1)
        fusion.add_output(y)
    for tv in (table, y):
        tv.axis(0).parallelize(P.BIDx)
        tv.axis(1).parallelize(P.TIDx)
    table.set_memory_type(memory)
    fusion.inline_most()
    for _ in range(5):
        agrees(fusion, numbers(200, 64), indices(200, 64, extent=64))


def test_roles() -> None:
    with tf.Fusion("roles") as fusion:
        x, i = tf.define_tensor(["N", 64], name="x"), tf.define_tensor(["N", 64], tf.int32, name="i")
        table = x + 1
        y = tf.take_along_axis(table, i, 1)
        fusion.add_output(y)
    group = fusion.group([fusion.group([fusion.task([table])]), fusion.group([fusion.task([y])])])
    for tv in (table, y):
        tv.axis(1).parallelize(P.TIDx)
    table.inline_at(1)
    table.circular_buffer(3)
    group.parallelize(P.TIDz)
    agrees(fusion, numbers(300, 64), indices(300, 64, extent=64))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [32, 128])
def test_positions(op: str, dtype: str, threads: int) -> None:
    """Across the threads of a block, by shuffles and Shared memory."""
    with tf.Fusion("positions") as fusion:
        x = tf.define_tensor(["M", "N"], as_dtype(dtype), name="x")
        found = getattr(tf, op)(x, 1)
        fusion.add_output(found)
    for tv in fusion.tensors():
        if not tv.is_input:
            if len(tv.loop) > 1:
                tv.split(1, threads)
                tv.axis(2).parallelize(P.TIDx)
            tv.axis(0).parallelize(P.BIDx)
    fusion.inline_most()
    for m, n in ((1, 1), (50, 31), (20, 1000)):
        x = numbers(m, n, dtype=dtype)
        if as_dtype(dtype).is_float and n > 31:
            x[3, 17] = x[3, 40] = np.nan
        agrees(fusion, x)


TOTALS: dict[str, Callable[..., tf.TensorView]] = {"cumsum": tf.cumsum, "cumprod": tf.cumprod, "cummax": tf.cummax, "cummin": tf.cummin}


@pytest.mark.parametrize("op", TOTALS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_totals(op: str, dtype: str) -> None:
    """Along rows and along columns; each thread has a total of its own."""
    for axis in (0, 1):
        with tf.Fusion("totals") as fusion:
            x = tf.define_tensor(["M", "N"], as_dtype(dtype), name="x")
            fusion.add_output(TOTALS[op](x, axis))
        for tv in fusion.tensors():
            if not tv.is_input:
                tv.split(1 - axis, 64)
                tv.axis(1 - axis).parallelize(P.BIDx)
                tv.axis(2 - axis).parallelize(P.TIDx)
        fusion.inline_most()
        values = np.sign(numbers(37, 100, dtype=dtype).astype(np.float64)).astype(as_dtype(dtype).numpy)
        agrees(fusion, values)


def test_einsum() -> None:
    with tf.Fusion("einsum") as fusion:
        a, b, c = tf.define_tensor([8, "M", "K"], name="a"), tf.define_tensor([8, "N", "K"], name="b"), tf.define_tensor(["N"], name="c")
        fusion.add_output(tf.einsum("bmk,bnk,n->bm", a, b, c))
    fusion.inline_most()
    for tv in fusion.tensors():
        if not tv.is_input:
            tv.set_memory_type(MemoryType.Global)
    agrees(fusion, numbers(8, 5, 7), numbers(8, 6, 7, seed=1), numbers(6, seed=2))
