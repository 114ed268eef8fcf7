"""Ragged rows side by side, against NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import DTypeError, FusionError, ShapeError


def padded(extra: tuple[int, ...] = (), value: float = 0.0, dtype: tf.DType = tf.int32) -> tf.Fusion:
    with tf.Fusion() as fusion:
        x = tf.define_tensor(("M", *extra), name="x")
        offsets = tf.table("offsets", "G + 1", high="M", dtype=dtype)
        fusion.add_output(tf.jagged_to_padded_dense(x, offsets, "L", value))
        fusion.add_output(tf.define_tensor("L", name="length") + 0.0)
    return fusion


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(1, 6), st.sampled_from([(), (3,)]))
def test_rows_side_by_side(lengths: list[int], most: int, extra: tuple[int, ...]) -> None:
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    x = np.arange(offsets[-1] * (extra or (1,))[0], dtype=np.float32).reshape(offsets[-1], *extra) + 1
    if not len(x):
        return
    found, _ = padded(extra, -2.0).evaluate(x, offsets, np.zeros(most, np.float32))
    for row, (start, end) in zip(found, pairwise(offsets), strict=True):
        kept = x[start:end][:most]
        assert (row[: len(kept)] == kept).all()
        assert (row[len(kept) :] == -2.0).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any))
def test_rows_by_their_lengths(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths])
    x = np.arange(offsets[-1], dtype=np.float32) + 1
    with tf.Fusion() as fusion:
        values = tf.define_tensor(len(x))
        table = tf.table("lengths", len(lengths), len(x), lengths=True)
        fusion.add_output(tf.jagged_to_padded_dense(values, table, 4))
        fusion.add_output(tf.segment_sum(values, table))
    found, sums = fusion.evaluate(x, np.array(lengths, np.int32))
    assert [row[:n].tolist() for row, n in zip(found, lengths, strict=True)] == [x[s:e].tolist() for s, e in pairwise(offsets)]
    assert sums.tolist() == [x[s:e].sum() for s, e in pairwise(offsets)]


@pytest.mark.parametrize("values", [[5, -3, 9, 2], [9, 9, 9, 9], [-1, -1, 2, 2**31 - 1]])
def test_a_table_that_breaks_its_promises_reads_inside(values: list[int]) -> None:
    x = np.arange(4, dtype=np.float32)
    clipped = np.clip(values, 0, 4)
    found, _ = padded().evaluate(x, np.array(values, np.int32), np.zeros(4, np.float32))
    for row, start, end in zip(found, clipped, clipped[1:], strict=False):
        wanted = [x[start + i] if i < end - start else 0 for i in range(4)]
        assert row.tolist() == wanted


@pytest.mark.parametrize("dtype", [tf.int64, tf.int16, tf.uint32])
def test_text_is_read_back(dtype: tf.DType) -> None:
    fusion = padded(dtype=dtype)
    assert f"INPUT offsets: {dtype.name}[G + 1] table 0..M" in str(fusion)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)


def test_what_is_no_table() -> None:
    with tf.Fusion():
        x = tf.define_tensor("M")
        with pytest.raises(FusionError, match="is not a table"):
            tf.jagged_to_padded_dense(x, tf.define_tensor("G", tf.int32), 4)
        with pytest.raises(ShapeError, match="offsets between 0 and G for an axis of M"):
            tf.jagged_to_padded_dense(x, tf.table("rows", "G + 1", high="G"), 4)
        with pytest.raises(DTypeError, match=r"0\.5 is not a value of int32"):
            tf.jagged_to_padded_dense(tf.define_tensor("M", tf.int32), tf.table("places", "G + 1", high="M"), 4, 0.5)
        with pytest.raises(DTypeError, match="float32 is not a dtype of tables"):
            tf.table("t", 4, high=4, dtype=tf.float32)
        with pytest.raises(FusionError, match="'M' is not a name for a table"):
            tf.table("M", 4, high=4)
        with pytest.raises(FusionError, match="'i0' is not a name for a table"):
            tf.table("i0", 4, high=4)


def test_a_table_keeps_its_name_and_its_elements() -> None:
    with tf.Fusion() as fusion:
        tf.define_tensor("M")
        rows = tf.table("rows", "G + 1", high="M")
        with pytest.raises(FusionError, match="the name of table 'rows' stands in index expressions"):
            rows.named("offsets")
        with pytest.raises(FusionError, match="'rows' is a table, not a dimension"):
            tf.define_tensor("rows")
        with pytest.raises(FusionError, match="rows is a table, which expressions read"):
            fusion.add_output(rows + 1, into=rows)
