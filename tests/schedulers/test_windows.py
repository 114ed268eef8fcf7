"""Reductions over overlapping windows: right and proved for depthwise convolutions and pooling of any form; each element loaded once for a tile of windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.count import count
from taskfuse.errors import UnsupportedError
from taskfuse.runtime.result_views import bases
from taskfuse.schedulers import FallbackConfig
from taskfuse.schedulers.segmenter import choose_segments
from taskfuse.schedulers.windows import WindowsConfig, offer, windows
from tests.calls import Math

Build = Math


def last(function: Build) -> Callable[..., tf.TensorView]:
    """A function of tensors with channels second, of one with channels last."""

    def turned(x: tf.TensorView, *more: tf.TensorView) -> tf.TensorView:
        return tf.permute(function(tf.permute(x, [0, 3, 1, 2]), *more), [0, 2, 3, 1])

    return turned


@dataclass(frozen=True)
class Case:
    """A fusion of inputs of given shapes."""

    build: Build
    shapes: tuple[tuple[int | str, ...], ...]
    config: WindowsConfig | None = None
    dtype: tf.DType = tf.float32
    values: tuple[tuple[str, int], ...] = ()

    def fusion(self) -> tf.Fusion:
        """It, without a schedule."""
        with tf.Fusion("windows") as fusion:
            dims = {n: tf.dim(n, min=2) for shape in self.shapes for n in shape if isinstance(n, str)}
            inputs = [tf.define_tensor([dims[n] if isinstance(n, str) else n for n in shape], self.dtype, f"x{k}") for k, shape in enumerate(self.shapes)]
            fusion.add_output(self.build(*inputs))
        return fusion

    def arrays(self) -> list[Any]:
        """Random inputs."""
        values, rng = dict(self.values), np.random.default_rng(0)
        return [rng.standard_normal([values[n] if isinstance(n, str) else n for n in shape]).astype(self.dtype.numpy) for shape in self.shapes]


def depthwise(channels: int, stride: int = 1, padding: int = 1, dilation: int = 1) -> Callable[..., tf.TensorView]:
    return last(partial(tf.conv2d, stride=stride, padding=padding, dilation=dilation, groups=channels))


CASES = {
    "channels last": Case(
        lambda x, w, b: tf.relu(depthwise(40, padding=2)(x, w, b)), ((2, 5, 6, 40), (40, 1, 5, 5), (40,)), WindowsConfig(4, 32, 4), tf.bfloat16
    ),
    "channels second": Case(lambda x, w: tf.conv2d(x, w, padding=1, groups=6), ((2, 6, 9, 10), (6, 1, 3, 3)), WindowsConfig(4, 16, 3)),
    "dilated": Case(depthwise(8, padding=2, dilation=2), ((2, 5, 10, 8), (8, 1, 3, 3)), WindowsConfig(3, 8, 4)),
    "stride": Case(depthwise(8, 2), ((2, 9, 10, 8), (8, 1, 3, 3)), WindowsConfig(2, 8, 2)),
    "sequence": Case(
        lambda x, w: tf.silu(tf.permute(tf.conv1d(tf.permute(tf.pad(x, ((0, 0), (3, 0), (0, 0))), [0, 2, 1]), w, groups=12), [0, 2, 1])),
        ((2, 16, 12), (12, 1, 4)),
        WindowsConfig(5, 8, 2),
    ),
    "groups of channels": Case(last(partial(tf.conv2d, padding=1, groups=4)), ((1, 5, 6, 16), (16, 4, 3, 3)), WindowsConfig(3, 16, 2, 4), tf.bfloat16),
    "groups that widen": Case(last(partial(tf.conv2d, stride=2, padding=1, groups=3)), ((2, 5, 7, 6), (12, 2, 3, 3)), WindowsConfig(2, 8, 2, 2)),
    "maxima": Case(last(lambda x: tf.max_pool(x, [3, 3], 2, 1)), ((2, 8, 9, 6),), WindowsConfig(2, 8, 4)),
    "means": Case(last(lambda x: tf.avg_pool(x, [3, 3], 1, 1)), ((2, 5, 9, 6),), WindowsConfig(4, 8, 4)),
    "three dimensions": Case(
        lambda x, w: tf.permute(tf.conv3d(tf.permute(x, [0, 4, 1, 2, 3]), w, padding=1, groups=4), [0, 2, 3, 4, 1]), ((1, 3, 4, 5, 4), (4, 1, 3, 3, 3))
    ),
    "any batch and height": Case(depthwise(8), (("B", "H", 7, 8), (8, 1, 3, 3)), WindowsConfig(4, 8, 4), values=(("B", 2), ("H", 5))),
    "any width, one more window": Case(
        lambda x: tf.sum(tf.unfold(tf.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0))), 2, 2), -1), ((2, 3, "W", 8),), WindowsConfig(3, 4, 1), values=(("W", 5),)
    ),
    "any width": Case(depthwise(8), ((2, 4, "W", 8), (8, 1, 3, 3)), WindowsConfig(4, 8, 4), values=(("W", 7),)),
}


@pytest.mark.parametrize("name", CASES)
def test_right_and_proved(name: str) -> None:
    case = CASES[name]
    plain, fusion, given = case.fusion(), case.fusion(), case.arrays()
    chosen = windows(fusion, case.config)
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert {b.memory for b in kernel.buffers} <= {tf.MemoryType.Local, tf.MemoryType.Shared}
    (got,), (wanted,) = kernel.simulate(*given, seed=0), plain.evaluate(*given)
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=1e-5, atol=1e-5 if case.dtype is tf.float32 else 2**-6)
    again = case.fusion()
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(fusion)


def test_a_tile_loads_each_element_once() -> None:
    """Seven windows of seven places reach over 13 elements, not 49."""
    case = Case(depthwise(32, padding=3), ((1, 8, 28, 32), (32, 1, 7, 7)), WindowsConfig(7, 32, 8))
    fusion = case.fusion()
    windows(fusion, case.config)
    counted = count(tf.lower(fusion))
    assert counted.reads["x0"].asked <= 4 * 7 * 13 / 7 * 8 * 28 * 32
    apart = case.fusion()
    tf.schedulers.fallback(apart, FallbackConfig(256))
    assert counted.instructions < count(tf.lower(apart)).instructions / 3


def test_automatic_schedules_take_it() -> None:
    fusion = Case(depthwise(384, padding=3), ((32, 28, 28, 384), (384, 1, 7, 7)), dtype=tf.bfloat16).fusion()
    assert offer(fusion).us < 60
    chosen = tf.schedulers.auto(fusion)
    assert chosen.scheduler == "windows"
    assert "windows for each thread" in chosen.explain()


@pytest.mark.parametrize(("channels", "size", "most", "us"), [(128, 56, 40.0, 64.9), (512, 14, 46.0, 50.9)])
def test_groups_of_few_channels_are_one_kernel(channels: int, size: int, most: float, us: float) -> None:
    """A convolution of a ResNeXt, in groups of 4 and of 16 channels: lanes have the channels of several groups, and load those of a window as vectors.

    Args:
        most: microseconds of the model, and of each resource but the instructions, which widen 16-bit elements.
        us: measured on an H200 (benchmarks/results/conv.txt; without vectors 1083 and 125).
    """
    weights = (channels, 3, 3, channels // 32)
    build = last(lambda x, w: tf.conv2d(x, tf.permute(w, [0, 3, 1, 2]), padding=1, groups=32))
    fusion = Case(build, ((32, size, size, channels), weights), dtype=tf.bfloat16).fusion()
    without = bases(fusion)
    assert without is not None, "the result is a view of one with groups and their channels"
    chosen = tf.schedulers.auto(without.fusion)
    assert chosen.scheduler == "windows"
    assert chosen.config.vector == 4
    kernel = tf.lower(without.fusion)
    counted = count(kernel)
    assert chosen.us <= most
    assert max(counted.times[name] for name in ("memory", "L2 cache", "lookups")) <= 30
    assert 0.6 <= counted.us / us <= 1.6
    assert [b.name for b in kernel.buffers if b.memory is tf.MemoryType.Shared and str(b.shape[-1]) == "32"], "lanes read weights in different banks"


REFUSED: dict[str, tuple[Build, tuple[tuple[int, ...], ...]]] = {
    "it has 0 reductions": (tf.exp, ((4, 8),)),
    "do not overlap": (last(lambda x: tf.avg_pool(x, [2, 2])), ((2, 8, 8, 6),)),
    "reads no windows of an input": (lambda x: tf.sum(x, 2), ((4, 6, 8),)),
    "reads what is computed": (lambda x, w: depthwise(8)(x, tf.exp(w)), ((2, 5, 6, 8), (8, 1, 3, 3))),
    "or over how many is not known": (lambda x: tf.sum(x, 2), ((4, 6, 300),)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused(reason: str) -> None:
    build, shapes = REFUSED[reason]
    fusion = Case(build, shapes).fusion()
    before = str(fusion)
    with pytest.raises(UnsupportedError, match=reason):
        windows(fusion)
    assert str(fusion) == before


def test_extents_that_may_be_0() -> None:
    """Factors share loops over axes that they lack, so these have elements; windows alone may have none."""
    with tf.Fusion("windows") as fusion:
        x, w = tf.define_tensor([tf.dim("B", min=0), 5, 6, 8]), tf.define_tensor([8, 1, 3, 3])
        fusion.add_output(depthwise(8)(x, w))
    before = str(fusion)
    with pytest.raises(UnsupportedError, match="B may be 0"):
        windows(fusion)
    assert str(fusion) == before
    with tf.Fusion("windows") as maxima:
        x = tf.define_tensor([tf.dim("B", min=0), 5, 6, 8])
        maxima.add_output(last(lambda x: tf.max_pool(x, [3, 3], 1, 1))(x))
    windows(maxima, WindowsConfig(3, 8, 2))
    kernel = tf.lower(maxima)
    assert kernel.verify().is_proved
    assert kernel.simulate(np.zeros((0, 5, 6, 8), np.float32))[0].shape == (0, 5, 6, 8)


def test_parameters_are_checked() -> None:
    with pytest.raises(UnsupportedError, match="tile is 1"):
        WindowsConfig(1)
    with pytest.raises(UnsupportedError, match="at most"):
        WindowsConfig(4, 64, 32)
    fusion = Case(depthwise(8), ((2, 5, 6, 8), (8, 1, 3, 3))).fusion()
    before = str(fusion)
    with pytest.raises(UnsupportedError, match="tiles of 171 windows have 513 terms to unroll"):
        windows(fusion, WindowsConfig(171))
    assert str(fusion) == before


@pytest.mark.parametrize("config", [None, WindowsConfig(4, 16, 3)])
def test_windows_where_they_lie(config: WindowsConfig | None) -> None:
    """A segment reads an input through views at once: without padding no tensor has the windows."""
    text = """\
FUSION where
INPUT x: float32[2, 3, 13, 17]
INPUT w: float32[3, 1, 5, 5]
y: float32[2, 3, 9, 13] = reduce add of mul(x[i0, i1, i2 + i4, i3 + i5], w[i1, 0, i4, i5]) over i4: 5, i5: 5 init 0.0
OUTPUT y
"""
    fusion = tf.parse_fusion(text)
    assert windows(fusion, config).us == (offer(tf.parse_fusion(text)).us if config is None else pytest.approx(3, abs=2))
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    x, w = (np.random.default_rng(0).normal(size=shape).astype(np.float32) for shape in ((2, 3, 13, 17), (3, 1, 5, 5)))
    np.testing.assert_allclose(kernel.simulate(x, w, seed=0)[0], fusion.evaluate(x, w)[0], rtol=1e-4, atol=1e-5)


def test_several_convolutions_of_one_image_are_not_one_thread_for_each_element() -> None:
    """Means of windows of two images and of their product: each a kernel of windows, expected to take a tenth of the time of one thread for each element."""

    def blurred(x: tf.TensorView, y: tf.TensorView, w: tf.TensorView) -> tf.TensorView:
        a, b, ab = (tf.conv2d(z, w, groups=3) for z in (x, y, x * y))
        return ab - a * b

    found = choose_segments(Case(blurred, ((8, 3, 256, 256), (8, 3, 256, 256), (3, 1, 11, 11))).fusion())
    assert [step.schedule.scheduler for step in found.steps].count("windows") == 3
    assert found.us < 60
