"""Products of ragged groups of rows, against NumPy."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import FusionError, ParseError, ShapeError


def grouped(rows: int | str, groups: int | str, k: int = 3, n: int = 2) -> tf.Fusion:
    with tf.Fusion() as fusion:
        a = tf.define_tensor((rows, k), name="a")
        b = tf.define_tensor((groups, k, n), name="b")
        size = groups + 1 if isinstance(groups, int) else f"{groups} + 1"
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", size, rows, rising=True)))
    return fusion


def arrays(table: list[int], k: int = 3, n: int = 2) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(len(table))
    shapes = (table[-1], k), (len(table) - 1, k, n)
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in shapes)
    return a, b, np.array(table, np.int32)


@pytest.mark.parametrize("rows", [1, 5, 127, 128, 300])
@given(data=st.data())
def test_each_group_by_its_matrix(rows: int, data: st.DataObject) -> None:
    table = [0, *sorted(data.draw(st.lists(st.integers(0, rows), max_size=4))), rows]
    a, b, offsets = arrays(table)
    (found,) = grouped(rows, len(table) - 1).evaluate(a, b, offsets)
    wanted = np.concatenate([a[start:end] @ m for (start, end), m in zip(pairwise(table), b, strict=True)])
    assert (found == wanted).all()


def test_rows_and_groups_that_calls_say() -> None:
    with tf.Fusion() as fusion:
        a = tf.define_tensor((tf.dim("M", min=128), 3), name="a")
        b = tf.define_tensor((tf.dim("G", min=1), 3, 2), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", "G + 1", "M", rising=True)))
    for table in ([0, 130], [0, 0, 1, 128, 200]):
        x, y, offsets = arrays(table)
        (found,) = fusion.evaluate(x, y, offsets)
        assert (found == np.concatenate([x[s:e] @ m for (s, e), m in zip(pairwise(table), y, strict=True)])).all()
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    assert "INPUT offsets: int32[G + 1] table 0..M rising" in str(fusion)


def test_what_is_refused() -> None:
    with tf.Fusion():
        a, b = tf.define_tensor((8, 3)), tf.define_tensor((2, 3, 2))
        with pytest.raises(FusionError, match="is not a table"):
            tf.grouped_matmul(a, b, tf.define_tensor(3, tf.int32))
        with pytest.raises(ShapeError, match="does not divide 8 rows into 2 groups"):
            tf.grouped_matmul(a, b, tf.table("falls", 3, 8))
        with pytest.raises(ShapeError, match="does not divide 8 rows into 2 groups"):
            tf.grouped_matmul(a, b, tf.table("short", 2, 8, rising=True))
        with pytest.raises(ShapeError, match="are not rows"):
            tf.grouped_matmul(a, tf.define_tensor((2, 4, 2)), tf.table("offsets", 3, 8, rising=True))
        with pytest.raises(ShapeError, match="may have fewer than 128 rows"):
            tf.grouped_matmul(tf.define_tensor(("M", 3)), b, tf.table("many", 3, "M", rising=True))
        with pytest.raises(ShapeError, match="may have 0 matrices"):
            tf.grouped_matmul(a, tf.define_tensor((tf.dim("G", min=0), 3, 2)), tf.table("none", "G + 1", 8, rising=True))


@pytest.mark.parametrize("table", [[0, 5], [0, 0, 1, 1]])
def test_one_group_and_one_row_take_one_matrix(table: list[int]) -> None:
    a, b, offsets = arrays(table)
    fusion = grouped(table[-1], len(table) - 1)
    (found,) = fusion.evaluate(a, b, offsets)
    assert (found == np.concatenate([a[s:e] @ m for (s, e), m in zip(pairwise(table), b, strict=True)])).all()
    assert fusion.outputs[0].ndim == 2
    assert not any(tv.ndim > 3 for tv in fusion.tensors())


def by_lengths(rows: int, groups: int, dtype: tf.DType = tf.int32, **options: Any) -> tf.Fusion:
    with tf.Fusion("lengths") as fusion:
        a, b = tf.define_tensor((rows, 3), name="a"), tf.define_tensor((groups, 3, 2), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("lengths", groups, rows, dtype, lengths=True), **options))
    return fusion


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64, tf.uint32])
@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=40).filter(any))
def test_lengths_in_place_of_offsets(dtype: tf.DType, lengths: list[int]) -> None:
    a, b, _ = arrays([0, *accumulate(lengths)])
    (found,) = by_lengths(sum(lengths), len(lengths), dtype).evaluate(a, b, np.array(lengths, dtype.numpy))
    (wanted,) = grouped(sum(lengths), len(lengths)).evaluate(a, b, np.array([0, *accumulate(lengths)], np.int32))
    assert (found == wanted).all()


@pytest.mark.parametrize("lengths", [[5, -3, 9, 2], [2**31 - 1] * 4, [-(2**31), 0, 1, 0], [0, 0, 0, 0], [13, 1, 1, 1]])
def test_lengths_that_do_not_add_up_have_offsets(lengths: list[int]) -> None:
    """Negative ones count as 0, no group ends behind the rows, and what is left belongs to the last one: in the reference and in a kernel."""
    fusion = by_lengths(13, 4, tile=4)
    ends = [0, *(min(13, e) for e in accumulate(max(0, n) for n in lengths[:-1])), 13]
    a, b, _ = arrays(ends)
    given = a, b, np.array(lengths, np.int32)
    (found,) = fusion.evaluate(*given)
    assert (found == np.concatenate([a[s:e] @ m for (s, e), m in zip(pairwise(ends), b, strict=True)])).all()
    fusion.inline_most()
    assert all((out == found).all() for out in tf.lower(fusion).simulate(*given))


def test_lengths_are_text() -> None:
    text = str(by_lengths(300, 3))
    assert "INPUT lengths: int32[3] table 0..300 lengths" in text
    assert "lengths.offsets[k of 4]//128" in text
    assert str(tf.parse_fusion(text)) == text
    with pytest.raises(ParseError, match=r"'lengths\.offsets' is not a table"):
        tf.parse_fusion(text.replace("300 lengths", "300"))
    with pytest.raises(ParseError, match=r"table 'lengths\.offsets' has 4 elements, not 5"):
        tf.parse_fusion(text.replace("of 4]", "of 5]"))


def test_lengths_of_groups_that_calls_say() -> None:
    with tf.Fusion() as fusion:
        a = tf.define_tensor((tf.dim("M", min=128), 3), name="a")
        b = tf.define_tensor((tf.dim("G", min=1), 3, 2), name="b")
        fusion.add_output(tf.grouped_matmul(a, b, lengths=tf.table("lengths", "G", "M", lengths=True)))
    kernel = tf.lower(fusion)
    for lengths in ([130], [0, 1, 127, 72], [4] * 35):
        x, y, _ = arrays([0, *accumulate(lengths)])
        given = x, y, np.array(lengths, np.int32)
        assert all((one == two).all() for one, two in zip(fusion.evaluate(*given), kernel.simulate(*given), strict=True))


def test_what_lengths_are_refused() -> None:
    with tf.Fusion():
        a, b = tf.define_tensor((8, 3)), tf.define_tensor((2, 3, 2))
        lengths = tf.table("lengths", 2, 8, lengths=True)
        with pytest.raises(FusionError, match="neither offsets nor lengths of groups are given"):
            tf.grouped_matmul(a, b)
        with pytest.raises(FusionError, match="both offsets and lengths of groups are given"):
            tf.grouped_matmul(a, b, tf.table("offsets", 3, 8, rising=True), lengths=lengths)
        with pytest.raises(FusionError, match="is not a table of offsets"):
            tf.grouped_matmul(a, b, lengths)
        with pytest.raises(FusionError, match="is not a table of lengths"):
            tf.grouped_matmul(a, b, lengths=tf.table("counts", 2, 8))
        with pytest.raises(ShapeError, match="does not divide 8 rows into 2 groups"):
            tf.grouped_matmul(a, b, lengths=tf.table("many", 3, 8, lengths=True))
        with pytest.raises(ShapeError, match="are not offsets"):
            tf.table("both", 2, 8, rising=True, lengths=True)
        with pytest.raises(ShapeError, match="lengths have low=0, not 1"):
            tf.table("least", 2, 8, low=1, lengths=True)
        with pytest.raises(ShapeError, match="the number of lengths, G, may be 0"):
            tf.table("none", tf.dim("G", min=0), 8, lengths=True)


@pytest.mark.parametrize("form", ["rows", "blocks"])
def test_scales(form: str) -> None:
    table, k, n = [0, 70, 70, 200], 256, 136
    rng = np.random.default_rng(1)
    rows, groups, blocks = table[-1], len(table) - 1, k // 128
    shapes = ((rows, blocks), (groups, blocks, 2)) if form == "blocks" else ((rows, 1), (groups, 1, n))
    with tf.Fusion() as fusion:
        a, b = tf.define_tensor((rows, k), tf.float16), tf.define_tensor((groups, k, n), tf.float16)
        scale_a, scale_b = (tf.define_tensor(s, tf.float32) for s in shapes)
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("offsets", groups + 1, rows, rising=True), scale_a=scale_a, scale_b=scale_b))
    x, y = (rng.integers(-4, 5, s).astype(np.float16) for s in ((rows, k), (groups, k, n)))
    left, right = (np.exp2(rng.integers(-2, 3, s)).astype(np.float32) for s in shapes)
    (found,) = fusion.evaluate(x, y, left, right, np.array(table, np.int32))
    p = x * (left.repeat(128, 1) if form == "blocks" else left)
    q = y * (right.repeat(128, 1).repeat(128, 2)[:, :, :n] if form == "blocks" else right)
    assert (found == np.concatenate([p[s:e] @ m for (s, e), m in zip(pairwise(table), q, strict=True)])).all()


def test_scales_that_do_not_fit() -> None:
    with tf.Fusion():
        a, b, offsets = tf.define_tensor((8, 256)), tf.define_tensor((2, 256, 2)), tf.table("offsets", 3, 8, rising=True)
        one = tf.define_tensor(())
        with pytest.raises(ShapeError, match="only one factor has a scale"):
            tf.grouped_matmul(a, b, offsets, scale_a=one)
        with pytest.raises(ShapeError, match="is not a scale of the rows"):
            tf.grouped_matmul(a, b, offsets, scale_a=tf.define_tensor((1, 2)), scale_b=one)
        with pytest.raises(ShapeError, match="is not a scale of the matrices"):
            tf.grouped_matmul(a, b, offsets, scale_a=one, scale_b=tf.define_tensor((2, 1)))
        with pytest.raises(ShapeError, match="is not a scale of"):
            tf.grouped_matmul(a, b, offsets, scale_a=one, scale_b=tf.define_tensor((2, 3, 1)))


# -- groups of terms ------------------------------------------------------------------------------------------------------------------


def terms(k: int | tf.Dim, m: int = 3, n: int = 2, dtype: tf.DType = tf.float32) -> tf.Fusion:
    with tf.Fusion("terms") as fusion:
        a = tf.define_tensor((k, m), dtype, name="a")
        b = tf.define_tensor((a.shape[0], n), dtype, name="b")
        fusion.add_output(tf.grouped_matmul(a.T, b, tf.table("offsets", 4, a.shape[0])))
    return fusion


def sums(a: np.ndarray, b: np.ndarray, table: list[int]) -> np.ndarray:
    ends = np.clip(table, 0, len(a))
    return np.stack([a[s : max(s, e)].astype(np.float32).T @ b[s : max(s, e)].astype(np.float32) for s, e in pairwise(ends)])


@given(table=st.lists(st.one_of(st.integers(-2, 12), st.sampled_from([2**31 - 1, -(2**31)])), min_size=4, max_size=4))
def test_each_group_of_terms(table: list[int]) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (10, n)).astype(np.float32) for n in (3, 2))
    (found,) = terms(10).evaluate(a, b, np.array(table, np.int32))
    assert (found == sums(a, b, table)).all()


@given(lengths=st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any))
def test_lengths_of_groups_of_terms(lengths: list[int]) -> None:
    table = [0, *accumulate(lengths)]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, (table[-1], n)).astype(np.float32) for n in (3, 2))
    with tf.Fusion("terms") as fusion:
        x, y = tf.define_tensor((table[-1], 3)), tf.define_tensor((table[-1], 2))
        fusion.add_output(tf.grouped_matmul(x.T, y, lengths=tf.table("lengths", len(lengths), table[-1], lengths=True)))
    (found,) = fusion.evaluate(a, b, np.array(lengths, np.int32))
    assert (found == sums(a, b, table)).all()


@pytest.mark.parametrize("k", [150, tf.dim("K")])
def test_groups_of_terms_on_tensor_cores(k: int | tf.Dim) -> None:
    """What lies past the end of a group is not read, though it may be no number."""
    fusion = terms(k, 128, 64, tf.bfloat16)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert "ceildiv(clamp(offsets[" in str(kernel)
    rng = np.random.default_rng(0)
    for table in ([1, 5, 5, 149], [1, 70, 100, 149], [9, 3, 149, -7]):
        a, b = (rng.integers(-2, 3, (150, n)).astype(tf.bfloat16.numpy) for n in (128, 64))
        a[0] = a[149] = b[0] = b[149] = np.nan
        (found,) = kernel.simulate(a, b, np.array(table, np.int32))
        assert (found.astype(np.float32) == sums(a, b, table).astype(tf.bfloat16.numpy).astype(np.float32)).all()


def test_groups_of_terms_need_a_table() -> None:
    with tf.Fusion():
        a = tf.define_tensor((3, 8))
        with pytest.raises(FusionError, match="is not a table"):
            tf.grouped_matmul(a, tf.define_tensor((8, 2)), tf.define_tensor(3, tf.int32))
        with pytest.raises(ShapeError, match="offsets between 0 and 9 for an axis of 8"):
            tf.grouped_matmul(a, tf.define_tensor((8, 2)), tf.table("long", 3, 9))
        with pytest.raises(ShapeError, match="a tile of 0 rows"):
            tf.grouped_matmul(tf.define_tensor((8, 3)), tf.define_tensor((2, 3, 2)), tf.table("t", 3, 8, rising=True), tile=0)
