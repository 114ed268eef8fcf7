"""Tiles of ragged rows, counted: as the kernels number, order and deal them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import UnsupportedError
from taskfuse.ir.axes import WORK
from taskfuse.ir.expr import Read
from taskfuse.ir.row_tiles import RowTiles
from taskfuse.ir.scalar import const, evaluate, sym
from taskfuse.schedule.parts import Parts
from taskfuse.schedulers import MatmulConfig
from taskfuse.schedulers.contraction import find as contracted
from taskfuse.schedulers.ragged_tiles import RaggedTiles, as_rows, find, store_by_tiles
from taskfuse.schedulers.schedule import Sizes
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.warp_specialized import Turn, WarpSpecialized, make_roles
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
    assert find(as_tiles(fusion), Sizes(fusion, {"M": 500}, DEFAULT)) == RaggedTiles(3, 500, 128, is_scattered=False)
    assert [RaggedTiles(4, 512, 128, is_scattered=is_scattered).used for is_scattered in (True, False)] == [4, 8]
    assert [RaggedTiles(4, 1024, 128).matrices(tiles) for tiles in (1, 3, 4, 100)] == [1, 2, 2, 4]


@pytest.mark.parametrize("lengths", [False, True])
def test_warps_that_multiply_search_together(lengths: bool) -> None:
    with tf.Fusion("searched") as fusion:
        a, b = tf.define_tensor((1024, 64), tf.bfloat16, name="a"), tf.define_tensor((3, 64, 64), tf.bfloat16, name="b")
        table = tf.table("t", 3 + (not lengths), 1024, rising=not lengths, lengths=lengths)
        fusion.add_output(tf.grouped_matmul(a, b, lengths=table) if lengths else tf.grouped_matmul(a, b, table))
    chosen = tf.schedulers.matmul(fusion)
    assert "search_by(tf.PlaceSearch.BALLOT)" in chosen.code
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert "upper_bound_by_ballot(" in kernel.cuda_source()


class Claimed(WarpSpecialized):
    """Blocks claim the tiles of the only product."""

    def _tiles(self) -> None:
        self.turn = Turn(0, const(0), is_dynamic=True)
        super()._tiles()
        self.turn = None


def test_blocks_may_claim_tiles_of_ragged_rows() -> None:
    """Loops over the terms of a claimed tile have no trips if it has no rows."""
    rows, groups, offsets = 256, 3, np.array([0, 130, 130, 256], np.int32)
    with tf.Fusion("claimed") as fusion:
        a, b = tf.define_tensor((rows, 64), tf.bfloat16, name="a"), tf.define_tensor((groups, 64, 64), tf.bfloat16, name="b")
        fusion.add_output(tf.grouped_matmul(a, b, tf.table("t", groups + 1, rows, rising=True)))
    script = Script(fusion)
    store_by_tiles(script)
    product = Claimed(script, contracted(fusion), MatmulConfig(128, 64, stages=2, blocks=2), across=True)
    product.apply()
    make_roles(script, [product])
    kernel = tf.lower(fusion)
    assert kernel.queues
    assert kernel.verify().is_proved
    x, y = (np.random.default_rng(k).integers(-2, 3, shape).astype(tf.bfloat16.numpy) for k, shape in enumerate([(rows, 64), (groups, 64, 64)]))
    wanted = np.concatenate([x[s:e].astype(np.float32) @ m.astype(np.float32) for m, s, e in zip(y, offsets, offsets[1:], strict=False)])
    assert (kernel.simulate(x, y, offsets)[0] == wanted.astype(tf.bfloat16.numpy)).all()


def as_tiles(fusion: tf.Fusion) -> tf.Fusion:
    """The part of a fusion that makes the tiles of its product."""
    rows = fusion.outputs[0].definition
    assert rows is not None
    read = rows.operands[0]
    assert isinstance(read, Read)
    return Parts(fusion).extract([read.tensor], "tiles")


def gated(rows: int, depth: int, columns: int, groups: int) -> tf.Fusion:
    """Two products of the same groups and a gated activation of them."""
    with tf.Fusion("gated") as fusion:
        x, offsets = tf.define_tensor((rows, depth), tf.bfloat16, name="x"), tf.table("offsets", groups + 1, rows, rising=True)
        gate, up = (tf.define_tensor((groups, depth, columns), tf.bfloat16, name=name) for name in ("gate", "up"))
        fusion.add_output(tf.silu(tf.grouped_matmul(x, gate, offsets)) * tf.grouped_matmul(x, up, offsets), name="y")
    return fusion


def test_products_that_meet_share_tiles_of_rows() -> None:
    """One kernel walks along k for both, and loads the rows once."""
    fusion = gated(160, 128, 64, 2)
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert sum("tv.map" in line or "x.map" in line for line in str(kernel).splitlines() if "TMA" in line) <= 3
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, shape).astype(np.float32).astype(tf.bfloat16.numpy) for shape in ((160, 128), (2, 128, 64), (2, 128, 64))]
    arrays.insert(1, np.array([0, 37, 160], np.int32))
    (found,), (wanted,) = kernel.simulate(*arrays), gated(160, 128, 64, 2).evaluate(*arrays)
    assert (found == wanted).all()


def test_epilogues_read_what_is_made_of_other_rows() -> None:
    def side() -> tf.Fusion:
        with tf.Fusion("side") as fusion:
            x, w, g = (tf.define_tensor(s, tf.bfloat16, name=n) for s, n in (((160, 64), "x"), ((2, 64, 64), "w"), ((160, 64), "g")))
            offsets = tf.table("offsets", 3, 160, rising=True)
            fusion.add_output(tf.relu(g) * tf.grouped_matmul(x, w, offsets))
        return fusion

    fusion = side()
    tf.schedulers.matmul(fusion, tf.schedulers.MatmulConfig(128, 64, stages=2, blocks=2))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, shape).astype(np.float32).astype(tf.bfloat16.numpy) for shape in ((160, 64), (2, 64, 64), (160, 64))]
    arrays.insert(3, np.array([0, 37, 160], np.int32))
    (found,), (wanted,) = kernel.simulate(*arrays), side().evaluate(*arrays)
    assert (found == wanted).all()


def test_products_that_walk_one_after_another_are_refused() -> None:
    with tf.Fusion("turns") as fusion:
        x, y = (tf.define_tensor((160, k), tf.bfloat16, name=n) for k, n in ((64, "x"), (128, "y")))
        v, w = (tf.define_tensor((2, k, 64), tf.bfloat16, name=n) for k, n in ((64, "v"), (128, "w")))
        offsets = tf.table("offsets", 3, 160, rising=True)
        fusion.add_output(tf.grouped_matmul(x, v, offsets) + tf.grouped_matmul(y, w, offsets))
    with pytest.raises(UnsupportedError, match="and a tile of ragged rows may be empty"):
        tf.schedulers.matmul(fusion)


def test_scaled_products_one_after_another() -> None:
    """A gated expert in 8-bit floats: two products of rows, one kernel that activates and quantizes, the last product; all are proved."""
    rows, width, inside, groups = 132, 256, 128, 2
    f8 = tf.float8_e4m3
    with tf.Fusion("expert") as fusion:
        x, scale = tf.define_tensor((rows, width), f8, name="x"), tf.define_tensor((rows, width // 128), name="scale")
        gate, up = (tf.define_tensor((groups, inside, width), f8, name=name) for name in ("gate", "up"))
        down = tf.define_tensor((groups, width, inside), f8, name="down")
        shapes = {"gate": (1, 2), "up": (1, 2), "down": (2, 1)}
        scales = [tf.define_tensor((groups, *shape), name=f"scale_{name}") for name, shape in shapes.items()]
        lengths = tf.table("lengths", groups, rows, lengths=True)

        def product(a: tf.TensorView, of_a: tf.TensorView, b: tf.TensorView, of_b: tf.TensorView) -> tf.TensorView:
            return tf.grouped_matmul(a, b.permute(0, 2, 1), lengths=lengths, scale_a=of_a, scale_b=of_b.permute(0, 2, 1))

        hidden = tf.silu(product(x, scale, gate, scales[0])) * product(x, scale, up, scales[1])
        blocks = hidden.reshape(rows, inside // 128, 128)
        quantum = tf.maximum(tf.max(tf.abs(blocks), 2), 1e-6) / 448.0
        quantized = tf.cast(blocks / quantum[:, :, None], f8).reshape(rows, inside)
        fusion.add_output(product(quantized, quantum, down, scales[2]))
    run = tf.compile(fusion, backend="sim")
    assert len(run.kernels) == 4
    assert all(kernel.verify().is_proved for kernel in run.kernels)
    rng = np.random.default_rng(0)
    arrays: list[np.ndarray] = []
    for tv in fusion.inputs:
        shape = tuple(int(str(e)) for e in tv.shape)
        if tv.dtype is f8:
            arrays.append(rng.integers(-2, 3, shape).astype(np.float32).astype(f8.numpy))
        else:
            arrays.append(np.array([37, 95], np.int32) if tv is lengths else rng.uniform(0.5, 1, shape).astype(np.float32))
    (found,), (wanted,) = run(*arrays), fusion.evaluate(*arrays)
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_kernels_hand_each_other_rows() -> None:
    """Two products of the same groups and what is computed of both: the products store rows, and the second one has the rest for an epilogue."""
    found = choose_segments(gated(16384, 2048, 1024, 32))
    assert [step.schedule.scheduler for step in found.steps] == ["matmul", "matmul"]
    assert [step.fusion.outputs[0].shape for step in found.steps] == [(16384, 1024)] * 2
    assert sum("cache_after" in line for line in found.moved) == 2
    with tf.Fusion("alone") as fusion:
        fusion.add_output(tf.matmul(tf.define_tensor((64, 64)), tf.define_tensor((64, 64))))
    assert as_rows(fusion) is None
