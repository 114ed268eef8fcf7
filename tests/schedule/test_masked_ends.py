"""Masks end the terms of reductions: what is found, in which words of the math, and what must not be."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.axes import iteration_point
from taskfuse.ir.expr import Read, Reduction
from taskfuse.schedule.masked_ends import constant_end, masked_end, masked_start

T = tf.TensorView


def ends(build: Callable[[T, T, T], T]) -> str:
    """Of a reduction of x [M, N], with the numbers of its rows and columns."""
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        rows, columns = tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0)
        out = build(x, rows, columns)
        fusion.add_output(out)
    expr = fusion.definition(out)
    assert isinstance(expr, Reduction)
    return str(masked_end(fusion, expr, 1))


def top(x: T) -> T:
    return tf.expand_dims(tf.max(x, axis=1), 1)


FOUND: dict[str, tuple[Callable[[T, T, T], T], str]] = {
    "a choice": (lambda x, i, j: tf.max(tf.where(j <= i, x, -math.inf), axis=1), "i0 + 1"),
    "a choice the other way round": (lambda x, i, j: tf.max(tf.where(i < j, -math.inf, x), axis=1), "i0 + 1"),
    "filled": (lambda x, i, j: tf.max(tf.masked_fill(x, j > i * 2, -math.inf), axis=1), "2*i0 + 1"),
    "one of two conditions": (lambda x, i, j: tf.max(tf.where((j <= i) | (j < 7), x, -math.inf), axis=1), "max(i0 + 1, 7)"),
    "one of two, and a third": (lambda x, i, j: tf.max(tf.where(((j <= i) | (j < 7)) & (j < 9), x, -math.inf), axis=1), "min(max(i0 + 1, 7), 9)"),
    "one of two, of which one has no end": (lambda x, i, j: tf.max(tf.where((j <= i) | (i < 7), x, -math.inf), axis=1), "None"),
    "two conditions": (lambda x, i, j: tf.max(tf.where((j <= i) & (j < 7), x, -math.inf), axis=1), "min(i0 + 1, 7)"),
    "a product of two": (lambda x, i, j: tf.sum(tf.tril(x) * tf.where(j < 5, x, 0.0), axis=1), "min(i0 + 1, 5)"),
    "arithmetic": (lambda x, i, j: tf.max(tf.where(j - 3 < i * 2, x, -math.inf), axis=1), "2*i0 + 3"),
    "a constant": (lambda x, i, j: tf.max(tf.where(j < 5, x, -math.inf), axis=1), "5"),
    "a triangle": (lambda x, i, j: tf.sum(tf.tril(x), axis=1), "i0 + 1"),
    "exponentials": (lambda x, i, j: tf.sum(tf.exp(tf.where(j <= i, x, -math.inf) * 0.5 - top(x)), axis=1), "i0 + 1"),
    "a cast, and a product": (lambda x, i, j: tf.matmul(tf.cast(tf.tril(x), tf.bfloat16), tf.cast(x, tf.bfloat16).T, dtype=tf.float32), "None"),
    "0 by a number": (lambda x, i, j: tf.sum(tf.tril(x) / top(x), axis=1), "i0 + 1"),
    "both of a choice": (lambda x, i, j: tf.sum(tf.where(x > 0.0, tf.tril(x), tf.tril(-x)), axis=1), "i0 + 1"),
    "not neutral": (lambda x, i, j: tf.max(tf.where(j <= i, x, 0.0), axis=1), "None"),
    "infinity": (lambda x, i, j: tf.sum(tf.exp(tf.where(j <= i, x, math.inf)), axis=1), "None"),
    "an unknown sum": (lambda x, i, j: tf.max(tf.where(j <= i, x, -1e30) + x, axis=1), "None"),
    "another axis": (lambda x, i, j: tf.max(tf.where(i < 5, x, -math.inf), axis=1), "None"),
    "integers that wrap": (lambda x, i, j: tf.max(tf.where(tf.cast(j, tf.int32) * 65536 <= tf.cast(i, tf.int32), x, -math.inf), axis=1), "None"),
    "no integers": (lambda x, i, j: tf.max(tf.where(tf.cast(j, tf.float32) <= tf.cast(i, tf.float32), x, -math.inf), axis=1), "None"),
}


@pytest.mark.parametrize("name", FOUND)
def test_ends(name: str) -> None:
    build, wanted = FOUND[name]
    assert ends(build) == wanted


STARTS: dict[str, tuple[Callable[[T, T, T], T], str]] = {
    "queries of a key": (lambda x, i, j: tf.max(tf.where(j >= i, x, -math.inf), axis=1), "i0"),
    "the other way round": (lambda x, i, j: tf.max(tf.where(j < i + 3, -math.inf, x), axis=1), "i0 + 3"),
    "a triangle": (lambda x, i, j: tf.sum(tf.triu(x), axis=1), "i0"),
    "a function": (lambda x, i, j: tf.sum(tf.exp(tf.where(i <= j, x, -math.inf) - top(x)), axis=1), "i0"),
    "a window": (lambda x, i, j: tf.max(tf.where((j <= i) & (j > i - 4), x, -math.inf), axis=1), "i0 - 3"),
    "one of two windows": (lambda x, i, j: tf.max(tf.where((j > i - 4) | (j > i * 2), x, -math.inf), axis=1), "min(i0 - 3, 2*i0 + 1)"),
    "an end": (lambda x, i, j: tf.max(tf.where(j <= i, x, -math.inf), axis=1), "None"),
    "not neutral": (lambda x, i, j: tf.max(tf.where(j >= i, x, 0.0), axis=1), "None"),
}


@pytest.mark.parametrize("name", STARTS)
def test_starts(name: str) -> None:
    build, wanted = STARTS[name]
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        out = build(x, tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0))
        fusion.add_output(out)
    expr = fusion.definition(out)
    assert isinstance(expr, Reduction)
    assert str(masked_start(fusion, expr, 1)) == wanted


BEHIND: dict[str, tuple[Callable[[T, T, T], T], float, str]] = {
    "what is masked": (lambda x, i, j: tf.where(j <= i, x, -math.inf), -math.inf, "i0 + 1"),
    "another constant": (lambda x, i, j: tf.where(j <= i, x, -math.inf), 0.0, "None"),
    "less a number of the row": (lambda x, i, j: tf.exp(tf.where(j <= i, x, -math.inf) * 0.5 - top(x)), 0.0, "i0 + 1"),
    "less a number of each element, which may be infinite": (lambda x, i, j: tf.exp(tf.where(j <= i, x, -math.inf) - x), 0.0, "None"),
    "times a number, which may be infinite": (lambda x, i, j: tf.tril(x) * top(x), 0.0, "None"),
    "by a number, which may be 0": (lambda x, i, j: tf.tril(x) / top(x), 0.0, "None"),
    "a choice by what is masked": (lambda x, i, j: tf.where(tf.where(j <= i, x, -math.inf) == -math.inf, 0.0, x), 0.0, "i0 + 1"),
}


@pytest.mark.parametrize("name", BEHIND)
def test_functions_of_what_is_masked(name: str) -> None:
    build, value, wanted = BEHIND[name]
    with tf.Fusion() as fusion:
        x = tf.define_tensor(["M", "N"])
        out = build(x, tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0))
        fusion.add_output(out)
    assert str(constant_end(fusion, Read(out, iteration_point(2)), "i1", value)) == wanted


def causal() -> tuple[tf.Fusion, list[T]]:
    with tf.Fusion("causal") as fusion:
        x, v = tf.define_tensor(["M", "N"], name="x"), tf.define_tensor(["N", 3], name="v")
        rows, columns = tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0)
        s = tf.where(columns <= rows, x, -math.inf)
        most = tf.max(s, axis=1)
        p = tf.exp(s - tf.expand_dims(most, 1))
        total = tf.sum(p, axis=1)
        fusion.add_output(tf.matmul(p, v) / tf.expand_dims(total, 1))
        out = fusion.tensors()[-2]
    return fusion, [most, total, out]


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_chunks_that_are_left_out_are_not_read(rows: int) -> None:
    """NaN stands where no block of rows comes to."""
    fusion, reductions = causal()
    sums = [e.output for e in fusion.exprs() if isinstance(e, Reduction)]
    walk = tf.cascade(sums, 4, rows=rows)
    assert walk
    assert reductions
    every = [e for e in fusion.exprs() if isinstance(e, Reduction) and e.ends]
    assert len(every) == 3
    assert tf.parse_fusion(str(fusion)) is not None
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    rng = np.random.default_rng(rows)
    x, v = rng.standard_normal((7, 19)).astype(np.float32), rng.standard_normal((19, 3)).astype(np.float32)
    (wanted,) = causal()[0].evaluate(x, v)
    last = -(-(6 // rows * rows + rows) // 4) * 4
    v[last:] = np.nan
    np.testing.assert_allclose(fusion.evaluate(x, v)[0], wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("rows", "shape"), [(1, (7, 19)), (2, (7, 16)), (5, (19, 7)), (4, (8, 8))])
def test_walks_begin_where_terms_start(rows: int, shape: tuple[int, int]) -> None:
    """NaN stands where no block of rows comes to: in front of the chunk with the first element of the first row that is asked for."""

    def build() -> tuple[tf.Fusion, list[T]]:
        with tf.Fusion("starts") as fusion:
            x, v = tf.define_tensor(["M", "N"], name="x"), tf.define_tensor(["N", 3], name="v")
            i, j = tf.expand_dims(tf.arange(x.shape[0]), 1), tf.expand_dims(tf.arange(x.shape[1]), 0)
            p = tf.exp2(tf.where(j >= i + 5, x, -math.inf))
            sums = [tf.matmul(p, v), tf.sum(p * x, axis=1)]
            for tv in sums:
                fusion.add_output(tv)
        return fusion, sums

    fusion, sums = build()
    rng = np.random.default_rng(rows)
    x, v = rng.standard_normal(shape).astype(np.float32), rng.standard_normal((shape[1], 3)).astype(np.float32)
    wanted = fusion.evaluate(x, v)
    tf.cascade(sums, 4, rows=rows)
    assert sum(isinstance(e, Reduction) and bool(e.starts) and not e.ends for e in fusion.exprs()) == 2
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    v[: 5 // 4 * 4] = np.nan
    for found, expected in zip(fusion.evaluate(x, v), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_refused() -> None:
    _, (most, *_) = causal()
    for rows in (0, True, 1.5):
        with pytest.raises(tf.errors.ScheduleError, match="use a positive integer"):
            tf.cascade([most], 4, rows=rows)
    with pytest.raises(tf.errors.ScheduleError, match="without parts"):
        tf.cascade([most], 4, 2, rows=8)


def test_loops_must_know_the_end() -> None:
    """Where a block has all rows, its loop runs to the end of the axis, and the sums do not."""
    fusion, _ = causal()
    tf.cascade([e.output for e in fusion.exprs() if isinstance(e, Reduction)], 4, rows=2)
    with pytest.raises(tf.errors.LoweringError, match="its terms end along axis"):
        tf.lower(fusion)


def test_what_many_paths_lead_to_is_looked_at_once() -> None:
    """Of 40 functions each reads the one before twice: a walk along every path would never end."""

    def scaled(x: T, i: T, j: T) -> T:
        y = tf.tril(x)
        for _ in range(40):
            y = y * y
        return tf.sum(y, axis=1)

    assert ends(scaled) == "i0 + 1"
