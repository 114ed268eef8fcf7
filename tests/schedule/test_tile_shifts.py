"""tile_shifts: the math stays, whatever is padded; each element once for a tile; refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from tests.schedule.shifts import RNG, same, shifted


@pytest.mark.parametrize("tile", [1, 4, 20])
@pytest.mark.parametrize("form", [(1, 1), (2, 0), (0, 0, 2), (1, 1, 1, "S")], ids=str)
def test_tiles_of_shifts(form: tuple[int, int], tile: int) -> None:
    fusion, (first, *others) = shifted(*form)
    made: list[tf.TensorView] = []
    same(fusion, lambda: made.append(first.tile_shifts(others, 1, tile)))
    step = form[2] if len(form) > 2 else 1
    assert int(made[0].shape[2]) == (tile - 1) * step + 3
    assert all(fusion.is_view(tv) for tv in (first, *others))


def test_a_tile_loads_what_exists() -> None:
    fusion, (first, *others) = shifted(1, 1)
    same(fusion, lambda: first.tile_shifts(others, 1, 4).clamp_read())


def _apart() -> None:
    """Two slices of one padded tensor, of which one lies in another tensor that is padded after it was cut."""
    with tf.Fusion("apart") as fusion:
        x = tf.define_tensor([9], name="x")
        whole, cut = tf.pad(x, [(1, 1)]), tf.pad(x[:8], [(0, 1)])
        a, b = tf.exp(whole[:9]), tf.exp(cut)
        fusion.add_output(a + b)
    (one,), (other,) = whole.recompute([a]), cut.recompute([b])
    one.tile_shifts([other], 0, 2)


def _bound() -> None:
    _, (first, *others) = shifted(1, 1)
    first.split(1, 2)
    first.tile_shifts(others, 1, 2)


def _called(axis: int, tile: int, *others: Any) -> Callable[[], object]:
    def call() -> object:
        _, (first, *found) = shifted(1, 1)
        return first.tile_shifts(others or found, axis, tile)

    return call


REFUSED: dict[str, Callable[[], object]] = {
    "at a constant distance along axis 2": _called(2, 2),
    "the tile is 0": _called(1, 0),
    "3 is not a tensor of the fusion": _called(1, 2, 3),
    "it is an output": lambda: shifted(1, 1)[0].outputs[0].tile_shifts([], 1, 2),
    "are not the axes of its math": _bound,
    "tv.* has nothing at some points where x has elements": _apart,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        REFUSED[reason]()


def test_a_tile_of_booleans() -> None:
    """Where a slice has no element, the tile has False."""
    with tf.Fusion("flags") as fusion:
        x = tf.define_tensor([13, 2], dtype=tf.bool_, name="x")
        y = tf.logical_not(x)
        fusion.add_output(y)
    (made,) = x.recompute([y])
    made.tile_shifts([], 0, 4)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    given = RNG.integers(0, 2, (13, 2)).astype(np.bool_)
    assert np.array_equal(kernel.simulate(given)[0], ~given)


def test_a_part_of_an_assembled_tensor_keeps_its_storage() -> None:
    with tf.Fusion("parts") as fusion:
        x = tf.define_tensor([6], name="x")
        fusion.add_output(tf.cat([x[1:], x[:-1]], 0, "scatter"))
    part = next(tv for tv in fusion.tensors() if not tv.is_input and not tv.is_output and not fusion.is_view(tv))
    with pytest.raises(ScheduleError, match=r"it is a part of tv\d+, in which its elements are stored"):
        part.tile_shifts([], 0, 2)
