"""Schedules of normalizations: every kind, way to keep a row, dtype, axis and remainder, proved and compared with NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.synchronization import BarrierScope
from taskfuse.kir.walk import walk
from taskfuse.schedulers import Keep, RowConfig
from taskfuse.schedulers.row_cost import RowEstimate
from tests.schedulers.normalized import NOTHING, REGISTERS, SHARED
from tests.schedulers.oracle import array, checked
from tests.schedulers.rows import (
    NORMS,
    Kind,
    Shape,
    barriers,
    check,
    gated_norm,
    layer_norm,
    log_softmax,
    make,
    residual_norm,
    rms_norm,
    softmax,
    statistics,
    two_norms,
)
from tests.thinning import in_turn


@pytest.mark.parametrize(("kind", "config"), in_turn(NORMS, [REGISTERS, SHARED, NOTHING]))
def test_kinds(kind: Kind, config: RowConfig) -> None:
    check(make(kind, (5, 200)), config)


@pytest.mark.parametrize(
    ("kind", "config"),
    in_turn(
        [softmax, layer_norm, statistics, layer_norm],
        [RowConfig(8, 8, 5, keep=Keep.REGISTERS), RowConfig(4, 8, 3, keep=Keep.SHARED), RowConfig(4, 16, 2)],
    ),
)
def test_the_contiguous_axis_is_kept(kind: Kind, config: RowConfig) -> None:
    check(make(kind, (37, 72), axis=0), config)


@pytest.mark.parametrize("keep", list(Keep), ids=lambda k: k.value)
def test_blocks_share_a_row(keep: Keep) -> None:
    kernel = check(make(layer_norm, (3, 704)), RowConfig(32, 1, 1, blocks=3, keep=keep))
    assert barriers(kernel).count(BarrierScope.GRID) == 2  # one for each reduction


@pytest.mark.parametrize("config", [RowConfig(32, 1, 1, keep=Keep.REGISTERS), RowConfig(4, 4, 2)], ids=lambda c: c.keep.value)
def test_axes_on_both_sides_of_the_kept_one_are_reduced(config: RowConfig) -> None:
    """A batch norm; what scales it has the kept axis alone."""
    with tf.Fusion("layer_norm") as fusion:
        x = tf.define_tensor([3, 5, 4, 8], dtype=tf.float32, name="x")
        weight = tf.define_tensor([5, 1, 1], dtype=tf.float32, name="weight")
        fusion.add_output(tf.layer_norm(x, weight, None, (0, 2, 3)))
    check(fusion, config)


def test_blocks_that_share_rows_of_several_axes_load_vectors() -> None:
    """Their reductions are taken apart, into parts of each block, which have axes of their own."""
    with tf.Fusion("layer_norm") as fusion:
        fusion.add_output(tf.layer_norm(tf.define_tensor([4, 2, 8, 4], name="x"), axis=(0, 2, 3)))
    kernel = check(fusion, RowConfig(4, 1, 2, blocks=2))
    assert sum(isinstance(s, VectorCopy) for s in walk(kernel.body)) == 4  # three phases load, one stores


@settings(max_examples=5, deadline=None)
@given(
    st.sampled_from(NORMS),
    st.sampled_from([tf.float32, tf.bfloat16, tf.float16]),
    st.sampled_from([0, -1]),
    st.integers(1, 9),
    st.sampled_from([2, 7, 8, 24, 61, 96, 128]),
    st.sampled_from(list(Keep)),
    st.sampled_from([1, 2, 8, 32, 64]),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
)
def test_any_shape(kind: Kind, dtype: tf.DType, axis: int, few: int, many: int, keep: Keep, threads: int, rows: int, seed: int) -> None:
    shape = (few, many) if axis == -1 else (many, few)
    unroll = -(-many // threads) if keep is Keep.REGISTERS else 2
    check(make(kind, shape, dtype, axis), RowConfig(threads, rows, unroll, keep=keep), seed=seed)


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(NORMS), st.sampled_from([0, -1]), st.integers(1, 30), st.sampled_from([3, 16, 100, 257]))
def test_the_choice_of_the_cost_model(kind: Kind, axis: int, rows: int, columns: int) -> None:
    check(make(kind, (rows, columns) if axis == -1 else (columns, rows), axis=axis), None)


@pytest.mark.parametrize("kind", [layer_norm, residual_norm, statistics])
@pytest.mark.parametrize("config", [None, SHARED, RowConfig(32, 1, 2, blocks=2)], ids=str)
def test_the_code_makes_the_same_kernel(kind: Kind, config: RowConfig | None) -> None:
    fusion, pasted = make(kind, (6, 256)), make(kind, (6, 256))
    schedule = tf.schedulers.normalization(fusion, config)
    exec(schedule.code, {"fusion": pasted})
    assert str(tf.lower(pasted)) == str(tf.lower(fusion))
    assert str(pasted) == str(fusion)


def test_explain() -> None:
    schedule = tf.schedulers.normalization(make(softmax, (8192, 4096)))
    text = schedule.explain(2)
    assert text.startswith("normalization of 8192 rows of 4096 elements, along vectors of 8, 3 phases: chosen: 128 threads per row")
    assert len(text.split("\n")) == 6
    assert schedule.option == schedule.alternatives[0]
    assert "3 phases: given: " in tf.schedulers.normalization(make(softmax, (8192, 4096)), NOTHING).explain()


@pytest.mark.parametrize(("rows", "columns"), [(8192, 4096), (16384, 1024), (2048, 16384)])
@pytest.mark.parametrize("kind", [softmax, rms_norm, layer_norm])
def test_sizes_that_matter_do_not_spill(kind: Kind, rows: int, columns: int) -> None:
    fusion = make(kind, (rows, columns))
    chosen = tf.schedulers.normalization(fusion)
    found = tf.lower(fusion).resources("sm_90a")
    assert isinstance(chosen.option, RowEstimate)
    assert (found.compiled.spill_stores, found.blocks_per_multiprocessor) == (0, chosen.option.residents)
    assert chosen.config.keep is Keep.REGISTERS
    in_flight = chosen.option.residents * chosen.config.threads * chosen.config.rows * chosen.config.unroll * 16
    assert in_flight >= 40 * 1024


def norm_of_floats(x: tf.TensorView, shape: Shape, axis: int) -> list[tf.TensorView]:
    return layer_norm(tf.cast(x, tf.float32), shape, axis)


@pytest.mark.parametrize(
    ("case", "arch"),
    in_turn(
        [
            (gated_norm, (8192, 4096), -1),  # two inputs
            (gated_norm, (64, 300000), 0),  # and each thread has eight columns
            (two_norms, (1000, 264), 0),  # four results for each of them
            (two_norms, (4096, 128), 0),  # blocks share rows
            (log_softmax, (2048, 16384), 0),
            (layer_norm, (4096, 50257), -1),  # no vectors
            (residual_norm, (64, 300000), -1),  # walks of few trips, which the C++ compiler unrolls
            (two_norms, (16384, 1024), -1),
            (layer_norm, (1000, 1000), -1),  # threads without a last vector
            (norm_of_floats, (1000, 1000), -1),
        ],
        ("sm_90a", "sm_80"),
    ),
    ids=lambda value: value if isinstance(value, str) else f"{value[0].__name__}-{value[1]}-{value[2]}",
)
def test_no_choice_spills(case: tuple[Kind, tuple[int, int], int], arch: str) -> None:
    kind, shape, axis = case
    fusion = make(kind, shape, tf.bfloat16, axis)
    tf.schedulers.normalization(fusion)
    found = tf.lower(fusion).resources(arch).compiled
    assert (found.spill_stores, found.spill_loads) == (0, 0)


def test_rows_may_have_axes_of_extent_one_that_their_statistics_lack() -> None:
    with tf.Fusion("instances") as fusion:
        x = tf.define_tensor([2, 8, 4, 4], name="x")
        rows = tf.reshape(x, [1, 16, 4, 4])
        fusion.add_output(rows - tf.reshape(tf.mean(rows, (0, 2, 3)), [1, 16, 1, 1]))
    chosen = tf.schedulers.normalization(fusion)
    assert "16 rows of 16 elements" in chosen.explain()
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    values = np.random.default_rng(0).normal(size=(2, 8, 4, 4)).astype(np.float32)
    assert np.allclose(kernel.simulate(values)[0], fusion.evaluate(values)[0], atol=1e-5)


@pytest.mark.parametrize("config", [RowConfig(4, 8, 2, keep=Keep.REGISTERS), RowConfig(2, 8, 2, keep=Keep.NOTHING)])
def test_weights_of_all_elements_of_a_row_are_reduced_with_them(config: RowConfig) -> None:
    """A maximum and a sum of ``w[s, m]`` beside sums of ``x[s, m, d]``, whose vectors lie along d: once for each vector."""
    with tf.Fusion("joined") as fusion:
        w, x = tf.define_tensor([7, 10], name="w"), tf.define_tensor([7, 10, 32], name="x")
        p = tf.exp(w - tf.max(w, 0))
        fusion.add_output(tf.sum(tf.expand_dims(p, 2) * x, 0) / tf.expand_dims(tf.sum(p, 0), 1))
    rng = np.random.default_rng(7)
    args = [rng.standard_normal(shape).astype(np.float32) for shape in ((7, 10), (7, 10, 32))]
    (wanted,) = fusion.evaluate(*args)
    tf.schedulers.normalization(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    np.testing.assert_allclose(kernel.simulate(*args, seed=3)[0], wanted, rtol=1e-5, atol=1e-6)


def test_halves_of_a_row_that_change_places() -> None:
    """Heads that are normalized, then rotated: each half reads the other one's input, and what was summed of the row."""
    with tf.Fusion("rotary") as fusion:
        x, c, s = (tf.define_tensor(shape, dtype=tf.bfloat16, name=name) for shape, name in (([32, 16, 64], "x"), ([32, 1, 64], "c"), ([32, 1, 64], "s")))
        wide = tf.cast(x, tf.float32)
        y = x * tf.cast(tf.rsqrt(tf.mean(tf.square(wide), 2, keepdims=True) + 1e-6), tf.bfloat16)
        fusion.add_output(y * c + tf.cat([-y[:, :, 32:], y[:, :, :32]], 2) * s)
    found = checked(fusion, [array(32, 16, 64).astype(tf.bfloat16.numpy), *(array(32, 1, 64).astype(tf.bfloat16.numpy) for _ in "cs")])
    assert [step.schedule.scheduler for step in found.steps] == ["normalization"]
