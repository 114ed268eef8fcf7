"""Work axes whose work items are not all tiles: the others are guarded off."""

import numpy as np
import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from tests.lowering.running import agrees, numbers

W = tf.scalar.sym("i0")


@pytest.mark.parametrize(("rows", "columns"), [(3, 3), (8, 4), (5, 1)])
def test_work_items_beyond_an_extent_do_nothing(rows: int, columns: int) -> None:
    with tf.Fusion("holes") as fusion:
        x = tf.define_tensor([rows, columns], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    y.rasterize([0, 1], [W % 8, W // 8], extent=8 * columns)
    y.axis(0).parallelize(P.BIDx)
    kernel = agrees(fusion, numbers(rows, columns))
    assert ("IF" in str(kernel)) == (rows < 8)


def test_a_tile_that_fills_its_axes_has_no_guard() -> None:
    with tf.Fusion("tiles") as fusion:
        x = tf.define_tensor([16, tf.dim("N", multiple_of=4)], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    y.split(1, 4).split(0, 4).reorder([0, 2, 1, 3]).rasterize([0, 1], tf.tiles.grouped(group=3))
    y.axis(0).parallelize(P.BIDx)
    assert "IF" not in str(agrees(fusion, np.arange(16 * 12, dtype=np.float32).reshape(16, 12)))


def test_where_there_is_no_work_no_tile_is_computed() -> None:
    """The divisor of a swizzle is positive for work that there is, so that this is asked first."""
    with tf.Fusion("threads") as fusion:
        x = tf.define_tensor([16, tf.dim("N", min=1)], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    y.split(1, 8).split(0, 64).reorder([0, 2, 1, 3]).rasterize([0, 1], tf.tiles.grouped(2)).split(0, 3)
    y.axis(1).parallelize(P.TIDy)
    for columns in (3, 8, 40):
        agrees(fusion, numbers(16, columns)).verify({"N": columns}).require()
