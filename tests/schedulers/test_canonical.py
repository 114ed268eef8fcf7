"""The canonical form: views out of the way of products, and the same values."""

from functools import partial

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.expr import Pointwise, Reduction, View
from taskfuse.ir.values import MODULAR
from taskfuse.schedulers.canonical import canonical
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT
from taskfuse.testing.case import Case, Outcome
from taskfuse.testing.chooser import RandomChooser
from taskfuse.testing.graphs import Graph
from taskfuse.testing.options import CaseOptions
from taskfuse.testing.program import Recorder
from tests.schedulers.fusions import HALF, Build, tensor
from tests.schedulers.oracle import checked
from tests.schedulers.tried import arguments, built, made


def form(fusion: tf.Fusion) -> tf.Fusion | None:
    before = str(fusion)
    found = canonical(fusion, Sizes(fusion, None, DEFAULT))
    assert str(fusion) == before
    return None if found is None else found.fusion


def products(fusion: tf.Fusion) -> list[str]:
    return [str(e.output.shape) for e in fusion.exprs() if isinstance(e, Reduction)]


def residual(batch: int = 8, rows: int = 19, columns: int = 64) -> list[tf.TensorView]:
    x, r = (tensor(name, batch, rows, columns, dtype=HALF) for name in "xr")
    w = tensor("w", columns, columns, dtype=HALF)
    return [r + (x.reshape(batch * rows, columns) @ w).reshape(batch, rows, columns)]


def heads(n: int) -> list[tf.TensorView]:
    x, w, b = tensor("x", 16, 64, dtype=HALF), tensor("w", 64, 96, dtype=HALF), tensor("b", 96, dtype=HALF)
    y = (x @ w + b).reshape(2, 8, 3, 2, 16)
    return [y[:, :, i].permute(0, 2, 1, 3) for i in range(n)]


def scaled_slice() -> list[tf.TensorView]:
    return [(tensor("x", 32, 64, dtype=HALF) @ tensor("w", 64, 64, dtype=HALF))[:, 32:] * 2.0]


def turned_factor() -> list[tf.TensorView]:
    return [tf.flip(tensor("x", 32, 64, dtype=HALF), 1) @ tensor("w", 64, 64, dtype=HALF)]


def merged_heads() -> list[tf.TensorView]:
    return [tensor("x", 2, 2, 8, 32, dtype=HALF).permute(0, 2, 1, 3).reshape(16, 64) @ tensor("w", 64, 64, dtype=HALF)]


def cast_bias_of_turned_heads() -> list[tf.TensorView]:
    """Keys of heads, with columns of a head before its rows: a function of the bias is read at other points, too."""
    x, w, b = tensor("x", 2, 64, 24, dtype=HALF), tensor("w", 64, 64, dtype=HALF), tensor("b", 64, dtype=HALF)
    y = tf.matmul(x.permute(0, 2, 1).reshape(48, 64), w.T, dtype=tf.float32) + tf.cast(b, tf.float32)
    return [tf.copy(tf.cast(y, HALF).reshape(2, 24, 4, 16).permute(0, 2, 3, 1))]


@pytest.mark.parametrize("build", [cast_bias_of_turned_heads, residual, partial(heads, 1), partial(heads, 3), scaled_slice, turned_factor, merged_heads])
def test_the_form_computes_the_same(build: Build) -> None:
    fusion = built(build)
    found = form(fusion)
    assert found is not None
    given = arguments(fusion)
    for a, b in zip(evaluate(fusion, given, MODULAR), evaluate(found, given, MODULAR), strict=True):
        assert np.array_equal(a, b)
    checked(fusion, given, trial=made)


def test_rows_that_are_split_after_a_product_are_split_before_it() -> None:
    found = form(built(residual))
    assert found is not None
    assert products(found) == ["(8, 19, 64)"]
    assert len(choose_segments(built(partial(residual, 4, 256, 1024))).steps) == 1


def outer_products(rows: int, short: int, inner: int) -> list[tf.TensorView]:
    """Of columns in groups, with both groups side by side: no tile of the product has rows or columns there."""
    a, b = tensor("a", rows * short, inner, dtype=HALF), tensor("b", inner, rows * short, dtype=HALF)
    y = tf.cast(tf.matmul(a, b, dtype=tf.float32), HALF).reshape(rows, short, rows, short)
    return [y.permute(0, 2, 1, 3).reshape(rows, rows, short * short) * 0.5]


def test_a_product_that_stays_is_rounded_where_it_is() -> None:
    """Its readers would else read its sums, of twice the bytes, through views."""
    assert form(built(partial(outer_products, 4, 4, 16))) is None
    found = choose_segments(built(partial(outer_products, 128, 32, 128)))
    assert [int(size) for _, size in found.crossing] == [2 * (128 * 32) ** 2]


def test_a_product_that_stays_does_not_keep_another_from_moving() -> None:
    fusion = built(lambda: [*residual(), *outer_products(4, 4, 16)])
    found = form(fusion)
    assert found is not None
    assert sorted(products(found)) == ["(16, 16)", "(8, 19, 64)"]
    given = arguments(fusion)
    for a, b in zip(evaluate(fusion, given, MODULAR), evaluate(found, given, MODULAR), strict=True):
        assert np.array_equal(a, b)


def test_slices_of_a_product_are_products_of_slices() -> None:
    found = form(built(scaled_slice))
    assert found is not None
    assert products(found) == ["(32, 32)"]


def test_a_factor_that_is_no_array_of_other_strides_is_copied() -> None:
    found = form(built(turned_factor))
    assert found is not None
    assert next(e.output.name for e in found.exprs() if not isinstance(e, View)) == next(tv.name for tv in found.tensors() if tv.origin is not None)


def test_a_factor_that_is_turned_is_an_array_of_other_strides() -> None:
    """The gradient of a weight: rows of pixels are summed, and what is before them in memory is turned."""
    with tf.Fusion("weight") as fusion:
        x, dy = tf.define_tensor([2, 8, 8, 64], dtype=tf.bfloat16, name="x"), tf.define_tensor([128, 96], dtype=tf.bfloat16, name="dy")
        fusion.add_output(tf.reshape(tf.relu(x), [128, 64]).T @ dy)
    found = form(fusion)
    assert found is not None
    assert [e.op.name for e in found.exprs() if isinstance(e, Pointwise)] == ["relu", "cast"]  # and no copy of it


def test_what_an_epilogue_reads_of_inputs_is_read_through_views() -> None:
    fusion = form(built(cast_bias_of_turned_heads))
    assert fusion is not None
    tf.schedulers.matmul(fusion)
    tf.lower(fusion).verify().require()


def test_what_has_the_form_is_left_alone() -> None:
    def plain() -> list[tf.TensorView]:
        return [tf.relu(tensor("x", 32, 64, dtype=HALF) @ tensor("w", 64, 64, dtype=HALF))]

    def no_product() -> list[tf.TensorView]:
        return [tf.exp(tensor("x", 32, 64)).reshape(64, 32)]

    assert form(built(plain)) is None
    assert form(built(no_product)) is None


def test_a_product_that_is_read_twice_is_not_done_twice() -> None:
    def twice() -> list[tf.TensorView]:
        y = tensor("x", 32, 64, dtype=HALF) @ tensor("w", 64, 64, dtype=HALF)
        return [y * 2.0, tf.flip(y, 1) * 3.0]

    found = form(built(twice))
    assert found is None or len(products(found)) == 1


MIXES = (
    CaseOptions(ops=7, matmuls=25, views=35),
    CaseOptions(ops=6, matmuls=20, einsums=10, views=25, selects=10, gathers=6),
    CaseOptions(ops=5, rank=4, sizes=(1, 2, 3, 4, 8), elements=400, matmuls=25, views=30),
)


@pytest.mark.parametrize("seed", range(40))
def test_the_law_on_random_graphs(seed: int) -> None:
    recorder = Recorder()
    graph = Graph(RandomChooser(seed), MIXES[seed % len(MIXES)], recorder)
    graph.grow()
    program, fusion = recorder.program(), recorder.fusion
    found = form(fusion)
    if found is None:
        return
    case = Case(program, program, graph.sizes, seed, fusion, fusion, Outcome(None, None, None), CaseOptions())
    for a, b in zip(evaluate(fusion, case.arguments(), MODULAR), evaluate(found, case.arguments(), MODULAR), strict=True):
        assert np.array_equal(a, b)


def heads_side_by_side() -> list[tf.TensorView]:
    p, v = tensor("p", 2, 2, 8, 32, dtype=HALF), tensor("v", 2, 2, 32, 16, dtype=HALF)
    return [(p @ v).permute(0, 2, 1, 3).reshape(16, 32) * 0.5]


def test_a_product_whose_heads_stand_side_by_side_behind_it_keeps_its_rows_and_columns() -> None:
    """Where the result is read, a column tells the head, too: both factors would have that axis, and no columns would be left."""
    fusion = built(heads_side_by_side)
    found = form(fusion)
    assert products(found or fusion) == ["(2, 2, 8, 16)"]


def test_heads_side_by_side_are_a_product_and_a_copy() -> None:
    def large() -> list[tf.TensorView]:
        p, v = tensor("p", 1, 12, 512, 512, dtype=HALF), tensor("v", 1, 12, 512, 64, dtype=HALF)
        return [(p @ v).permute(0, 2, 1, 3).reshape(512, 768) * 0.125]

    first, *_ = choose_segments(built(large)).steps
    assert first.schedule.scheduler == "matmul"


def test_only_some_readers_have_products_at_their_points() -> None:
    """Two heads' products are copied; the one that is asked for is computed where its copy is."""
    with tf.Fusion("heads") as fusion:
        for name in "xy":
            heads = tensor(name, 4, 64, 32, dtype=HALF) @ tensor(f"w{name}", 4, 32, 64, dtype=HALF)
            fusion.add_output(tf.copy(heads.permute(1, 0, 2)))
    extent = Sizes(fusion, None, DEFAULT)
    found = canonical(fusion, extent, {fusion.outputs[1].name})
    assert found is not None
    assert sum(shape in products(fusion) for shape in products(found.fusion)) == 1
    assert canonical(fusion, extent, set()) is None
    given = arguments(fusion)
    for ours, wanted in zip(evaluate(found.fusion, given, MODULAR), evaluate(fusion, given, MODULAR), strict=True):
        assert np.array_equal(ours, wanted)


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_product_stays_where_readers_leave_short_rows_and_columns(is_merged: bool) -> None:
    """An outer product of 32 channels each, of positions side by side: the product is one of tensor cores, and what turns its axes comes after it."""
    with tf.Fusion("outer") as fusion:
        a, b = (tensor(name, 64, 64 * 32, dtype=HALF) for name in "ab")
        turned = (a.T @ b).reshape(64, 32, 64, 32).permute(0, 2, 1, 3)
        fusion.add_output(tf.exp(turned.reshape(64, 64, 1024) if is_merged else turned))
    found = form(fusion)
    assert products(fusion if found is None else found) == products(fusion)
    assert [step.schedule.scheduler for step in choose_segments(fusion).steps if step.schedule.scheduler in ("matmul", "simt_gemm", "fallback")] == ["matmul"]


def test_turned_factors_are_copied_on_request() -> None:
    """Two products of one list of tiles need factors that are contiguous along the same axes."""
    with tf.Fusion("weight") as fusion:
        x, dy = tf.define_tensor([2, 8, 8, 64], dtype=tf.bfloat16, name="x"), tf.define_tensor([128, 96], dtype=tf.bfloat16, name="dy")
        fusion.add_output(tf.reshape(tf.relu(x), [128, 64]).T @ dy)
    found = canonical(fusion, Sizes(fusion, None, DEFAULT), is_copied=True)
    assert found is not None
    assert sum("cache_after" in line for line in found.lines) == 1
