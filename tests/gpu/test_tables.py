"""Ragged rows: trips that a table in memory decides, also one that breaks its promises; and integers that a call gives."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import itertools

import taskfuse as tf


def ragged(lengths: list[int]) -> tuple[Any, list[tuple[int, int]]]:
    offsets = [0, *np.cumsum(lengths).tolist()]
    return torch.tensor(offsets, dtype=torch.int32, device="cuda"), list(itertools.pairwise(offsets))


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_sums_of_rows(dtype: tf.DType) -> None:
    with tf.Fusion("segment_sum") as fusion:
        x = tf.define_tensor(("M", 256), dtype, name="x")
        offsets = tf.table("offsets", "G + 1", high="M")
        fusion.add_output(tf.sum(tf.cast(tf.jagged_to_padded_dense(x, offsets, "M"), tf.float32), 1))
    run = tf.compile(fusion)
    for lengths in ([5, 0, 700, 1, 318], [1024], [1] * 64, [0, 0, 3000]):
        table, rows = ragged(lengths)
        given = torch.randn(rows[-1][1], 256, device="cuda").to(getattr(torch, dtype.name))
        (found,) = run(given, table)
        wanted = torch.stack([given[a:b].float().sum(0) for a, b in rows])
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("values", [[900, 3, -7, 2**31 - 1, 10], [-(2**31), 2**31 - 1, 0, 0, 5], [1024, 1024, 0, 1024, 1023]])
def test_no_table_makes_a_kernel_read_elsewhere_or_hang(values: list[int]) -> None:
    with tf.Fusion("hostile") as fusion:
        x = tf.define_tensor(("M", 64), name="x")
        offsets = tf.table("offsets", "G + 1", high="M")
        fusion.add_output(tf.sum(tf.jagged_to_padded_dense(x, offsets, "M"), 1))
    run = tf.compile(fusion)
    given = torch.randn(1024, 64, device="cuda")
    (found,) = run(given, torch.tensor(values, dtype=torch.int32, device="cuda"))
    ends = [min(max(v, 0), 1024) for v in values]
    wanted = torch.stack([given[a : max(a, b)].sum(0) for a, b in itertools.pairwise(ends)])
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_products_of_rows() -> None:
    with tf.Fusion("grouped") as fusion:
        x, y = tf.define_tensor(("M", 64), name="x"), tf.define_tensor(("M", 96), name="y")
        offsets = tf.table("offsets", "G + 1", high="M", dtype=tf.int64)
        rows = [tf.jagged_to_padded_dense(tv, offsets, "M") for tv in (x, y)]
        fusion.add_output(tf.matmul(tf.permute(rows[0], [0, 2, 1]), rows[1]))
    run = tf.compile(fusion)
    table, rows = ragged([100, 0, 33, 379])
    a, b = torch.randn(512, 64, device="cuda"), torch.randn(512, 96, device="cuda")
    (found,) = run(a, b, table.long())
    wanted = torch.stack([a[i:j].double().T @ b[i:j].double() for i, j in rows]).float()
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_a_decode_step_at_any_position() -> None:
    with tf.Fusion("decode") as fusion:
        cache, new = tf.define_tensor(["B", "N", 64], name="cache"), tf.define_tensor(["B", 4, 64], name="new")
        at = tf.define_integer("at", max="N - 4")
        fusion.add_output(tf.sum(tf.cat([cache[:, :at], new], 1), 1))
        fusion.add_output(tf.copy(new), into=cache[:, at : at + 4])
    run = tf.compile(fusion)
    for position in (0, 5, 60, 124):
        held, rows = torch.randn(3, 128, 64, device="cuda"), torch.randn(3, 4, 64, device="cuda")
        wanted = held.clone()
        total = held[:, :position].sum(1) + rows.sum(1)
        wanted[:, position : position + 4] = rows
        found, _ = run(held, rows, position)
        assert torch.allclose(found, total, rtol=1e-4, atol=1e-3)
        assert torch.equal(held, wanted)
