"""Loops over reduced axes that end where their terms do."""

from __future__ import annotations

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.expr import Reduction
from taskfuse.ir.scalar import parse_expr
from taskfuse.lowering.neutral_tails import end_of_terms
from taskfuse.lowering.steps import lower

OFFSETS = np.array([0, 3, 3, 7, 10], np.int32)
X = np.arange(10, dtype=np.float32) + 1
SUMS = [6.0, 0.0, 22.0, 27.0]


def ragged(reduce: str = "sum", value: float = 0.0) -> tuple[tf.Fusion, tf.TensorView, tf.TensorView]:
    with tf.Fusion("ragged") as fusion:
        x = tf.define_tensor("M", name="x")
        offsets = tf.table("offsets", "G + 1", high="M")
        rows = tf.jagged_to_padded_dense(x, offsets, "M", value)
        y = tf.sum(rows, 1) if reduce == "sum" else tf.max(rows, 1)
        fusion.add_output(y)
    return fusion, rows, y


def trips(kernel: tf.Kernel) -> list[str]:
    """The bounds of the loops in the text of a kernel."""
    return [line.strip() for line in str(kernel).splitlines() if line.strip().startswith("FOR") and " in 0.." in line]


def test_one_block_for_each_row() -> None:
    fusion, rows, y = ragged()
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    (loop,) = trips(kernel)
    assert loop == "FOR i1 in 0..max(clamp(offsets[blockIdx.x + 1 of G + 1], 0, M) - clamp(offsets[blockIdx.x of G + 1], 0, M), 0):"
    assert kernel.verify().is_proved
    assert kernel.simulate(X, OFFSETS)[0].tolist() == SUMS
    assert kernel.simulate(X, np.array([7, -2, 30, 1, 4], np.int32))[0].tolist() == [0.0, float(X.sum()), 0.0, 9.0]


def test_threads_of_different_rows_make_different_trips() -> None:
    fusion, _, _ = ragged()
    tf.schedulers.reduction(fusion)
    kernel = tf.lower(fusion)
    assert any("offsets" in loop for loop in trips(kernel))
    assert kernel.verify().is_proved
    for seed in range(2):
        assert kernel.simulate(X, OFFSETS, seed=seed)[0].tolist() == SUMS


def test_threads_that_wait_for_each_other_make_equally_many() -> None:
    fusion, rows, y = ragged()
    rows.set_memory_type(tf.MemoryType.Shared)
    for tv in (rows, y):
        tv.split(1, 4)
        tv.axis(0).parallelize(tf.ParallelType.TIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert not any("offsets" in loop for loop in trips(kernel))
    assert kernel.verify().is_proved


@pytest.mark.parametrize("value", [1.0, float("-inf")])
def test_terms_that_count_are_taken(value: float) -> None:
    fusion, rows, y = ragged(value=value)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert trips(kernel) == ["FOR i1 in 0..M:"]
    assert kernel.verify().is_proved


def test_what_others_read_is_computed_whole() -> None:
    fusion, rows, y = ragged()
    fusion.add_output(rows)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    assert "FOR i1 in 0..M:" in trips(lower(fusion))


def test_a_maximum_of_what_begins_below_everything() -> None:
    fusion, rows, y = ragged("max", float("-inf"))
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.BIDx)
    rows.inline_at(2)
    kernel = tf.lower(fusion)
    assert "offsets" in trips(kernel)[0]
    assert kernel.verify().is_proved


def test_a_padded_axis_ends_with_what_is_padded() -> None:
    with tf.Fusion() as fusion:
        x = tf.define_tensor("N", name="x")
        y = tf.sum(tf.pad(x, (0, 5)), 0)
        fusion.add_output(y)
    expr = fusion.definition(y)
    assert isinstance(expr, Reduction)
    assert end_of_terms(fusion, expr, 0) is parse_expr("N")


def test_one_factor_that_is_zero_is_not_enough() -> None:
    with tf.Fusion() as fusion:
        x, w = tf.define_tensor("N", name="x"), tf.define_tensor("N + 5", name="w")
        one = tf.sum(tf.pad(x, (0, 5)) * w, 0)
        dot = tf.matmul(tf.pad(x, (0, 5)), tf.pad(x, (0, 5)))
        fusion.add_output(one, dot)
    for tv, wanted in ((one, None), (dot, parse_expr("N"))):
        expr = next(e for e in fusion.exprs() if isinstance(e, Reduction) and e.output is tv)
        assert end_of_terms(fusion, expr, len(expr.output.root) - 1) is wanted


def test_rows_that_a_table_names_are_not_in_registers() -> None:
    fusion, rows, y = ragged()
    x = fusion.inputs[0]
    held = x.cache_after()
    held.inline_at(0)
    rows.inline_at(2)
    for tv in (rows, y):
        tv.axis(0).parallelize(tf.ParallelType.TIDx)
    kernel = tf.lower(fusion)
    assert "SHARED" in str(kernel)
    assert kernel.simulate(X, OFFSETS)[0].tolist() == SUMS
