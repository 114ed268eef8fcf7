"""Elementwise functions of inputs of which some are contiguous along another axis."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.count import count
from taskfuse.errors import UnsupportedError
from taskfuse.ir.scalar import const, evaluate
from taskfuse.schedulers import TransposeConfig
from tests.schedulers.automatic import transposed
from tests.schedulers.oracle import array, checked


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.int8, tf.float64])
def test_transposes_have_vectors_on_both_sides(dtype: tf.DType) -> None:
    found = checked(transposed(dtype, 64, 192), [(np.arange(64 * 192) % 100).reshape(64, 192).astype(dtype.numpy)])
    config = found.steps[0].schedule.config
    assert isinstance(config, TransposeConfig)
    assert config.vector == config.turned == 16 // dtype.itemsize


def test_transposes_of_any_size() -> None:
    found = checked(transposed(tf.float32, "M", "N"), [array(45, 70)])
    assert found.steps[0].schedule.scheduler == "transpose"


def images(kind: str, n: int | str, c: int | str, h: int | str, w: int | str) -> tf.Fusion:
    """Between NCHW and NHWC."""
    with tf.Fusion("image") as fusion:
        if kind == "last":
            made = tf.permute(tf.define_tensor([n, c, h, w], dtype=tf.bfloat16, name="x"), [0, 2, 3, 1])
        elif kind == "first":
            made = tf.permute(tf.define_tensor([n, h, w, c], dtype=tf.bfloat16, name="x"), [0, 3, 1, 2])
        elif kind == "rows":  # rows of pixels become planes
            rows = tf.reshape(tf.define_tensor([n, h, w, c], dtype=tf.bfloat16, name="x"), [-1, c])
            made = tf.permute(tf.reshape(tf.copy(rows), [n, h, w, c]), [0, 3, 1, 2])
        else:  # channels of groups alternate
            assert isinstance(c, int)
            groups = tf.reshape(tf.define_tensor([n, c, h, w], dtype=tf.bfloat16, name="x"), [n, 4, c // 4, h, w])
            made = tf.reshape(tf.permute(groups, [0, 3, 4, 2, 1]), [n, h, w, c])
        fusion.add_output(tf.exp(made))
    return fusion


@pytest.mark.parametrize("kind", ["last", "first", "rows", "groups"])
@pytest.mark.parametrize("side", [12, 14])
def test_rows_and_columns_of_an_image_are_one_side_of_a_tile(kind: str, side: int) -> None:
    """Whole tiles: the number of blocks is that of the pixels of an image, not of its rows."""
    shape = {"last": (2, 64, side, side), "first": (2, side, side, 64), "rows": (2, side, side, 64), "groups": (2, 64, side, side)}[kind]
    step = checked(images(kind, 2, 64, side, side), [array(*shape, dtype=tf.bfloat16)]).steps[0]
    assert step.schedule.scheduler == "transpose"
    large = images(kind, 32, 384, 28, 28)
    tf.schedulers.transpose(large)
    assert tf.lower(large).grid[0] == const(32 * 6 * -(-28 * 28 // 64))


def test_axes_of_any_extent_are_one_side_of_a_tile() -> None:
    for kind in ("last", "first"):
        fusion = images(kind, "N", "C", "H", "W")
        tf.schedulers.transpose(fusion)
        kernel = tf.lower(fusion)
        assert kernel.verify({"N": 2, "C": 40, "H": 5, "W": 9}).is_proved
        assert evaluate(kernel.grid[0], {"N": 2, "C": 40, "H": 5, "W": 9}) == 2


def test_axes_that_change_places_are_one_side_in_the_order_of_the_input() -> None:
    with tf.Fusion("apart") as fusion:
        x = tf.define_tensor([2, 64, 12, 14], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.permute(x, [0, 3, 2, 1]) * 2)
    step = checked(fusion, [array(2, 64, 12, 14, dtype=tf.bfloat16)]).steps[0]
    assert tf.lower(step.fusion).grid[0] == const(2 * 3)


def test_windows_of_an_image_are_taken_along_its_rows() -> None:
    """Pixels of several windows are neighbors: rows of a tile are digits of the number of the window and of that of the pixel."""
    with tf.Fusion("windows") as fusion:
        x = tf.define_tensor([1, 64, 16, 16], dtype=tf.bfloat16, name="x")
        y = tf.permute(tf.reshape(x, [1, 64, 4, 4, 4, 4]), [0, 2, 4, 3, 5, 1])
        fusion.add_output(tf.exp(tf.reshape(y, [16, 16, 64])))
    step = checked(fusion, [array(1, 64, 16, 16, dtype=tf.bfloat16)]).steps[0]
    assert step.schedule.scheduler == "transpose"
    assert tf.lower(step.fusion).grid[0] == const(4)


def test_a_matrix_and_its_transpose() -> None:
    with tf.Fusion("both") as fusion:
        x, y, b = tf.define_tensor(["N", "N"], name="x"), tf.define_tensor(["N", "N"], name="y"), tf.define_tensor(["N"], name="b")
        fusion.add_output(x + x.T * y + tf.exp(b))
        fusion.add_output(x - y.T)
    assert checked(fusion, [array(33, 33), array(33, 33), array(33)]).steps[0].schedule.scheduler == "transpose"


def patches(batch: int, side: int, patch: int, channels: int, dtype: tf.DType = tf.bfloat16) -> tf.Fusion:
    """Rows of patches, whose channels are innermost, as an image of planes."""
    with tf.Fusion("patches") as fusion:
        x = tf.define_tensor([batch, side * side, patch * patch * channels], dtype=dtype, name="x")
        y = tf.permute(tf.reshape(x, [batch, side, side, patch, patch, channels]), [0, 5, 1, 3, 2, 4])
        fusion.add_output(tf.exp(tf.reshape(y, [batch, channels, side * patch, side * patch])))
    return fusion


@pytest.mark.parametrize(("channels", "rows"), [(16, 16), (32, 32), (48, 32), (64, 0)])
def test_patches_become_an_image_in_vectors(channels: int, rows: int) -> None:
    fusion = patches(2, 8, 2, channels)
    found = checked(fusion, [array(2, 64, 4 * channels, dtype=tf.bfloat16)])
    config = found.steps[0].schedule.config
    assert isinstance(config, TransposeConfig)
    assert (config.vector, config.turned, config.rows) == (8, 8, rows)


def test_patches_are_read_and_stored_in_whole_sectors() -> None:
    fusion = patches(16, 32, 2, 16)
    tf.schedulers.transpose(fusion)
    assert count(tf.lower(fusion), {}).coalesced == 1.0
    plain = patches(16, 32, 2, 16)
    tf.schedulers.pointwise(plain)
    assert count(tf.lower(plain), {}).coalesced < 0.5


def test_channels_of_less_than_a_sector_are_left_to_pointwise() -> None:
    with pytest.raises(UnsupportedError, match="contiguous along the last axis of the outputs, or along none"):
        tf.schedulers.transpose(patches(2, 8, 2, 3))


@pytest.mark.parametrize("end", [1, 5])
def test_a_padded_transpose_passes_through_tiles(end: int) -> None:
    with tf.Fusion("padded") as fusion:
        x = tf.define_tensor([63, 70], dtype=tf.bfloat16, name="x")
        fusion.add_output(tf.pad(x.T, ((0, 0), (0, end))))
    found = checked(fusion, [array(63, 70, dtype=tf.bfloat16)])
    assert found.steps[0].schedule.scheduler == "transpose"
    assert found.steps[0].schedule.config.turned == 1


def test_threads_of_much_code_have_fewer_elements() -> None:
    """Sixteen elements of 40 functions each would take the registers of a block's other half."""
    long, short = (tf.Fusion(name) for name in ("long", "short"))
    for fusion, functions in ((long, 40), (short, 1)):
        with fusion:
            y = tf.permute(tf.define_tensor([256, 256], name="x"), [1, 0]) + tf.define_tensor([256, 256], name="y")
            for _ in range(functions):
                y = tf.relu(y * 0.5)
            fusion.add_output(y)
    assert [tf.schedulers.transpose(fusion).config.threads for fusion in (long, short)] == [512, 256]


def test_outputs_that_take_the_same_elements_share_a_tile() -> None:
    """Two outputs of sums over moving windows, each of which reads the running sums before and behind a window."""
    with tf.Fusion("moving") as fusion:
        sums, x = tf.define_tensor([2, 40, 33], name="sums"), tf.define_tensor([2, 36, 33], name="x")
        padded = tf.pad(sums, ((0, 0), (1, 0), (0, 0)))
        mean = (padded[:, 5:] - padded[:, :-5]) / 5
        fusion.add_output(tf.permute(mean, [0, 2, 1]))
        fusion.add_output(tf.permute(x - mean, [0, 2, 1]))
    step = checked(fusion, [array(2, 40, 33), array(2, 36, 33)]).steps[0]
    assert step.schedule.scheduler == "transpose"
    assert step.schedule.code.count("set_memory_type(MemoryType.Shared)") == 3


BANKS: list[tuple[tf.DType, TransposeConfig, float]] = [
    (tf.float32, TransposeConfig(64, 256, 4, 1), 6),
    (tf.float32, TransposeConfig(64, 256, 1, 1), 6),
    (tf.float32, TransposeConfig(32, 64, 4, 4), 6),
    (tf.bfloat16, TransposeConfig(64, 256, 1, 1), 6),
    (tf.bfloat16, TransposeConfig(64, 256, 4, 4, rows=16), 9),
]


@pytest.mark.parametrize(("dtype", "config", "most"), BANKS)
def test_lanes_find_the_elements_of_tiles_in_different_banks(dtype: tf.DType, config: TransposeConfig, most: float) -> None:
    """Of 32 elements: lines of loads and stores, a pass to write them, and one or two to read them, however long vectors and rows of a tile are."""
    fusion = transposed(dtype, 320, 256)
    tf.schedulers.transpose(fusion, config)
    assert count(tf.lower(fusion)).lookups * 32 / (320 * 256) < most


@pytest.mark.parametrize("fill", [0.0, 1.0])
def test_copies_into_tiles_are_under_way_together(fill: float) -> None:
    """Also those of a padded input, where the tile has zeros, and what reads it has another number."""
    with tf.Fusion("padded") as fusion:
        fusion.add_output(tf.exp(tf.pad(tf.define_tensor([33, 35], name="x"), ((0, 3), (1, 0)), value=fill).T))
    step = checked(fusion, [array(33, 35)]).steps[0]
    assert "atoms.CP_ASYNC" in step.schedule.code


def test_elements_too_small_for_asynchronous_copies_pass_through_registers() -> None:
    fusion = transposed(tf.bfloat16, 65, 67)
    tf.schedulers.transpose(fusion)
    text = str(tf.lower(fusion))
    loads, stores = text.index("= copy.float32(x["), text.index("SYNC block")
    assert text[loads:stores].count("UNROLL") == 1  # all are loaded before the first is written


def test_tiles_are_halved_where_many_would_be_past_an_end() -> None:
    def tile(columns: int) -> int:
        return tf.schedulers.transpose(transposed(tf.float32, columns, 1 << 20)).config.tile

    assert [tile(columns) for columns in (64, 65)] == [64, 32]
