"""Stencils: right and proved with and without padding, along any axis, of several outputs; each element loaded once for a tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.count import count
from taskfuse.errors import UnsupportedError
from taskfuse.kir.nodes import VectorCopy
from taskfuse.kir.walk import accesses, walk
from taskfuse.schedulers import PointwiseConfig

Outputs = Sequence[tf.TensorView]


def taps(x: tf.TensorView, w: tf.TensorView) -> Outputs:
    """A causal depthwise convolution of four taps."""
    padded, n = tf.pad(x, [(0, 0), (3, 0), (0, 0)]), x.shape[1]
    total = padded[:, :n] * w[0]
    for k in range(1, 4):
        total = total + padded[:, k : k + n] * w[k]
    return [tf.silu(total)]


def heat(x: tf.TensorView) -> Outputs:
    """A step of the heat equation on images."""
    padded, (h, w) = tf.pad(x, [(0, 0), (1, 1), (1, 1)]), x.shape[1:]
    here = padded[:, 1 : 1 + h, 1 : 1 + w]
    around = padded[:, :h, 1 : 1 + w] + padded[:, 2:, 1 : 1 + w] + padded[:, 1 : 1 + h, :w] + padded[:, 1 : 1 + h, 2:]
    return [here + 0.1 * (around - 4.0 * here)]


def differences(x: tf.TensorView) -> Outputs:
    return [(x[2:] - x[:-2]) * 0.5]


def several(x: tf.TensorView) -> Outputs:
    """Two outputs, one of which also reads every element at its own place."""
    padded, n = tf.pad(x, [(1, 1), (0, 0)]), x.shape[0]
    return [tf.maximum(padded[:n], padded[2:]), padded[:n] + x]


def every_other(x: tf.TensorView) -> Outputs:
    return [x[0:-1:2] + x[1::2]]


CASES: dict[str, tuple[Callable[..., Outputs], tuple[tuple[int | str, ...], ...], tf.DType]] = {
    "taps": (taps, (("B", "S", 16), (4, 16)), tf.bfloat16),
    "heat": (heat, ((2, 10, 16),), tf.float32),
    "differences": (differences, ((11, 3, 8),), tf.float32),
    "several": (several, ((10, 16),), tf.float32),
    "every other": (every_other, ((12, 8),), tf.float32),
}
VALUES = {"B": 2, "S": 13}


def fusion_of(name: str) -> tf.Fusion:
    build, shapes, dtype = CASES[name]
    with tf.Fusion("stencil") as fusion:
        dims = {n: tf.dim(n, min=1) for shape in shapes for n in shape if isinstance(n, str)}
        for out in build(*(tf.define_tensor([dims[n] if isinstance(n, str) else n for n in s], dtype, f"x{k}") for k, s in enumerate(shapes))):
            fusion.add_output(out)
    return fusion


@pytest.mark.parametrize("name", CASES)
def test_right_and_proved(name: str) -> None:
    plain, fusion, (_, shapes, dtype) = fusion_of(name), fusion_of(name), CASES[name]
    rng = np.random.default_rng(0)
    given: list[Any] = [rng.standard_normal([VALUES[n] if isinstance(n, str) else n for n in s]).astype(dtype.numpy) for s in shapes]
    chosen = tf.schedulers.pointwise(fusion, PointwiseConfig(16 // dtype.itemsize, 2, 2, 1, tile=4))
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    for got, wanted in zip(kernel.simulate(*given, seed=0), plain.evaluate(*given), strict=True):
        np.testing.assert_array_equal(got, wanted)
    again = fusion_of(name)
    exec(chosen.code, {"fusion": again})
    assert str(again) == str(fusion)


def large() -> tf.Fusion:
    with tf.Fusion("large") as fusion:
        fusion.add_output(*taps(tf.define_tensor([8, 4096, 2048], name="x"), tf.define_tensor([4, 2048], name="w")))
    return fusion


def test_a_tile_loads_each_element_once_as_vectors() -> None:
    fusion = large()
    chosen = tf.schedulers.auto(fusion)
    assert chosen.scheduler == "pointwise"
    assert chosen.config.tile == 8
    kernel = tf.lower(fusion)
    assert all(isinstance(s, VectorCopy) for s in walk(kernel.body) if any(a.buffer in ("x", "w") for a in accesses(s)[1]))
    assert count(kernel).reads["x"].asked < 1.4 * 8 * 4096 * 2048 * 4
    apart = large()
    tf.schedulers.pointwise(apart, PointwiseConfig(4, 256, 1, 1))
    assert count(tf.lower(apart)).lookups > 1.5 * count(kernel).lookups


def test_nothing_is_shared_where_conditions_differ() -> None:
    """A rotary embedding of neighbors is no stencil: each place of a pair has elements at other points."""
    with tf.Fusion("pairs") as fusion:
        x = tf.define_tensor([4096, 4096, 2], name="x")
        fusion.add_output(tf.reshape(tf.stack([-x[..., 1], x[..., 0]], 2), [4096, 8192]))
    assert tf.schedulers.pointwise(fusion).config.tile == 1


def test_a_tile_of_no_stencil_is_refused() -> None:
    with tf.Fusion("plain") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([64, 64], name="x")))
    with pytest.raises(UnsupportedError, match="loads are not shifted along an axis"):
        tf.schedulers.pointwise(fusion, PointwiseConfig(4, 16, 1, 1, tile=2))


def test_halves_that_are_exchanged_are_loaded_as_vectors() -> None:
    with tf.Fusion("halves") as fusion:
        x = tf.define_tensor([64, 32], name="x")
        y = tf.sin(x)
        fusion.add_output(tf.exp(tf.cat([-y[:, 16:], y[:, :16]], 1)) * y)
    tf.schedulers.pointwise(fusion, PointwiseConfig(4, 8, 1, 1))
    kernel = tf.lower(fusion)
    assert kernel.verify().is_proved
    assert all(isinstance(s, VectorCopy) for s in walk(kernel.body) if any(a.buffer == "x" for a in accesses(s)[1]))
