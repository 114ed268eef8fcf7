"""The sides of tiles: digits of the outputs' axes that are neighbors in an input."""

from collections.abc import Callable

import pytest

import taskfuse as tf
from taskfuse.ir.scalar import const
from taskfuse.schedulers.elementwise import align
from taskfuse.schedulers.script import Script
from taskfuse.schedulers.tile_sides import AxisDigit, Sides, tile_sides, turned_along
from tests.schedulers.fusions import tensor
from tests.schedulers.tried import built

Shape = tuple[int | str, ...]
Views = Callable[[tf.TensorView], tf.TensorView]

CASES: list[tuple[Shape, Views, int | None, list[str], list[str]]] = [
    ((8, 4), lambda x: x.T, 0, ["4"], ["8"]),
    ((2, 96, 28, 28), lambda x: x.permute(0, 2, 3, 1), 2, ["28", "28"], ["96"]),
    ((2, 96, 64, 64), lambda x: x.permute(0, 2, 3, 1), 2, ["64"], ["96"]),  # whole tiles fill one axis
    ((2, 28, 28, 96), lambda x: x.permute(0, 3, 1, 2), 1, ["96"], ["28", "28"]),
    ((1568, 96), lambda x: x.reshape(2, 28, 28, 96).permute(0, 3, 1, 2), 1, ["96"], ["28", "28"]),
    ((2, 64, 12, 14), lambda x: x.permute(0, 3, 2, 1), 1, ["12", "14"], ["64"]),  # neighbors in the input, in another order in the outputs
    ((2, 64, 12, 14), lambda x: x.permute(0, 2, 1, 3), None, [], []),
    ((2, 48, 4, 4), lambda x: x.reshape(2, 4, 12, 4, 4).permute(0, 3, 4, 2, 1).reshape(2, 4, 4, 48), 2, ["4", "4"], ["12", "4"]),
    ((2, 64, 56, 56), lambda x: x.reshape(2, 64, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).reshape(128, 49, 64), 1, ["8", "7", "8", "7"], ["64"]),
    (("N", 64, "H", "W"), lambda x: x.permute(0, 2, 3, 1), 2, ["H", "W"], ["64"]),
    ((2, 16, 12), lambda x: x.reshape(2, 4, 4, 2, 2, 3).permute(0, 5, 1, 3, 2, 4).reshape(2, 3, 8, 8), None, [], []),  # less than a sector
    ((2, 64, 8), lambda x: tf.broadcast_to(x.T.reshape(8, 64, 2, 1), [8, 64, 2, 3]), None, [], []),  # nothing to turn along the last axis
]


def sides_of(shape: Shape, views: Views, height: int = 64, width: int = 64) -> tuple[AxisDigit | None, Sides | None]:
    fusion = built(lambda: [tf.exp(views(tensor("x", *shape, dtype=tf.bfloat16)))])
    (leaf,) = align(Script(fusion), fusion)
    return turned_along(fusion, leaf), tile_sides(fusion, [leaf], height, width)


def extents(sides: Sides, positions: tuple[int, ...]) -> list[str]:
    return [str(sides.digits[p].extent) for p in positions]


@pytest.mark.parametrize(("shape", "views", "axis", "rows", "columns"), CASES)
def test_rows_are_neighbors_in_the_input(shape: Shape, views: Views, axis: int | None, rows: list[str], columns: list[str]) -> None:
    along, sides = sides_of(shape, views)
    assert (along and along.axis) == axis
    if axis is not None:
        assert sides is not None
        assert (extents(sides, sides.rows), extents(sides, sides.columns)) == (rows, columns)


def test_digits_of_an_axis() -> None:
    _, sides = sides_of((2, 64, 56, 56), lambda x: x.reshape(2, 64, 8, 7, 8, 7).permute(0, 2, 4, 3, 5, 1).reshape(128, 49, 64))
    assert sides is not None
    first = [d for d in sides.digits if d.axis == 0]
    assert first == [AxisDigit(0, const(64), const(2)), AxisDigit(0, const(8), const(8)), AxisDigit(0, const(1), const(8))]
    assert [str(d.extent) for d in sides.digits if d.axis == 1] == ["7", "7"]


def test_a_gather_has_no_sides() -> None:
    fusion = built(lambda: [tf.neg(tf.take(tensor("x", 8, 4), tensor("i", 3, dtype=tf.int64), 0))])
    (leaf,) = align(Script(fusion), fusion)
    assert turned_along(fusion, leaf) is None
