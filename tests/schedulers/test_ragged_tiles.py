"""Tiles of ragged rows, counted: as the kernels number, order and deal them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.ir.axes import WORK
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import const, evaluate, sym
from taskfuse.schedulers.ragged_tiles import RaggedTiles, as_rows, find
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.target import DEFAULT


@settings(max_examples=20)
@given(st.integers(1, 5), st.integers(4, 40), st.integers(1, 4), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
def test_tiles_of_the_block_that_has_most(groups: int, rows: int, size: int, height: int, columns: int, group: int, blocks: int) -> None:
    offsets = [rows * g // groups for g in range(groups + 1)]
    tiles = RowTiles(sym("t"), const(groups), const(rows), size)
    count = rows // size + groups
    env = {"t": np.array(offsets)}
    used = [evaluate(tiles.first(const(w)), env) < evaluate(tiles.end(const(w)), env) for w in range(count)]
    order = tf.tiles.grouped(group, across=True).maps((const(count), const(height), const(columns)))
    dealt = [0] * blocks
    for w in range(count * height * columns):
        dealt[w % blocks] += bool(used[int(evaluate(order[0], {WORK: w}))])
    found = RaggedTiles(groups, rows, size)
    assert (found.used, found.most(height, columns, group, blocks)) == (sum(used), max(dealt))


def test_what_a_fusion_has() -> None:
    with tf.Fusion() as fusion:
        a, b = tf.define_tensor(("M", 64), name="a"), tf.define_tensor((3, 64, 8), name="b")
        y = tf.matmul(a, b[0])
    assert find(fusion, Sizes(fusion, {"M": 500}, DEFAULT)) is None
    with tf.Fusion() as fusion:
        a = tf.define_tensor((tf.dim("M", min=128), 64), name="a")
        b = tf.define_tensor((3, 64, 8), name="b")
        y = tf.grouped_matmul(a, b, tf.table("offsets", 4, "M", rising=True))
        fusion.add_output(y)
    assert find(fusion, Sizes(fusion, {"M": 500}, DEFAULT)) == RaggedTiles(3, 500, 128)
    assert [RaggedTiles(4, 1024, 128).matrices(tiles) for tiles in (1, 3, 4, 100)] == [1, 2, 2, 4]


def test_kernels_hand_each_other_rows() -> None:
    """Two products of the same groups and what is computed of both: the products store rows, and the second one has the rest for an epilogue."""
    with tf.Fusion("gated") as fusion:
        x, offsets = tf.define_tensor((16384, 2048), tf.bfloat16, name="x"), tf.table("offsets", 33, 16384, rising=True)
        gate, up = (tf.define_tensor((32, 2048, 1024), tf.bfloat16, name=name) for name in ("gate", "up"))
        fusion.add_output(tf.silu(tf.grouped_matmul(x, gate, offsets)) * tf.grouped_matmul(x, up, offsets), name="y")
    found = choose_segments(fusion)
    assert [step.schedule.scheduler for step in found.steps] == ["matmul", "matmul"]
    assert [step.fusion.outputs[0].shape for step in found.steps] == [(16384, 1024)] * 2
    assert sum("cache_after" in line for line in found.moved) == 2
    with tf.Fusion("alone") as fusion:
        fusion.add_output(tf.matmul(tf.define_tensor((64, 64)), tf.define_tensor((64, 64))))
    assert as_rows(fusion) is None
