"""tile_windows: the math stays, for every stride, dilation and padding; each element once for a tile; refused with a reason."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.errors import ScheduleError
from taskfuse.ir.evaluate import evaluate
from taskfuse.ir.values import MODULAR
from taskfuse.schedule.tile_windows import Windows, windows_of

RNG = np.random.default_rng(0)


def convolution(stride: int = 1, padding: int = 1, dilation: int = 1, size: int = 9) -> tuple[tf.Fusion, tf.TensorView]:
    """Windows of three along the second of three axes, and the tensor that has them."""
    with tf.Fusion("windows") as fusion:
        x, w = tf.define_tensor([2, size, 5], name="x"), tf.define_tensor([5, 1, 3], name="w")
        y = tf.conv1d(tf.permute(x, [0, 2, 1]), w, None, stride, padding, dilation, groups=5)
        fusion.add_output(tf.permute(y, [0, 2, 1]))
    (found,) = [tv for tv in fusion.tensors() if windows_of(fusion, tv)]
    return fusion, found


@pytest.mark.parametrize("tile", [1, 3, 4, 20])
@pytest.mark.parametrize("form", [(1, 1, 1), (1, 0, 1), (2, 1, 1), (1, 2, 2), (2, 0, 1)])
def test_the_math_stays(form: tuple[int, int, int], tile: int) -> None:
    fusion, tv = convolution(*form)
    given = [RNG.standard_normal(shape).astype(np.float32) for shape in ([2, 9, 5], [5, 1, 3])]
    (wanted,) = evaluate(fusion, given, MODULAR)
    (windows,) = windows_of(fusion, tv)
    made = tv.tile_windows(windows.windows, tile)
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)
    assert str(tf.parse_fusion(str(fusion))) == str(fusion)
    assert int(made.shape[windows.places]) == windows.reach(tile) == (tile - 1) * form[0] + 2 * form[2] + 1
    assert fusion.is_view(tv)


@pytest.mark.parametrize("padding", [0, 1])
def test_tiles_of_several_dimensions(padding: int) -> None:
    """The elements of tiles have windows along the other dimensions, padded or not."""
    with tf.Fusion("windows") as fusion:
        x = tf.define_tensor([2, 5, 7], name="x")
        fusion.add_output(tf.avg_pool(x, [3, 2], 1, padding))
    (tv,) = [tv for tv in fusion.tensors() if windows_of(fusion, tv)]
    given = [RNG.standard_normal((2, 5, 7)).astype(np.float32)]
    (wanted,) = evaluate(fusion, given, MODULAR)
    first, second = windows_of(fusion, tv)
    once = tv.tile_windows(first.windows, 2)
    assert second in windows_of(fusion, once)
    twice = once.tile_windows(second.windows, 3)
    assert [int(twice.shape[w.places]) for w in (first, second)] == [first.reach(2), second.reach(3)]
    assert np.array_equal(evaluate(fusion, given, MODULAR)[0], wanted)


def test_kernels_are_proved() -> None:
    fusion, tv = convolution(2)
    tv.tile_windows(1, 3)
    fusion.inline_most()
    assert tf.lower(fusion).verify().is_proved


def test_the_windows_that_are_found() -> None:
    fusion, tv = convolution(2)
    assert windows_of(fusion, tv) == [Windows(1, 1, 2, 2, 1, 3)]
    assert windows_of(fusion, fusion.inputs[0]) == []


def _bound(fusion: tf.Fusion, tv: tf.TensorView) -> None:
    tv.split(1, 2)
    tv.tile_windows(1, 2)


REFUSED: dict[str, Callable[[tf.Fusion, tf.TensorView], object]] = {
    "its axis 0 is none of windows": lambda fusion, tv: tv.tile_windows(0, 2),
    "the tile is 0": lambda fusion, tv: tv.tile_windows(1, 0),
    "it is an input": lambda fusion, tv: fusion.inputs[0].tile_windows(1, 2),
    "are not the axes of its math": _bound,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    fusion, tv = convolution()
    with pytest.raises(ScheduleError, match=reason):
        REFUSED[reason](fusion, tv)


def test_steps_of_which_none_is_1_are_none_of_windows() -> None:
    with tf.Fusion("apart") as fusion:
        x, w = tf.define_tensor([2, 3, 20], name="x"), tf.define_tensor([3, 1, 3], name="w")
        fusion.add_output(tf.conv1d(x, w, None, 2, 2, 2, groups=3))
    assert not any(windows_of(fusion, tv) for tv in fusion.tensors())
