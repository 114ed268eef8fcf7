"""Elements of tables in PTX: bounds of loops and guards that memory decides."""

from __future__ import annotations

import pytest

import taskfuse as tf
from taskfuse.cuda.source import emit
from taskfuse.testing.ptx.compare import compare
from tests.testing.ptx.compiled import compared, ptx_of, written


def test_a_loop_that_a_table_bounds() -> None:
    report = compared(written("segment_sum"))
    assert report.difference is None
    assert report.launches > 1


@pytest.mark.parametrize("dtype", [tf.int64, tf.uint8])
def test_threads_with_rows_of_their_own(dtype: tf.DType) -> None:
    with tf.Fusion("rows") as fusion:
        x = tf.define_tensor(("M", 8), name="x")
        offsets = tf.table("offsets", "G + 1", high="M", dtype=dtype)
        fusion.add_output(tf.sum(tf.jagged_to_padded_dense(x, offsets, "M"), 1))
    tf.schedulers.reduction(fusion)
    assert compared(tf.lower(fusion)).difference is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[r + element]", "x[r + element_1]"),
        ("max(offsets[blockIdx_x], 0)", "offsets[blockIdx_x]"),
        ("offsets[blockIdx_x + 1], 0), M)", "offsets[blockIdx_x + 1], 0), M + 3)"),
    ],
)
def test_what_reads_other_elements_is_a_difference(old: str, new: str) -> None:
    kernel = written("segment_sum")
    source = emit(kernel)
    assert old in source.text
    assert compare(kernel, source, ptx_of(source, source.text.replace(old, new)), [{"M": 7, "G": 3}]).difference is not None
