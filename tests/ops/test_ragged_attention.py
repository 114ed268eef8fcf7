"""Attention of sequences of unequal length is that of each sequence by itself, in float64; wrong operands and tables are told."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

import taskfuse as tf
from taskfuse.errors import DTypeError, FusionError, ShapeError
from tests.ops.attended import attended, cuts, paged, random

LENGTHS = [([0, 1, 7, 13, 0, 5], [3, 0, 11, 13, 4, 2]), ([26], [33]), ([2, 3], [64, 31]), ([17, 1], [5, 97])]


def varlen(arrays: Sequence[NDArray[Any]], tables: Sequence[NDArray[Any]], *, lengths: bool = False, **options: Any) -> NDArray[Any]:
    """Ours, by the reference; of offsets or of lengths."""
    with tf.Fusion() as fusion:
        q, k, v = (tf.define_tensor(list(x.shape), tf.float64) for x in arrays)
        of_q, of_k = (
            tf.table(name, len(t), high=len(x), rising=not lengths, lengths=lengths) for name, t, x in zip(("of_q", "of_k"), tables, arrays[:2], strict=True)
        )
        fusion.add_output(tf.varlen_attention(q, k, v, of_q, of_k, **options))
    with np.errstate(all="ignore"):
        (found,) = fusion.evaluate(*arrays, *tables)
    return found


@pytest.mark.parametrize(("of_q", "of_k"), LENGTHS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tile", [None, 4])
def test_each_sequence_attends_to_its_own_keys(of_q: list[int], of_k: list[int], is_causal: bool, tile: int | None) -> None:
    arrays = random((sum(of_q), 4, 8)), random((sum(of_k), 2, 8)), random((sum(of_k), 2, 6))
    wanted = attended(*arrays, cuts(of_q), cuts(of_k), is_causal)
    np.testing.assert_allclose(varlen(arrays, (cuts(of_q), cuts(of_k)), is_causal=is_causal, tile=tile), wanted, rtol=1e-10, atol=1e-12)
    tables = np.array(of_q, np.int32), np.array(of_k, np.int32)
    np.testing.assert_allclose(varlen(arrays, tables, lengths=True, is_causal=is_causal, tile=tile), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("of_q", "of_k"), LENGTHS)
@pytest.mark.parametrize("window", [1, 5, 40])
def test_windows_end_at_the_key_of_their_query(of_q: list[int], of_k: list[int], window: int) -> None:
    arrays = random((sum(of_q), 4, 8)), random((sum(of_k), 2, 8)), random((sum(of_k), 2, 6))
    wanted = attended(*arrays, cuts(of_q), cuts(of_k), True, window)
    found = varlen(arrays, (cuts(of_q), cuts(of_k)), is_causal=True, window=window, tile=4)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_scores_of_other_sequences_do_not_count() -> None:
    """Keys of others may be anything, also infinite."""
    arrays = random((6, 2, 8)), random((9, 2, 8)), random((9, 2, 8))
    tables = cuts([2, 4]), cuts([5, 4])
    wanted = attended(*arrays, *tables, False)[:2]
    arrays[1][5:] = np.inf
    np.testing.assert_allclose(varlen(arrays, tables, scale=8**-0.5)[:2], wanted, rtol=1e-10)


@pytest.mark.parametrize(("heads", "queries"), [(4, 1), (4, 5), (2, 3), (4, 33)])
@pytest.mark.parametrize("size", [1, 4, 7])
@pytest.mark.parametrize("is_causal", [False, True])
def test_keys_in_pages(heads: int, queries: int, size: int, is_causal: bool) -> None:
    batch, pages, each = 3, 9, 5
    q, k, v = random((batch, heads, queries, 8)), random((pages, size, 2, 8)), random((pages, size, 2, 6))
    table = np.random.default_rng(size).integers(0, pages, batch * each).astype(np.int32)
    lengths = np.array([0, each * size, each * size // 2 + 1], np.int32)
    with tf.Fusion() as fusion:
        of_q, of_k, of_v = (tf.define_tensor(list(x.shape), tf.float64) for x in (q, k, v))
        own, counts = tf.table("pages", batch * each, high=pages - 1), tf.table("lengths", batch, high=each * size)
        fusion.add_output(tf.paged_attention(of_q, of_k, of_v, own, counts, is_causal=is_causal))
    with np.errstate(all="ignore"):
        (found,) = fusion.evaluate(q, k, v, table, lengths)
    np.testing.assert_allclose(found, paged(q, k, v, table, lengths, is_causal), rtol=1e-10, atol=1e-12)


def test_what_does_not_fit() -> None:
    with tf.Fusion():
        q, k, v = (tf.define_tensor([n, h, 8], name=name) for name, n, h in (("q", 20, 4), ("k", 30, 2), ("v", 30, 2)))
        of_q, of_k = tf.table("of_q", 4, high=20, rising=True), tf.table("of_k", 4, high=30, rising=True)
        for wrong, reason in (
            ((q, k, v, of_q, tf.table("a", 5, high=30, rising=True)), "differ in the number of sequences"),
            ((q, k, v, of_k, of_k), "does not divide"),
            ((q, k, tf.define_tensor([29, 2, 8]), of_q, of_k), "are not"),
            ((q, tf.define_tensor([30, 3, 8]), tf.define_tensor([30, 3, 8]), of_q, of_k), "4 heads"),
            ((q, k, v, tf.table("none", 1, high=20, rising=True), of_k), "may be of 0 sequences"),
        ):
            with pytest.raises(ShapeError, match=reason):
                tf.varlen_attention(*wrong)
        with pytest.raises(FusionError, match="not a table of offsets"):
            tf.varlen_attention(q, k, v, of_q, tf.table("plain", 4, high=30))
        with pytest.raises(FusionError, match="not a table of offsets"):
            tf.varlen_attention(q, k, v, of_q, tf.define_tensor([4], tf.int32))
        with pytest.raises(DTypeError, match="float16"):
            tf.varlen_attention(q, k, tf.define_tensor([30, 2, 8], tf.float16), of_q, of_k)
        for tile in (0, -8, 2.0, "a", True):
            with pytest.raises(ShapeError, match="is not a number of queries of a tile"):
                tf.varlen_attention(q, k, v, of_q, of_k, tile=cast("Any", tile))
        for window in (0, -1, 2.5, True):
            with pytest.raises(ShapeError, match="is not a number of keys of a window"):
                tf.varlen_attention(q, k, v, of_q, of_k, True, window=cast("Any", window))
        with pytest.raises(FusionError, match="a window ends at the key of its query"):
            tf.varlen_attention(q, k, v, of_q, of_k, window=4)
        x = tf.define_tensor(["T", 4, 8], name="x")
        with pytest.raises(ShapeError, match=r"fewer than 128 queries"):
            tf.varlen_attention(x, k, v, tf.table("of_x", 4, high="T", rising=True), of_k)


def test_pages_that_do_not_fit() -> None:
    with tf.Fusion():
        q, k = tf.define_tensor([3, 4, 1, 8], name="q"), tf.define_tensor([9, 4, 2, 8], name="k")
        pages, lengths = tf.table("pages", 15, high=8), tf.table("lengths", 3, high=20)
        for wrong, reason in (
            ((q, k, k, tf.table("a", 14, high=8), lengths), "does not hold indices of"),
            ((q, k, k, tf.table("b", 15, high=9), lengths), "does not hold indices of"),
            ((q, k, k, pages, tf.table("c", 3, high=19)), "does not hold the lengths"),
            ((q, tf.define_tensor([9, "S", 2, 8]), tf.define_tensor([9, "S", 2, 8]), pages, lengths), "pages of S keys"),
            ((tf.define_tensor([3, 4, 8]), k, k, pages, lengths), "are not"),
            ((tf.define_tensor([0, 4, 1, 8]), k, k, pages, lengths), "may hold 0 sequences"),
        ):
            with pytest.raises(ShapeError, match=reason):
                tf.paged_attention(*wrong)
        with pytest.raises(FusionError, match="is not a table"):
            tf.paged_attention(q, k, k, tf.define_tensor([15], tf.int32), lengths)
