"""Elementwise functions of one shape."""

from functools import reduce

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.schedulers import PointwiseConfig
from taskfuse.schedulers.segmenter import choose_segments
from tests.schedulers.oracle import array, checked


def test_pointwise_loads_before_it_uses() -> None:
    with tf.Fusion("gated") as fusion:
        x, y, b = tf.define_tensor([32, 4096], name="x"), tf.define_tensor([32, 4096], name="y"), tf.define_tensor([4096], name="b")
        fusion.add_output(tf.relu(x) * y + b)
    found = choose_segments(fusion)
    config = found.steps[0].schedule.config
    assert config == PointwiseConfig(vector=4, columns=256, rows=1, unroll=2)
    body = [line.strip() for line in str(tf.lower(found.steps[0].fusion)).splitlines()]
    loads = [k for k, line in enumerate(body) if "<- " in line and "width 4" in line and "<- tv" not in line]
    assert len(loads) == 3
    assert max(loads) < next(k for k, line in enumerate(body) if "relu" in line)


@pytest.mark.parametrize(("shape", "numbers"), [([32, 4095], (32, 4095)), (["N", "M"], (7, 33)), (["N", 5, "M"], (3, 5, 300))])
def test_rows_without_vectors_are_one(shape: list[int | str], numbers: tuple[int, ...]) -> None:
    """No row ends in a block; the place of an element takes no division."""
    with tf.Fusion("odd") as fusion:
        x, y = (tf.define_tensor(shape, dtype=tf.float32, name=name) for name in "xy")
        fusion.add_output(tf.relu(x) * y)
    found = checked(fusion, [array(*numbers), array(*numbers)])
    assert found.steps[0].schedule.config == PointwiseConfig(vector=1, columns=256, rows=1, unroll=4, flat=True)
    code = tf.lower(found.steps[0].fusion).cuda_source().split("__global__")[1]
    assert "/" not in code.replace("//", "")
    assert "%" not in code
    with tf.Fusion("broadcast") as fusion:
        x, b = tf.define_tensor(shape, dtype=tf.float32, name="x"), tf.define_tensor([shape[-1]], dtype=tf.float32, name="b")
        fusion.add_output(x + b)
    config = checked(fusion, [array(*numbers), array(numbers[-1])]).steps[0].schedule.config
    assert isinstance(config, PointwiseConfig)
    assert not config.flat


@pytest.mark.parametrize(("width", "vector", "flat"), [(14, 2, True), (28, 4, True), (56, 8, False)])
def test_rows_of_short_vectors_are_one(width: int, vector: int, flat: bool) -> None:
    """Images of 14 x 14 in 16 bits: warps are full, and a vector still lies within a row."""
    with tf.Fusion("images") as fusion:
        x, y = (tf.define_tensor([2, 3, 4, width], tf.bfloat16, name=name) for name in "xy")
        fusion.add_output(tf.relu(x) * y)
    config = checked(fusion, [array(2, 3, 4, width, dtype=tf.bfloat16)] * 2).steps[0].schedule.config
    assert isinstance(config, PointwiseConfig)
    assert (config.vector, config.flat) == (vector, flat)


def test_stencils_take_short_vectors() -> None:
    """Where loads are not vectors, neighboring threads load neighbors; a thread of eight would load from a line of its own."""
    with tf.Fusion("blur") as fusion:
        x = tf.pad(tf.define_tensor([2, 16, 34], dtype=tf.bfloat16, name="x"), [(0, 0), (1, 1), (1, 1)])
        taps = [x[:, i : i + 16 : 2, j : j + 32 : 2] for i in range(3) for j in range(3)]
        fusion.add_output(reduce(tf.maximum, taps))
    found = checked(fusion, [array(2, 16, 34).astype(tf.bfloat16.numpy)])
    assert [step.schedule.scheduler for step in found.steps] == ["pointwise"]
    config = found.steps[0].schedule.config
    assert isinstance(config, PointwiseConfig)
    assert config.vector == 2


@pytest.mark.parametrize(
    ("rows", "columns", "threads"),
    [
        (64, 80, (10, 16)),  # rows of 10 vectors; a divisor of the rows
        (61, 80, (10, 25)),
        (2, 3000, (192, 1)),  # 375 vectors, two of each thread
        (2, 4096, (256, 1)),
    ],
)
def test_few_threads_have_no_column(rows: int, columns: int, threads: tuple[int, int]) -> None:
    with tf.Fusion("columns") as fusion:
        x, b = (tf.define_tensor(shape, dtype=tf.bfloat16, name=name) for shape, name in (([rows, columns], "x"), ([columns], "b")))
        fusion.add_output(x + b)
    found = checked(fusion, [array(rows, columns).astype(tf.bfloat16.numpy), array(columns).astype(tf.bfloat16.numpy)])
    config = found.steps[0].schedule.config
    assert isinstance(config, PointwiseConfig)
    assert (config.columns, config.rows) == threads


@pytest.mark.parametrize("heads", [4, 5])
def test_rows_of_several_axes(heads: int) -> None:
    """Permuted rows: several of a thread are in registers where no block overhangs."""
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor([8, 7, heads, 7, 96], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.copy(x.permute(0, 2, 1, 3, 4)))
    found = checked(fusion, [array(8, 7, heads, 7, 96).astype(tf.bfloat16.numpy)])
    assert [step.schedule.scheduler for step in found.steps] == ["pointwise"]


@pytest.mark.parametrize(("rows", "vector"), [(64, 2), (1 << 16, 8)])
def test_long_chains_of_few_threads_take_short_vectors(rows: int, vector: int) -> None:
    with tf.Fusion("chain") as fusion:
        x = tf.define_tensor([rows, 128], dtype=tf.bfloat16, name="x")
        for _ in range(6):
            x = tf.log1p(tf.exp(x)) / 3
        fusion.add_output(x)
    config = tf.schedulers.pointwise(fusion).config
    assert isinstance(config, PointwiseConfig)
    assert config.vector == vector


def rows_and_a_vector(*, is_read: bool = False, times: int = 1) -> tf.Fusion:
    """Rows times a vector: an input, or functions of one; ``times`` in several tensors."""
    with tf.Fusion("vector") as fusion:
        x, v = tf.define_tensor([2048, 2048], dtype=tf.bfloat16, name="x"), tf.define_tensor([2048], dtype=tf.float32, name="v")
        found = tf.cast(x, tf.float32)
        for _ in range(times):
            found = found * (v if is_read else tf.exp(tf.sin(tf.exp(tf.sin(tf.exp(tf.sin(v)))))))
        fusion.add_output(tf.cast(found, tf.bfloat16))
    return fusion


def test_what_is_computed_for_every_row_counts_for_every_row() -> None:
    read, once, thrice = (tf.schedulers.pointwise(f).us for f in (rows_and_a_vector(is_read=True), rows_and_a_vector(), rows_and_a_vector(times=3)))
    assert once > 1.5 * read
    assert thrice < 1.1 * once, "the compiler computes a function of the same elements once"
    found = choose_segments(rows_and_a_vector())
    assert len(found.steps) == 2
    assert found.us < once


def padded_weights(kept: int) -> tf.Fusion:
    """Weights of the first columns of a row, and zeros in place of the others."""
    with tf.Fusion("padded") as fusion:
        x, greatest = tf.define_tensor([512, 2056], dtype=tf.bfloat16, name="x"), tf.define_tensor([512, 1], name="greatest")
        fusion.add_output(tf.cast(tf.pad(tf.exp(x[:, :kept] - greatest), [(0, 0), (0, 2056 - kept)]), tf.bfloat16), name="y")
    return fusion


def test_rows_that_end_within_a_vector_are_loaded_in_vectors() -> None:
    """The elements behind the end exist, and a value of a row is one for all of its columns."""
    fusion = padded_weights(2050)
    assert tf.schedulers.pointwise(fusion).config.vector == 8
    text = str(tf.lower(fusion))
    assert "<- x[" in text
    assert "width 8" in text
    assert "pad(greatest" not in text


def test_columns_that_are_left_out_are_not_loaded() -> None:
    fusion = padded_weights(100)
    tf.schedulers.pointwise(fusion)
    text = str(tf.lower(fusion))
    assert " < 100" in text
    assert "<- x[" not in text


@pytest.mark.parametrize("lanes", [4, 32, 64])
def test_threads_of_a_block_stand_in_lines_of_any_length(lanes: int) -> None:
    with tf.Fusion("rows") as fusion:
        x, b = tf.define_tensor([5, 11, 32], name="x"), tf.define_tensor([32], name="b")
        fusion.add_output(tf.relu(x) + b)
    config = PointwiseConfig(vector=4, columns=8, rows=8, unroll=1).in_lines(lanes)
    assert config is not None
    assert config.block == (lanes, 64 // lanes, 1)
    given = [array(5, 11, 32), array(32)]
    wanted = fusion.evaluate(*given)
    tf.schedulers.pointwise(fusion, config)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert (kernel.simulate(*given)[0] == wanted[0]).all()


def test_lines_that_threads_do_not_fill_are_refused() -> None:
    assert PointwiseConfig(vector=4, columns=24, rows=2, unroll=1).in_lines(32) is None
    with pytest.raises(UnsupportedError, match="lanes is 7"):
        PointwiseConfig(vector=4, columns=16, rows=2, unroll=1, lanes=7)


def test_long_functions_are_spread_over_more_threads() -> None:
    """A library's power takes as many instructions as a small kernel has threads to spare."""
    with tf.Fusion("powers") as fusion:
        fusion.add_output(tf.pow(tf.define_tensor([16, 1], name="x"), tf.define_tensor([1, 512], name="y")))
    config = tf.schedulers.pointwise(fusion).config
    assert isinstance(config, PointwiseConfig)
    assert config.unroll * config.unroll_rows == 1


def test_what_tables_say_of_two_digits_is_interleaved_in_one_kernel() -> None:
    """A part of a concatenation is looked up at all points of the result, as a table of one axis has an element for every value: no part is stored before."""
    with tf.Fusion("digits") as fusion:
        codes, table = tf.define_tensor([8, 16], dtype=tf.uint8, name="codes"), tf.define_tensor([16], name="table")
        scales = tf.define_tensor([8, 2, 1], name="scales")
        digits = [tf.take(table, tf.cast(code, tf.int64), 0) for code in (codes & 15, codes >> 4)]
        fusion.add_output(tf.reshape(tf.reshape(tf.stack(digits, -1), [8, 2, 16]) * scales, [8, 32]))
    (step,) = checked(fusion, [np.arange(128, dtype=np.uint8).reshape(8, 16) * 2 + 1, array(16), array(8, 2, 1)]).steps
    assert step.schedule.scheduler == "pointwise"
