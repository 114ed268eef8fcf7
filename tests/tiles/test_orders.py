"""Orders of tiles: every tile once, groups as they are meant."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.calls import TileOrder
from taskfuse.ir.scalar import Expr, const, evaluate

Order = tf.tiles.Raster | tf.tiles.Grouped | tf.tiles.Rotated
EXTENTS = st.lists(st.integers(1, 9), min_size=2, max_size=4)


def points(order: TileOrder, extents: list[int]) -> list[tuple[int, ...]]:
    """The tiles in the order of the work index."""
    w = np.arange(int(np.prod(extents)))
    values = [np.broadcast_to(evaluate(m, {"i0": w}), w.shape) for m in order.maps([const(e) for e in extents])]
    return [tuple(int(v[k]) for v in values) for k in range(len(w))]


@given(EXTENTS, st.integers(1, 12))
def test_every_tile_once(extents: list[int], group: int) -> None:
    for order in (tf.tiles.raster(), tf.tiles.grouped(group)):
        found = points(order, extents)
        assert sorted(found) == list(np.ndindex(*extents))
        batches = [p[:-2] for p in found]
        assert batches == sorted(batches)


def test_orders_are_those_of_the_page() -> None:
    assert points(tf.tiles.raster(), [2, 3]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert points(tf.tiles.grouped(2), [3, 2]) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]
    assert points(tf.tiles.raster(), []) == [()]


@given(st.integers(1, 6), st.integers(1, 6))
def test_one_group_is_column_major(rows: int, columns: int) -> None:
    assert points(tf.tiles.grouped(rows), [rows, columns]) == [(m, n) for n in range(columns) for m in range(rows)]
    assert points(tf.tiles.grouped(1), [rows, columns]) == points(tf.tiles.raster(), [rows, columns])


def tiled() -> tf.TensorView:
    with tf.Fusion("tiled") as fusion:
        x = tf.define_tensor(["B", "M", tf.dim("N", multiple_of=8, max=640)], name="x")
        y = tf.neg(x)
        fusion.add_output(y)
    return y.split(2, 64).split(1, 128).reorder([0, 1, 3, 2, 4])


def test_an_order_is_given_to_rasterize() -> None:
    y = tiled().rasterize((0, 1, 2), tf.tiles.grouped(4))
    assert str(y.loop[0].extent) == "ceildiv(M, 128)*ceildiv(N, 64)*B"


def maps(*e: Expr) -> tuple[Expr, ...]:
    return e


def test_maps_with_symbolic_extents_are_checked_on_samples() -> None:
    y = tiled()
    w, rows = tf.scalar.sym("i0"), y.loop[1].extent
    with pytest.raises(ScheduleError, match=r"the maps are not a bijection: tile \(.*\) is visited \d+ times for B = \d+, M = \d+"):
        y.rasterize((0, 1), maps(w // rows, w // rows))
    with pytest.raises(ScheduleError, match=r"work item 0 has the index -1 for B = \d+, M = \d+"):
        y.rasterize((0, 1), maps(w // rows - 1, w % rows))


@given(st.integers(1, 20), st.integers(-50, 50))
def test_a_rotation_begins_elsewhere_and_goes_around(extent: int, first: int) -> None:
    found = points(tf.tiles.rotated(first), [extent])
    assert found[0] == (first % extent,)
    assert all(b == ((a + 1) % extent,) for (a,), b in pairwise(found))


def test_a_rotation_is_of_one_axis() -> None:
    with pytest.raises(ValueError, match="a rotation takes one axis, not 2"):
        tf.tiles.rotated(1).maps([const(3), const(2)])


def test_descending_begins_at_the_end() -> None:
    assert points(tf.tiles.descending(), [4]) == [(3,), (2,), (1,), (0,)]
    with pytest.raises(ValueError, match="a descending order takes one axis, not 2"):
        tf.tiles.descending().maps([const(3), const(2)])


@pytest.mark.parametrize("call", [lambda: tf.tiles.grouped(0), lambda: tf.tiles.grouped(2).maps([const(3)])])
def test_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="row"):
        call()


@given(EXTENTS, st.integers(1, 12))
def test_layers_of_all_matrices_follow_each_other(extents: list[int], group: int) -> None:
    """Groups at the same place, matrix after matrix, each in the order of its own."""
    found = points(tf.tiles.grouped(group, layers=True), extents)
    assert sorted(found) == list(np.ndindex(*extents))
    assert found == sorted(points(tf.tiles.grouped(group), extents), key=lambda p: p[-2] // group)


def test_groups_span_matrices_or_are_layers() -> None:
    with pytest.raises(ValueError, match="use across or layers"):
        tf.tiles.grouped(2, across=True, layers=True)


@given(EXTENTS, st.integers(1, 12))
def test_groups_across_matrices(extents: list[int], group: int) -> None:
    """Rows of tiles of all matrices are one axis of rows."""
    rows = int(np.prod(extents[:-1]))
    found = points(tf.tiles.grouped(group, across=True), extents)
    assert sorted(found) == list(np.ndindex(*extents))
    plain = points(tf.tiles.grouped(group), [rows, extents[-1]])
    assert [(int(np.ravel_multi_index(p[:-1], extents[:-1])), p[-1]) for p in found] == plain
